"""Workflows and FunctionProfiles as the cluster reports them: valid ones, and problems of others.

A valid document is not yet one that can be dispatched: `scheduler.dispatch.namespace_plans` has the
documents with which the dispatcher plans, live and simulated, and
`scheduler.gateway.serving.workflow_directory` the workflows that a client may call.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import structlog

from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.document_reader import DocumentError, parse_document, stage_limit_problems
from scheduler.model.documents import Document, FunctionProfile, Stage, Workflow
from scheduler.model.pod import FunctionPod
from scheduler.model.status import ObservedDocument

log = structlog.get_logger(__name__)
_SOURCE = "the API server"
_KeyT = TypeVar("_KeyT", bound=Hashable)
_DocumentT = TypeVar("_DocumentT", bound=Document)


class Change(NamedTuple, Generic[_DocumentT]):
    """A document before and after a change of its spec; None: there is no valid one."""

    before: _DocumentT | None
    after: _DocumentT | None


class DocumentHandler(Generic[_KeyT, _DocumentT]):
    """Documents of one kind; an invalid one is logged and set aside.

    ``parse`` raises a DocumentError, and returns None for a document of another API group.
    ``on_change`` gets the changes of one event, or of one list; a change of metadata alone is none.

    Attributes:
        documents: the valid documents.
        problems: problems of the invalid documents.
        errors: errors of the invalid documents, which have these problems.
        observed: identity and status of all documents, valid or not.
        revision: number of reports of documents until now, changes of a status included.
    """

    def __init__(
        self,
        parse: Callable[[Mapping[str, Any]], _DocumentT | None],
        key_of: Callable[[Mapping[str, Any]], _KeyT],
        on_change: Callable[[list[Change[_DocumentT]]], None],
    ) -> None:
        self._parse = parse
        self._key_of = key_of
        self._on_change = on_change
        self.documents: dict[_KeyT, _DocumentT] = {}
        self.problems: dict[_KeyT, list[str]] = {}
        self.errors: dict[_KeyT, DocumentError] = {}
        self.observed: dict[_KeyT, ObservedDocument] = {}
        self.revision = 0

    def replace(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Replace all documents by those of a list."""
        before = dict(self.documents)
        seen = {self._set(raw) for raw in items}
        for key in self.observed.keys() - seen:
            self._forget(key)
        self._report({key: before.get(key) for key in {*before, *self.documents}})

    def upsert(self, item: Mapping[str, Any]) -> None:
        """Add or change a document."""
        key = self._key_of(item["metadata"])
        before = self.documents.get(key)
        self._set(item)
        self._report({key: before})

    def delete(self, item: Mapping[str, Any]) -> None:
        """Remove a document."""
        key = self._key_of(item["metadata"])
        before = self.documents.get(key)
        self._forget(key)
        self._report({key: before})

    def _report(self, before: Mapping[_KeyT, _DocumentT | None]) -> None:
        changes = [Change(document, self.documents.get(key)) for key, document in before.items()]
        changes = [
            change for change in changes if _compared(change.before) != _compared(change.after)
        ]
        if changes:
            self._on_change(changes)

    def _forget(self, key: _KeyT) -> None:
        self.revision += 1
        self.documents.pop(key, None)
        self.problems.pop(key, None)
        self.errors.pop(key, None)
        self.observed.pop(key, None)

    def _set(self, raw: Mapping[str, Any]) -> _KeyT:
        key = self._key_of(raw["metadata"])
        self.revision += 1
        self.observed[key] = ObservedDocument.of(raw)
        try:
            document = self._parse(raw)
        except DocumentError as error:
            problems = [str(problem) for problem in error.problems]
            if self.problems.get(key) != problems:
                log.error("document cannot be used", problems=problems)
            self.problems[key] = problems
            self.errors[key] = error
            self.documents.pop(key, None)
        else:
            self.problems.pop(key, None)
            self.errors.pop(key, None)
            if document is not None:
                self.documents[key] = document
        return key


