"""Documents of all namespaces, and the plans over them.

These are the dispatcher's own documents, in the simulator too. Each workflow here has all of its
profiles, while `scheduler.planning.document_store` has what the API server reports.
"""

from scheduler.dispatch.requests import WorkflowKey
from scheduler.dispatch.share_classes import Pool
from scheduler.dispatch.warm_plans import WarmPlans
from scheduler.dispatch.workflow_queues import WorkflowQueues
from scheduler.model.catalogue import UnknownDocumentError, unknown_profile
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.search.rules import Rules


class NamespacePlans:
    """Plans of each namespace's workflows.

    Attributes:
        profiles: profile of each function, by name; read only.
        prices: prices of vCPUs and GPUs in the plans.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.prices = rules.prices
        self.profiles: dict[str, FunctionProfile] = {}
        self._documents: dict[str, dict[WorkflowKey, Workflow]] = {}  # by namespace
        self._plans: dict[str, WarmPlans] = {}  # by namespace

    def of(self, namespace: str) -> WarmPlans:
        """Return the plans of a namespace."""
        plans = self._plans.get(namespace)
        if plans is None:
            documents = self._documents.setdefault(namespace, {})
            plans = self._plans[namespace] = WarmPlans(documents, self.profiles, self._rules)
        return plans

    def margin_ratio(self, state: WorkflowQueues) -> float:
        """Return the margin that a workflow's objective needs from its first stages on."""
        plans = self.of(state.key[0])
        entries = (state.names[stage] for stage in state.graph.entries)
        return max(plans.stage(state.key, name).margin_ratio for name in entries)

    def profile(self, name: str) -> FunctionProfile:
        """Return a profile; raises an `UnknownDocumentError`."""
        profile = self.profiles.get(name)
        if profile is None:
            raise unknown_profile(name)
        return profile

    def set_profile(self, profile: FunctionProfile) -> None:
        """Add or replace a profile."""
        self.profiles[profile.metadata.name] = profile
        for plans in self._plans.values():
            plans.profile_changed(profile.metadata.name)

    def set_workflow(self, document: Workflow) -> None:
        """Add or replace a workflow; raises an `UnknownDocumentError`."""
        for stage in document.spec.stages:
            try:
                self.profile(stage.function)
            except UnknownDocumentError as error:
                raise UnknownDocumentError(f"workflow {'/'.join(document.key)}: {error}") from None
        namespace = document.key[0]
        self._documents.setdefault(namespace, {})[document.key] = document
        self.of(namespace).workflow_changed(document.key)

    def remove_workflow(self, key: WorkflowKey) -> None:
        """Remove a workflow."""
        del self._documents[key[0]][key]
        self.of(key[0]).workflow_changed(key)

    def set_pods(self, pool: Pool) -> None:
        """Plan with the shares, and the run times, of a function's pods."""
        namespace, name = pool.function
        self.of(namespace).set_classes(name, pool.classes.values())
