"""Workflows and profiles for the gateway: a workflow is served once all its profiles are known."""

from collections.abc import Callable
from typing import Protocol

from scheduler.dispatch.pods import FunctionKey
from scheduler.dispatch.requests import WorkflowKey
from scheduler.gateway.discovery.problems import ProblemLog
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.message_text import listed
from scheduler.planning.document_store import Change, DocumentStore


class DocumentListener(Protocol):
    """Receiver of documents; its methods do not block.

    A profile is set before the workflows that use it.
    """

    def set_profile(self, profile: FunctionProfile) -> None:
        """Add or replace a profile."""

    def set_workflow(self, workflow: Workflow) -> None:
        """Add or replace a workflow."""

    def remove_workflow(self, key: WorkflowKey) -> None:
        """Remove a workflow."""


class ServedDocuments:
    """Reports documents to a listener.

    Attributes:
        store: handlers of the watches.
        problems: reasons why valid workflows are not served.
        on_profile: callback that gets the name of a changed profile, after the listener.

    Args:
        listener: listener of the served documents.
        stages_max: largest number of stages of a valid workflow.
        on_workflow: callback that gets every Workflow before and after its change, served or not.
    """

    def __init__(
        self,
        listener: DocumentListener,
        *,
        stages_max: int,
        on_workflow: Callable[[Workflow | None, Workflow | None], None],
    ) -> None:
        self._listener = listener
        self._on_workflow = on_workflow
        self.on_profile: Callable[[str], None] = lambda _: None
        self._served: set[WorkflowKey] = set()
        self.problems = ProblemLog()
        self.store = DocumentStore(
            stages_max=stages_max,
            on_workflow=self._workflow_changed,
            on_profile=self._profile_changed,
        )

    def profile(self, function: str) -> FunctionProfile | None:
        """Look up the profile of a function."""
        return self.store.catalogue.profiles.get(function)

    def uses(self, function: FunctionKey) -> bool:
        """Return true if a served workflow has a stage of a function."""
        namespace, name = function
        return any(key[0] == namespace and key in self._served for key in self.store.users(name))

    def _workflow_changed(self, change: Change[Workflow]) -> None:
        self._on_workflow(change.before, change.after)
        if change.after is not None:
            self._serve(change.after)
        elif change.before is not None:
            self._withdraw(change.before)

    def _profile_changed(self, change: Change[FunctionProfile]) -> None:
        profile = change.after or change.before
        assert profile is not None  # noqa: S101 - one of the two exists
        name = profile.metadata.name
        if change.after is not None:
            self._listener.set_profile(change.after)
        for workflow in self.store.catalogue.workflows.values():
            uses = any(stage.function == name for stage in workflow.spec.stages)
            if uses and (change.after is None or workflow.key not in self._served):
                self._serve(workflow)
        self.on_profile(name)

    def _serve(self, workflow: Workflow) -> None:
        functions = dict.fromkeys(stage.function for stage in workflow.spec.stages)
        missing = [function for function in functions if self.profile(function) is None]
        if missing:
            self._withdraw(workflow)
            text = f"no FunctionProfile of {listed(missing)}; create them with these names"
            self.problems.report(("Workflow", *workflow.key), text)
            return
        self.problems.resolve(("Workflow", *workflow.key))
        self._served.add(workflow.key)
        self._listener.set_workflow(workflow)

    def _withdraw(self, workflow: Workflow) -> None:
        self.problems.resolve(("Workflow", *workflow.key))
        if workflow.key in self._served:
            self._served.remove(workflow.key)
            self._listener.remove_workflow(workflow.key)
