"""The planner: which configurations a stage should run under, so that its workflow keeps its SLO.

A thin front over the kernels. What depends on documents alone (tables, frontiers, budgets) is made
when a workflow's stage is first planned, and kept; a question is then one kernel call a GPU model.
"""

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.plan import Candidate, Plan, Prices
from scheduler.search.answering import (
    UNLIMITED,
    Ceilings,
    Ranking,
    by_throughput,
    rank,
    search,
    with_margin,
)
from scheduler.search.errors import PlanningError
from scheduler.search.tables import Tables
from scheduler.search.workflows import Option, PreparedStage, Workflows

__all__ = ["EXPANSIONS_MAX", "PlanRequest", "Planner", "PlanningError", "prepare"]

EXPANSIONS_MAX = 1_024  # states of one A*: some ms for 12 stages x 32 configurations
RATE_MIN = 1e-9  # requests/s, one in thirty years; keeps the time between arrivals finite


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
        gpu_models: only these models (those the cluster has); None: all in the profiles.
        margin_ratio: by how much stages may run over their profile; the plan keeps within the time
            left even so.
        k: how many candidates.
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
    margin_ratio: float = 0.0
    k: int = 5


class Planner:
    """Plans over one catalogue of documents; safe to call from several threads."""

    def __init__(
        self,
        catalogue: Catalogue,
        prices: Prices,
        *,
        on_lost_slo: Literal["fastest", "cheapest"] = "fastest",
        expansions_max: int = EXPANSIONS_MAX,
    ) -> None:
        self._fastest = on_lost_slo == "fastest"
        self._expansions_max = expansions_max
        self._workflows = Workflows(catalogue, Tables(catalogue, prices), expansions_max)

    def replaced(self, catalogue: Catalogue) -> "Planner":
        """A planner over another catalogue; what was prepared from unchanged documents is kept."""
        planner = copy(self)
        planner._workflows = self._workflows.replaced(catalogue)  # noqa: SLF001 - its own class
        return planner

    def fastest_ms(self, namespace: str, workflow: str) -> float:
        """The least end-to-end time of a workflow under any configurations."""
        return self._workflows.workflow(namespace, workflow).fastest_ms()

    def plan(self, request: PlanRequest) -> Plan:
        """The K best configurations for the stage at hand, cheapest completion first.

        Raises:
            UnknownDocumentError: the workflow, its stage or a function's profile is not there.
            PlanningError: the ceilings leave no configuration, or the question makes no sense.
        """
        if request.workflow is None:
            stage = self._workflows.function(request.stage)
        else:
            stage = self._workflows.workflow(request.namespace, request.workflow).stage(
                request.stage
            )
        options = _options(stage, request)
        ceilings = _ceilings(request)
        budget_ms = _budget_ms(stage, request)
        limit_ms = with_margin(budget_ms)
        k = request.k
        rankings = [search(o, ceilings, limit_ms, k, self._expansions_max) for o in options]
        if not any(ranking.within_ceilings for ranking in rankings):
            ceilings = _with_smallest_batch(stage, options, ceilings)
            rankings = [search(o, ceilings, limit_ms, k, self._expansions_max) for o in options]
            if not any(ranking.within_ceilings for ranking in rankings):
                slow = [by_throughput(o, ceilings, k, fastest=self._fastest) for o in options]
                return _plan(slow, ceilings, budget_ms, k, order=_by_throughput, feasible=False)
        if any(len(ranking.index) for ranking in rankings):
            return _plan(rankings, ceilings, budget_ms, k, order=_by_cost, feasible=True)
        order = _by_time if self._fastest else _by_cost
        lost = [rank(o, ceilings, math.inf, k, fastest=self._fastest) for o in options]
        return _plan(lost, ceilings, budget_ms, k, order=order, feasible=False)


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
    planner = Planner(catalogue, Prices())
    planner.plan(PlanRequest(namespace="default", workflow="w", stage="s"))
    planner.plan(PlanRequest(namespace="default", workflow="w", stage="c"))


def _budget_ms(stage: PreparedStage, request: PlanRequest) -> float | None:
    """What may be planned for: the time left, less what stages may run over."""
    left_ms = stage.budget_ms() if request.slack_ms is None else request.slack_ms
    return None if left_ms is None else left_ms / (1 + request.margin_ratio)


def _options(stage: PreparedStage, request: PlanRequest) -> tuple[Option, ...]:
    models = request.gpu_models
    if models is None:
        return stage.options
    options = tuple(option for option in stage.options if option.table.model in models)
    if not options:
        raise PlanningError(
            f"stage {stage.name} (function {stage.function}) and what follows it are profiled on "
            f"{', '.join(option.table.model for option in stage.options)}, and the cluster has "
            f"{', '.join(sorted(models)) or 'no GPU'}; profile the functions on a model it has"
        )
    return options


def _ceilings(request: PlanRequest) -> Ceilings:
    if request.k < 1:
        raise PlanningError(f"k is {request.k}; ask for at least one candidate")
    if request.slack_ms is not None and math.isnan(request.slack_ms):
        raise PlanningError("slack_ms is not a number")
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


def _with_smallest_batch(
    stage: PreparedStage, options: tuple[Option, ...], ceilings: Ceilings
) -> Ceilings:
    """Ceilings that let at least the smallest batch pass that the other ceilings leave."""
    batches = [o.table.batch[ceilings.allow(o.table, batch=False)] for o in options]
    smallest = min((int(b.min()) for b in batches if len(b)), default=None)
    if smallest is None:
        raise PlanningError(_nothing_within(stage, options, ceilings))
    return replace(ceilings, batch=max(ceilings.batch, smallest))


def _nothing_within(stage: PreparedStage, options: tuple[Option, ...], ceilings: Ceilings) -> str:
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
        (c for option in options for c in option.table.configurations),
        key=lambda c: (c.gpu_percent, c.cpu, c.memory_mib, c.batch),
    )
    return (
        f"no configuration of {stage.function} within {limits}; its smallest is "
        f"{smallest.cpu} vCPU, {smallest.gpu_percent} % GPU, {smallest.memory_mib} MiB GPU memory "
        f"(batch {smallest.batch})"
    )


Order = Callable[[Candidate], tuple[float, ...]]


def _by_cost(candidate: Candidate) -> tuple[float, ...]:
    return candidate.path_cost, candidate.path_ms


def _by_time(candidate: Candidate) -> tuple[float, ...]:
    return candidate.path_ms, candidate.path_cost


def _by_throughput(candidate: Candidate) -> tuple[float, ...]:
    configuration = candidate.configuration
    throughput = configuration.batch / configuration.latency_ms
    return -throughput, candidate.path_cost, candidate.path_ms


def _plan(  # noqa: PLR0913
    rankings: list[Ranking],
    ceilings: Ceilings,
    budget_ms: float | None,
    k: int,
    *,
    order: Order,
    feasible: bool,
) -> Plan:
    """The K best over all GPU models; each ranking is in order already."""
    candidates = [c for ranking in rankings for c in ranking.candidates(ceilings.interval_ms)]
    if len(rankings) > 1:
        candidates.sort(key=lambda c: (*order(c), *_tie(c)))
    return Plan(
        feasible,
        budget_ms,
        tuple(candidates[:k]),
        all(ranking.exact for ranking in rankings),
        sum((ranking.effort for ranking in rankings[1:]), rankings[0].effort),
    )


def _tie(candidate: Candidate) -> tuple[int, int, int, str]:
    c = candidate.configuration
    return c.gpu_percent, c.cpu, c.batch, candidate.gpu_model
