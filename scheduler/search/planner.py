"""The planner: which configurations a stage should run under, so that its workflow keeps its SLO.

A thin front over the kernels. What depends on documents alone (tables, frontiers, budgets) is made
when a workflow's stage is first planned, and kept; a question is then one kernel call a GPU model.
"""

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.plan import Candidate, Plan
from scheduler.search.errors import PlanningError
from scheduler.search.ranking import (
    UNLIMITED,
    Ceilings,
    Ranking,
    by_throughput,
    rank,
    search,
    with_rounding,
)
from scheduler.search.rules import Rules
from scheduler.search.tables import Tables
from scheduler.search.workflows import PreparedStage, PreparedWorkflow, Workflows

__all__ = ["PlanRequest", "Planner", "PlanningError", "Rules", "prepare"]

RATE_MIN = 1e-9  # requests/s, one in thirty years; keeps the time between arrivals finite


Answer = tuple[Ranking, float]  # and how long the start may take, ms
_DEFAULT_RULES = Rules()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What is to be planned: a stage, the time left, and what its pod may be given.

    Attributes:
        namespace: of the workflow.
        workflow: its name; None: ``stage`` is the name of a function, a workflow of one stage
            without an SLO.
        stage: the stage at hand.
        slack_ms: time left for the stages left; None: the workflow's own budget from this stage on.
        queued: requests waiting: no larger batch for the stage at hand. Where no configuration
            has a batch that small, the smallest batch there is.
        rate: requests per second to be served by a long-lived pod. The time to fill a batch,
            (batch - 1) / rate, is added to the stage at hand, and batch / latency must be at least
            the rate; where no configuration keeps up, the plan is infeasible and lists those of
            the highest throughput.
        cpu_max, gpu_percent_max, memory_mib_max: ceilings on the stage at hand.
        gpu_models: those that the cluster has; None: all in the profiles. Every stage may run on
            any of them; the candidates for the stage at hand say on which they hold.
        starts_ms: how long it may take until the stage runs, for each kind of node: its cold start
            and the transfer of its input.
        margin_ratio: by how much stages may run over their profile; the plan keeps within the time
            left even so.
        k: how many candidates on each GPU model and for each of ``starts_ms``.
    """

    namespace: str
    workflow: str | None
    stage: str
    slack_ms: float | None = None
    queued: int | None = None
    rate: float | None = None
    cpu_max: int | None = None
    gpu_percent_max: int | None = None
    memory_mib_max: int | None = None
    gpu_models: frozenset[str] | None = None
    starts_ms: tuple[float, ...] = (0.0,)
    margin_ratio: float = 0.0
    k: int = 5


class Planner:
    """Plans over one catalogue of documents; safe to call from several threads."""

    def __init__(self, catalogue: Catalogue, rules: Rules = _DEFAULT_RULES) -> None:
        self.rules = rules
        self._workflows = Workflows(catalogue, Tables(catalogue, rules), rules)

    def replaced(self, catalogue: Catalogue) -> "Planner":
        """A planner over another catalogue; what was prepared from unchanged documents is kept."""
        planner = copy(self)
        planner._workflows = self._workflows.replaced(catalogue)  # noqa: SLF001 - its own class
        return planner

    def workflow(self, namespace: str, workflow: str) -> PreparedWorkflow:
        """A workflow as this planner prepared it, or an UnknownDocumentError."""
        return self._workflows.workflow(namespace, workflow)

    def fastest_ms(self, namespace: str, workflow: str) -> float:
        """The least end-to-end time of a workflow under any configurations."""
        return self._workflows.workflow(namespace, workflow).fastest_ms()

    def budgets_ms(self, namespace: str, workflow: str) -> dict[str, tuple[float, float]]:
        """The SLO split among the stages, by dominators and ANL: from when to when, ms."""
        return self._workflows.workflow(namespace, workflow).budgets_ms()

    def plan(self, request: PlanRequest) -> Plan:
        """The K best configurations for the stage at hand, cheapest completion first.

        Raises:
            UnknownDocumentError: the workflow, its stage or a function's profile is not there.
            PlanningError: the ceilings leave no configuration, or the question makes no sense.
        """
        stage = self.stage(request)
        ceilings = _ceilings(request)
        stage.tail.carry_on()
        budget_ms = _budget_ms(stage, request)
        limit_ms = with_rounding(budget_ms)
        found = self._searched(stage, request, ceilings, limit_ms)
        if not any(ranking.within_ceilings for ranking, _ in found):
            ceilings = _with_smallest_batch(stage, ceilings)
            found = self._searched(stage, request, ceilings, limit_ms)
        if any(len(ranking.index) for ranking, _ in found):
            return _plan(found, ceilings, budget_ms, order=_by_cost)
        # Where the SLO is lost, or no configuration keeps up, any node will do.
        fastest, start_ms = self.rules.on_lost_slo == "fastest", max(request.starts_ms)
        k = request.k
        if not any(ranking.within_ceilings for ranking, _ in found):
            slow = [by_throughput(o, ceilings, k, fastest=fastest) for o in stage.options]
            answers = [(ranking, start_ms) for ranking in slow]
            says = _too_slow(slow, request)
            return _plan(answers, ceilings, budget_ms, order=_by_throughput, says=says)
        late = [rank(o, ceilings, math.inf, k, fastest=fastest) for o in stage.options]
        answers = [(ranking, start_ms) for ranking in late]
        says = self._too_late(stage, ceilings, budget_ms, min(request.starts_ms))
        order = _by_time if fastest else _by_cost
        return _plan(answers, ceilings, budget_ms, order=order, says=says)

    def stage(self, request: PlanRequest) -> PreparedStage:
        """The stage at hand as this planner prepared it, or an error as `plan` raises it."""
        if request.workflow is None:
            return self._workflows.function(request.stage, request.gpu_models)
        workflow = self._workflows.workflow(request.namespace, request.workflow)
        return workflow.stage(request.stage, request.gpu_models)

    def _searched(
        self, stage: PreparedStage, request: PlanRequest, ceilings: Ceilings, limit_ms: float
    ) -> list[Answer]:
        """The K cheapest in time, on each GPU model and for each time that a start may take."""
        most = self.rules.expansions_max
        return [
            (search(option, ceilings, limit_ms - start_ms, request.k, most), start_ms)
            for option in stage.options
            for start_ms in request.starts_ms
        ]

    def _too_late(
        self,
        stage: PreparedStage,
        ceilings: Ceilings,
        budget_ms: float | None,
        start_ms: float,
    ) -> str:
        least = [rank(o, ceilings, math.inf, 1, fastest=True) for o in stage.options]
        fastest_ms = start_ms + min(float(r.path_ms[0]) for r in least if len(r.index))
        left = "no time is left" if not budget_ms or budget_ms <= 0 else f"{budget_ms:,.1f} ms left"
        return (
            f"the SLO is lost: {left}, and the fastest completion takes {fastest_ms:,.1f} ms; "
            f"the {self.rules.on_lost_slo} come first"
        )


def prepare() -> None:
    """Run every kernel once, so that the first real question finds them compiled and in memory.

    Their signatures being written out, they are compiled, or loaded from Numba's cache, when their
    modules are imported; this plans the entry of a small workflow that needs all of them.
    """
    gpu = {
        "model": "none",
        "configurations": [
            {"batch": b, "cpu": 1, "gpuPercent": 50, "latencyMs": 1 + b / 2, "memoryMib": 1}
            for b in (1, 2)
        ],
    }
    profile = {"metadata": {"name": "f"}, "spec": {"gpus": [gpu]}}
    # e and f after c, in parallel and then g: one module; a, b, c, d: the shape of an N.
    after = {"s": "", "a": "s", "b": "s", "c": "ab", "d": "b", "e": "c", "f": "c", "g": "ef"}
    stages = [{"name": n, "function": "f", "after": list(before)} for n, before in after.items()]
    spec = {"slo": {"latencyMs": 60_000}, "stages": stages}
    workflow = {"metadata": {"name": "w", "namespace": "default"}, "spec": spec}
    catalogue = Catalogue.of(
        [FunctionProfile.model_validate(profile), Workflow.model_validate(workflow)]
    )
    planner = Planner(catalogue)
    planner.plan(PlanRequest(namespace="default", workflow="w", stage="s"))
    planner.plan(PlanRequest(namespace="default", workflow="w", stage="c"))


def _budget_ms(stage: PreparedStage, request: PlanRequest) -> float | None:
    """What may be planned for: the time left, less what stages may run over."""
    left_ms = stage.budget_ms(request.slack_ms)
    return None if left_ms is None else left_ms / (1 + request.margin_ratio)


def _ceilings(request: PlanRequest) -> Ceilings:
    if request.k < 1:
        raise PlanningError(f"k is {request.k}; ask for at least one candidate")
    if request.slack_ms is not None and math.isnan(request.slack_ms):
        raise PlanningError("slack_ms is not a number")
    if not request.starts_ms or not all(0 <= start < math.inf for start in request.starts_ms):
        raise PlanningError(f"starts_ms is {request.starts_ms}; give at least one time >= 0")
    interval_ms = 0.0
    if request.rate is not None:
        if not (math.isfinite(request.rate) and request.rate > 0):
            raise PlanningError(f"rate is {request.rate}; it is a number of requests a second > 0")
        interval_ms = 1000.0 / max(request.rate, RATE_MIN)
    return Ceilings(
        batch=_ceiling(request.queued),
        cpu=_ceiling(request.cpu_max),
        gpu_percent=_ceiling(request.gpu_percent_max),
        memory_mib=_ceiling(request.memory_mib_max),
        interval_ms=interval_ms,
    )


def _ceiling(asked: int | None) -> int:
    """As the kernel takes it: a machine word."""
    return UNLIMITED if asked is None else max(0, min(asked, UNLIMITED))


def _with_smallest_batch(stage: PreparedStage, ceilings: Ceilings) -> Ceilings:
    """Ceilings that let at least the smallest batch pass that the other ceilings leave."""
    tables = [option.table for option in stage.options]
    batches = [table.batch[ceilings.allow(table, batch=False)] for table in tables]
    smallest = min((int(b.min()) for b in batches if len(b)), default=None)
    if smallest is None:
        raise PlanningError(_nothing_within(stage, ceilings))
    return replace(ceilings, batch=max(ceilings.batch, smallest))


def _nothing_within(stage: PreparedStage, ceilings: Ceilings) -> str:
    limits = ", ".join(
        text
        for limit, text in (
            (ceilings.cpu, f"{ceilings.cpu} vCPU"),
            (ceilings.gpu_percent, f"{ceilings.gpu_percent} % GPU"),
            (ceilings.memory_mib, f"{ceilings.memory_mib} MiB GPU memory"),
        )
        if limit != UNLIMITED
    )
    smallest = min(
        (c for option in stage.options for c in option.table.configurations),
        key=lambda c: (c.gpu_percent, c.cpu, c.memory_mib, c.batch),
    )
    return (
        f"no configuration of {stage.function} within {limits}; its smallest is "
        f"{smallest.cpu} vCPU, {smallest.gpu_percent} % GPU, {smallest.memory_mib} MiB GPU memory "
        f"(batch {smallest.batch})"
    )


def _too_slow(rankings: list[Ranking], request: PlanRequest) -> str:
    most = max(
        1000.0 * c.batch / c.latency_ms
        for ranking in rankings
        for i in ranking.index[:1].tolist()
        for c in [ranking.option.table.configurations[i]]
    )
    return (
        f"no configuration serves {request.rate:,g} requests a second: the most is {most:,.1f}; "
        "those of the highest throughput come first"
    )


Order = Callable[[Candidate], tuple[float, ...]]


def _by_cost(candidate: Candidate) -> tuple[float, ...]:
    return candidate.path_cost_dollars, candidate.path_ms


def _by_time(candidate: Candidate) -> tuple[float, ...]:
    return candidate.path_ms, candidate.path_cost_dollars


def _by_throughput(candidate: Candidate) -> tuple[float, ...]:
    configuration = candidate.configuration
    throughput = configuration.batch / configuration.latency_ms
    return -throughput, candidate.path_cost_dollars, candidate.path_ms


def _plan(
    answers: list[Answer],
    ceilings: Ceilings,
    budget_ms: float | None,
    *,
    order: Order,
    says: str = "",
) -> Plan:
    """All answers in one order; each ranking is in order already."""
    candidates = [
        candidate
        for ranking, start_ms in answers
        for candidate in ranking.candidates(ceilings, start_ms)
    ]
    if len(answers) > 1:
        candidates.sort(key=lambda c: (*order(c), *_tie(c)))
    return Plan(
        not says,
        budget_ms,
        tuple(candidates),
        max(ranking.epsilon for ranking, _ in answers),
        says,
        sum((ranking.effort for ranking, _ in answers[1:]), answers[0][0].effort),
    )


def _tie(candidate: Candidate) -> tuple[int, int, int, str]:
    c = candidate.configuration
    return c.gpu_percent, c.cpu, c.batch, candidate.gpu_model
