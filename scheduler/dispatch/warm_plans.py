"""Plans over what is warm: the other stages of a workflow, by the shares that pods have.

A stage must not count on a share that no pod has, so the planner reads profiles that are restricted
to the pods' rows. A function without a pod keeps its whole profile: its pods are to be started.
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from math import inf

from scheduler.dispatch.choice import OtherStageCosts
from scheduler.dispatch.requests import WorkflowKey
from scheduler.dispatch.share_classes import ShareClass
from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, GpuProfile, ProfiledConfiguration, Workflow
from scheduler.model.progress import NOTHING_BEGUN, InstanceProgress
from scheduler.search.other_stages import OtherStages
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.prepared_stage import PreparedStage
from scheduler.search.rules import Rules


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The stages behind one stage.

    Attributes:
        others: costs of those stages, if none runs at the same time as this one.
        fastest_ms: shortest time in which they end.
        margin_ratio: margin that the objective needs from this stage on.
    """

    others: OtherStageCosts
    fastest_ms: float
    margin_ratio: float


class WarmPlans:
    """Plans of one namespace's workflows.

    A change of documents or warm shares makes those plans again that depend on it.

    Args:
        workflows: workflows of the namespace; their owner changes them.
        profiles: profile of each function; their owner changes them.
        rules: rules of planning.
    """

    def __init__(
        self,
        workflows: Mapping[WorkflowKey, Workflow],
        profiles: MutableMapping[str, FunctionProfile],
        rules: Rules,
    ) -> None:
        self._workflows = workflows
        self._profiles = profiles
        self._warm: dict[str, FunctionProfile] = {}
        catalogue = Catalogue(workflows, ChainMap(self._warm, profiles))
        # One search, whatever the plans of pods do.
        self._planner = Planner(catalogue, replace(rules, policy="exact"))
        self._stages: dict[WorkflowKey, dict[str, StagePlan]] = {}

    def workflow_changed(self, workflow: WorkflowKey) -> None:
        """Forget the plans of a workflow that was added, replaced or removed."""
        self._planner.discard([workflow])
        self._stages.pop(workflow, None)

    def profile_changed(self, function: str) -> None:
        """Forget the plans of all workflows with a function."""
        users = [
            key
            for key, workflow in self._workflows.items()
            if any(stage.function == function for stage in workflow.spec.stages)
        ]
        self._planner.discard(users, [function])
        for key in users:
            self._stages.pop(key, None)

    def set_classes(self, function: str, classes: Iterable[ShareClass]) -> None:
        """Set the shares of a function's pods."""
        rows: dict[str, dict[ProfiledConfiguration, None]] = {}
        for share_class in classes:
            rows.setdefault(share_class.model, {}).update(dict.fromkeys(share_class.profiled))
        self._warm.pop(function, None)
        if rows:
            self._warm[function] = _restricted(self._profiles[function], rows)
        self.profile_changed(function)

    def stage(self, workflow: WorkflowKey, stage: str) -> StagePlan:
        """Return the plan of a stage; raises an `UnknownDocumentError` or a `PlanningError`."""
        stages = self._stages.get(workflow)
        if stages is None:
            stages = self._stages[workflow] = {}
        plan = stages.get(stage)
        if plan is None:
            prepared = self._prepared(workflow, stage)
            costs = _costs(prepared.other_stages(NOTHING_BEGUN, inf))
            plan = stages[stage] = StagePlan(costs, costs.time_ms[0], prepared.margin.ratio)
        return plan

    def others(
        self, workflow: WorkflowKey, stage: str, progress: InstanceProgress, slack_ms: float
    ) -> OtherStageCosts:
        """Return the costs of the other stages of a request, of which some may run."""
        return _costs(self._prepared(workflow, stage).other_stages(progress, slack_ms))

    def _prepared(self, workflow: WorkflowKey, stage: str) -> PreparedStage:
        namespace, name = workflow
        return self._planner.stage(PlanRequest(namespace=namespace, workflow=name, stage=stage))


def _costs(others: OtherStages) -> OtherStageCosts:
    return OtherStageCosts(others.frontier.time_ms.tolist(), others.frontier.cost.tolist())


def _restricted(
    profile: FunctionProfile, rows: Mapping[str, Iterable[ProfiledConfiguration]]
) -> FunctionProfile:
    gpus = tuple(
        GpuProfile.model_construct(model=model, sparse=True, configurations=tuple(listed))
        for model, listed in rows.items()
    )
    spec = profile.spec.model_copy(update={"gpus": gpus})
    return profile.model_copy(update={"spec": spec})