class DocumentStore:
    """All documents. The work of a change is that of the workflows that it concerns.

    Attributes:
        catalogue: view of the valid documents.
        on_discard: listeners, called in this order with the workflows and the functions whose
            prepared data are outdated.
    """

    def __init__(
        self,
        *,
        stages_max: int,
        on_workflow: Callable[[Change[Workflow]], None],
        on_profile: Callable[[Change[FunctionProfile]], None],
    ) -> None:
        """Create an empty store; it calls ``on_workflow`` and ``on_profile`` for each change.

        A workflow of more than ``stages_max`` stages is not valid.
        """
        self._stages_max = stages_max
        self.on_discard: list[Callable[[AbstractSet[tuple[str, str]], Sequence[str]], None]] = []
        self._on_workflow = on_workflow
        self._on_profile = on_profile
        self.workflows = DocumentHandler(
            self._parse_workflow, _workflow_key, self._workflows_changed
        )
        self.profiles = DocumentHandler(_parse_profile, _function, self._profiles_changed)
        self._users: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)  # by function
        self.catalogue = Catalogue(
            MappingProxyType(self.workflows.documents), MappingProxyType(self.profiles.documents)
        )

    def _parse_workflow(self, raw: Mapping[str, Any]) -> Workflow | None:
        workflow = _parse(raw, Workflow)
        problems = workflow and stage_limit_problems(workflow, self._stages_max, _SOURCE)
        if problems:
            raise DocumentError(problems)
        return workflow

    def _workflows_changed(self, changes: list[Change[Workflow]]) -> None:
        for change in changes:
            for function in _functions(change.before):
                self._users[function].discard(_changed(change).key)
            for function in _functions(change.after):
                self._users[function].add(_changed(change).key)
            self._on_workflow(change)
        self._discard({_changed(change).key for change in changes})

    def _profiles_changed(self, changes: list[Change[FunctionProfile]]) -> None:
        # Cold starts and outputs are read with each plan; only configurations are prepared.
        functions = [
            _changed(change).metadata.name
            for change in changes
            if change.before is None
            or change.after is None
            or change.before.spec.gpus != change.after.spec.gpus
        ]
        concerned = {key for function in functions for key in self._users.get(function, ())}
        for change in changes:
            self._on_profile(change)
        self._discard(concerned, functions)

    def _discard(self, workflows: set[tuple[str, str]], functions: Sequence[str] = ()) -> None:
        for discard in self.on_discard:
            discard(workflows, functions)

    def problem_count(self) -> int:
        """Number of documents that cannot be used."""
        return len(self.workflows.problems) + len(self.profiles.problems)

    def workflow(self, namespace: str, name: str) -> Workflow | None:
        """Look up a workflow; None where it is unknown."""
        return self.catalogue.workflows.get((namespace, name))

    def users(self, function: str) -> AbstractSet[tuple[str, str]]:
        """Return the keys of the workflows with a stage of a function."""
        return self._users.get(function, frozenset())

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


def _parse(raw: Mapping[str, Any], kind: type[_DocumentT]) -> _DocumentT | None:
    # The items of a list have neither kind nor apiVersion.
    document = parse_document({"kind": kind.__name__, **raw}, _SOURCE)
    return document if isinstance(document, kind) else None


def _parse_profile(raw: Mapping[str, Any]) -> FunctionProfile | None:
    return _parse(raw, FunctionProfile)


def _compared(document: Document | None) -> object:
    """Return what makes a change: other metadata than the UID do not."""
    return None if document is None else (document.metadata.uid, document.spec)


def _functions(workflow: Workflow | None) -> set[str]:
    return set() if workflow is None else {stage.function for stage in workflow.spec.stages}


def _workflow_key(metadata: Mapping[str, Any]) -> tuple[str, str]:
    return metadata.get("namespace") or "default", metadata["name"]


def _function(metadata: Mapping[str, Any]) -> str:
    return str(metadata["name"])


def _changed(change: Change[_DocumentT]) -> _DocumentT:
    document = change.after or change.before
    assert document is not None  # noqa: S101 - one of the two exists
    return document
