"""Plans over what is warm: the other stages of a workflow, by the shares that pods have.

A stage must not count on a share that no pod has, so the planner reads profiles that are restricted
to the pods' rows. A function without a pod keeps its whole profile: its pods are to be started.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from scheduler.dispatch.choice import OtherStageCosts
from scheduler.dispatch.share_classes import ShareClass
from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, GpuProfile, ProfiledConfiguration, Workflow
from scheduler.model.progress import NOTHING_BEGUN, InstanceProgress
from scheduler.search.other_stages import OtherStages
from scheduler.search.planner import Planner, PlanRequest
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
    """Plans of one namespace's workflows; they are made again when the warm shares change."""

    def __init__(
        self,
        workflows: Mapping[tuple[str, str], Workflow],
        profiles: Mapping[str, FunctionProfile],
        rules: Rules,
    ) -> None:
        self._workflows = workflows
        self._profiles = profiles
        self._rules = replace(rules, policy="exact")  # one search, whatever pods' plans do
        self._warm: dict[str, FunctionProfile] = {}
        self._planner: Planner | None = None
        self._stages: dict[tuple[tuple[str, str], str], StagePlan] = {}

    def changed(self) -> None:
        """Forget the plans: documents or shares have changed."""
        self._planner = None
        self._stages.clear()

    def set_classes(self, function: str, classes: Iterable[ShareClass]) -> None:
        """Set the shares of a function's pods."""
        rows: dict[str, dict[ProfiledConfiguration, None]] = {}
        for share_class in classes:
            rows.setdefault(share_class.model, {}).update(dict.fromkeys(share_class.profiled))
        self._warm.pop(function, None)
        if rows:
            self._warm[function] = _restricted(self._profiles[function], rows)
        self.changed()

    def stage(self, workflow: tuple[str, str], stage: str) -> StagePlan:
        """Return the plan of a stage; raises an `UnknownDocumentError` or a `PlanningError`."""
        plan = self._stages.get((workflow, stage))
        if plan is None:
            others = self._other_stages(workflow, stage, NOTHING_BEGUN, inf)
            prepared = self._known_planner().stage(self._request(workflow, stage))
            costs = _costs(others)
            plan = StagePlan(costs, costs.time_ms[0], prepared.margin.ratio)
            self._stages[workflow, stage] = plan
        return plan

    def others(
        self, workflow: tuple[str, str], stage: str, progress: InstanceProgress, slack_ms: float
    ) -> OtherStageCosts:
        """Return the costs of the other stages of a request, of which some may run."""
        return _costs(self._other_stages(workflow, stage, progress, slack_ms))

    def _other_stages(
        self, workflow: tuple[str, str], stage: str, progress: InstanceProgress, limit_ms: float
    ) -> OtherStages:
        prepared = self._known_planner().stage(self._request(workflow, stage))
        return prepared.other_stages(progress, limit_ms)

    def _request(self, workflow: tuple[str, str], stage: str) -> PlanRequest:
        namespace, name = workflow
        return PlanRequest(namespace=namespace, workflow=name, stage=stage)

    def _known_planner(self) -> Planner:
        if self._planner is None:
            profiles = [self._warm.get(name, profile) for name, profile in self._profiles.items()]
            catalogue = Catalogue.of([*self._workflows.values(), *profiles])
            self._planner = Planner(catalogue, self._rules)
        return self._planner


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
