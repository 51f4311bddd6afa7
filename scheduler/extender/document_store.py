"""Workflows and FunctionProfiles as the cluster reports them, and the planner over them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.document_reader import DocumentError, parse_document
from scheduler.model.documents import Document, FunctionProfile, Stage, Workflow
from scheduler.model.pod import FunctionPod
from scheduler.search.planner import Planner
from scheduler.search.rules import Rules

log = structlog.get_logger(__name__)
_Key = tuple[str, str]  # namespace and name


class DocumentHandler:
    """Documents of one kind; an invalid one is logged and set aside.

    Attributes:
        documents: the valid documents.
        problems: problems of the invalid ones.
    """

    def __init__(
        self, kind: type[Workflow] | type[FunctionProfile], on_change: Callable[[], None]
    ) -> None:
        self._kind = kind
        self._on_change = on_change
        self.documents: dict[_Key, Document] = {}
        self.problems: dict[_Key, list[str]] = {}

    def replace(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Replace all documents by those of a list."""
        seen = {self._set(raw) for raw in items}
        for key in {*self.documents, *self.problems} - seen:
            self._forget(key)
        self._on_change()

    def upsert(self, item: Mapping[str, Any]) -> None:
        """Add or change a document."""
        self._set(item)
        self._on_change()

    def delete(self, item: Mapping[str, Any]) -> None:
        """Remove a document."""
        self._forget(_key(item))
        self._on_change()

    def _forget(self, key: _Key) -> None:
        self.documents.pop(key, None)
        self.problems.pop(key, None)

    def _set(self, raw: Mapping[str, Any]) -> _Key:
        key = _key(raw)
        try:
            # The items of a list have neither kind nor apiVersion.
            document = parse_document({"kind": self._kind.__name__, **raw}, "the API server")
        except DocumentError as error:
            problems = [str(problem) for problem in error.problems]
            if self.problems.get(key) != problems:
                log.error("document cannot be used", problems=problems)
            self.problems[key] = problems
            self.documents.pop(key, None)
        else:
            self.problems.pop(key, None)
            if document is not None:
                self.documents[key] = document
        return key


class DocumentStore:
    """All documents; catalogue and planner are rebuilt when one changes.

    ``on_change`` is called with each new catalogue.
    """

    def __init__(self, rules: Rules, on_change: Callable[[Catalogue], None]) -> None:
        self._on_change = on_change
        self.workflows = DocumentHandler(Workflow, self._refresh)
        self.profiles = DocumentHandler(FunctionProfile, self._refresh)
        self.catalogue = Catalogue()
        self.planner = Planner(self.catalogue, rules)

    def _refresh(self) -> None:
        self.catalogue = Catalogue.of(
            [*self.workflows.documents.values(), *self.profiles.documents.values()]
        )
        self.planner = self.planner.replaced(self.catalogue)
        self._on_change(self.catalogue)

    def problem_count(self) -> int:
        """Number of documents that cannot be used."""
        return len(self.workflows.problems) + len(self.profiles.problems)

    def workflow(self, namespace: str, name: str) -> Workflow | None:
        """Look up a workflow; None where it is unknown."""
        return self.catalogue.workflows.get((namespace, name))

    def knows(self, pod: FunctionPod) -> bool:
        """Return True where the documents have the pod's stage or function."""
        if pod.workflow is None:
            return pod.stage in self.catalogue.profiles
        workflow = self.workflow(pod.namespace, pod.workflow)
        return workflow is not None and workflow.stage(pod.stage) is not None

    def function_of(self, pod: FunctionPod) -> str:
        """Name of the function that the pod's stage runs; the stage's own where it is unknown."""
        if pod.workflow is None:
            return pod.stage
        try:
            stage = self.catalogue.workflow(pod.namespace, pod.workflow).stage(pod.stage)
        except UnknownDocumentError:
            return pod.stage
        return pod.stage if stage is None else stage.function

    def predecessors(self, pod: FunctionPod) -> tuple[Stage, ...]:
        """Stages whose output the pod's stage reads; none where the stage is unknown."""
        if pod.workflow is None:
            return ()
        workflow = self.workflow(pod.namespace, pod.workflow)
        stage = workflow.stage(pod.stage) if workflow else None
        if workflow is None or stage is None:
            return ()
        return tuple(before for before in workflow.spec.stages if before.name in stage.after)


def _key(raw: Mapping[str, Any]) -> _Key:
    metadata = raw["metadata"]
    return metadata.get("namespace") or "", metadata["name"]
