"""Planner: configurations of a stage that keep its workflow's SLO at minimum cost.

It is a thin front over the kernels. Data that depends on documents alone (tables, frontiers,
budgets) is prepared with the first plan of a workflow's stage and reused. After that a plan is one
kernel call per GPU model.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.plan import Candidate, Plan, SearchEffort
from scheduler.search.errors import NoNodeError, PlanningError
from scheduler.search.frontiers.arrays import Floats
from scheduler.search.frontiers.frontier_arrays import UNLIMITED, StageQuery
from scheduler.search.other_stages import OtherStages
from scheduler.search.plan_request import PlanRequest
from scheduler.search.prepared_stage import PreparedStage
from scheduler.search.ranking import (
    Ranking,
    rank_by_throughput,
    search,
    with_rounding_ms,
    within_ceilings,
)
from scheduler.search.rules import Rules
from scheduler.search.workflows import PreparedWorkflow, Workflows

__all__ = ["NoNodeError", "PlanRequest", "Planner", "PlanningError", "Rules", "prepare"]

RATE_MIN = 1e-9  # requests/s, one in thirty years; the interval between arrivals stays finite
RESERVE_PARTS = 4  # of a reserve that does not fit: three quarters, a half, a quarter, or none
_DEFAULT_RULES = Rules()


class _Budget(NamedTuple):
    """Time for the planned run times, and the reserves next to it, as in a `Plan`."""

    ms: float | None
    margin_ratio: float = 0.0
    later_waits_ms: float = 0.0


class Planner:
    """Plans over one catalogue of documents; safe to call from several threads."""

    def __init__(self, catalogue: Catalogue, rules: Rules = _DEFAULT_RULES) -> None:
        self.rules = rules
        self._workflows = Workflows(catalogue, rules)

    def discard(
        self, workflows: Iterable[tuple[str, str]] = (), functions: Iterable[str] = ()
    ) -> None:
        """Discard what was prepared from documents that changed in the catalogue since.

        Args:
            workflows: changed workflows, and those with a stage of one of ``functions``.
            functions: functions whose profiled configurations changed.
        """
        self._workflows.discard(workflows, functions)

    def workflow(self, namespace: str, workflow: str) -> PreparedWorkflow:
        """Return a prepared workflow, or raise an UnknownDocumentError."""
        return self._workflows.workflow(namespace, workflow)

    def prepared(self, namespace: str, workflow: str | None, stage: str) -> PreparedWorkflow:
        """Return what plans of a stage need, or raise an UnknownDocumentError."""
        if workflow is None:
            return self._workflows.function(stage)
        return self._workflows.workflow(namespace, workflow)

    def fastest_ms(
        self, namespace: str, workflow: str, fleet: FleetCapacity | None = None
    ) -> float:
        """Return the minimum end-to-end time of a workflow on a fleet; raises like `plan`."""
        return self._workflows.workflow(namespace, workflow).fastest_ms(fleet)

    def budgets_ms(self, namespace: str, workflow: str) -> dict[str, tuple[float, float]]:
        """Return the split of the SLO by dominators and ANL: start and end of each stage, ms."""
        return self._workflows.workflow(namespace, workflow).budgets_ms()

    def plan(self, request: PlanRequest) -> Plan:
        """Return the K best configurations for the current stage, cheapest completion first.

        Raises:
            UnknownDocumentError: the workflow, its stage or a function's profile is not known.
            PlanningError: no configuration is within the ceilings, or the request is invalid.
            NoNodeError: no node is large enough for the stage, or for a later one.
        """
        stage = self.stage(request)
        query = self._query(request)
        remaining_ms = stage.budget_ms(request.slack_ms)
        margin_ratio, waits_ms = _margin_ratio(stage, request), request.later_waits_ms
        budget_ms = None
        if remaining_ms is not None:
            budget_ms = (remaining_ms - waits_ms) / (1.0 + margin_ratio)
        budget = _Budget(budget_ms, margin_ratio, waits_ms)
        limit_ms = with_rounding_ms(budget_ms)
        others = stage.other_stages(request.progress, limit_ms)
        starts_ms = np.array(request.starts_ms, np.float64)
        ranking = _search(stage, others, query, limit_ms, starts_ms)
        if not ranking.admits_any:
            query = _with_smallest_batch(stage, query, request)
            ranking = _search(stage, others, query, limit_ms, starts_ms)
        if ranking.candidates:
            return _plan(ranking, budget)
        # If the SLO is lost, or no configuration serves the rate, nodes with any start time are
        # acceptable.
        fastest, start_ms = self.rules.on_lost_slo == "fastest", max(request.starts_ms)
        others = stage.other_stages(request.progress, math.inf)
        if not ranking.admits_any:
            slow = [
                rank_by_throughput(table, others, query, start_ms, fastest=fastest)
                for table in stage.tables
            ]
            message = _too_slow(slow, request)
            return _plan(_merged(slow, _by_throughput), budget, message)
        soonest_ms = np.array([min(request.starts_ms)], np.float64)
        soonest = _search(stage, others, query, math.inf, soonest_ms, fastest=True)
        end_ms = max(soonest.candidates[0].path_ms, others.siblings_ms)
        if max(margin_ratio, waits_ms) > 0 and end_ms <= with_rounding_ms(remaining_ms):
            return self.plan(_with_less_reserve(request, margin_ratio, remaining_ms, end_ms))
        late = _search(
            stage, others, query, math.inf, np.array([start_ms], np.float64), fastest=fastest
        )
        return _plan(late, _Budget(remaining_ms), self._too_late(remaining_ms, end_ms))

    def margin_ratio(self, request: PlanRequest) -> float:
        """Return the margin that a plan reserves; raises like `plan`."""
        return _margin_ratio(self.stage(request), request)

    def stage(self, request: PlanRequest) -> PreparedStage:
        """Return the prepared current stage; raises like `plan`."""
        prepared = self.prepared(request.namespace, request.workflow, request.stage)
        stage = prepared.stage(request.stage, request.fleet, request.other_cpu_milli)
        if request.configuration is None:
            return stage
        fleet = request.fleet and request.fleet.beside(request.other_cpu_milli)
        return stage.only(request.configuration, fleet)

    def _query(self, request: PlanRequest) -> StageQuery:
        """Validate the request and return its kernel form."""
        if request.k < 1:
            raise PlanningError(f"k is {request.k}; request at least one candidate")
        if request.slack_ms is not None and math.isnan(request.slack_ms):
            raise PlanningError("slack_ms is not a number; leave it out or give milliseconds")
        if not 0 <= request.later_waits_ms < math.inf:
            raise PlanningError(f"later_waits_ms is {request.later_waits_ms}; give a time >= 0")
        for start_ms in request.starts_ms or (math.nan,):
            if not 0 <= start_ms < math.inf:
                text = f"starts_ms is {request.starts_ms}; give at least one time >= 0"
                raise PlanningError(text)
        interval_ms = 0.0
        if request.rate_rps is not None:
            if not (math.isfinite(request.rate_rps) and request.rate_rps > 0):
                raise PlanningError(f"rate is {request.rate_rps}; give requests per second > 0")
            interval_ms = 1000.0 / max(request.rate_rps, RATE_MIN)
        return StageQuery(
            k=request.k,
            batch=_ceiling(request.queued),
            cpu=_ceiling(request.cpu_max),
            gpu_percent=_ceiling(request.gpu_percent_max),
            memory_mib=_ceiling(request.memory_mib_max),
            interval_ms=interval_ms,
            expansions_max=self.rules.expansions_max,
        )

    def _too_late(self, remaining_ms: float | None, end_ms: float) -> str:
        remaining_ms = remaining_ms or 0.0
        time = f"{remaining_ms:,.1f} ms left" if remaining_ms > 0 else "no time is left"
        return (
            f"the SLO is lost: {time}, and the fastest completion takes {end_ms:,.1f} ms; "
            f"the {self.rules.on_lost_slo} come first"
        )


@cache
def prepare() -> None:
    """Run every kernel, once in a process: a first request finds them compiled and in memory.

    Their signatures are explicit, so they are compiled, or loaded from Numba's cache, when their
    modules are imported. This plans two stages of a small workflow that need all of policy exact,
    and one by policy esg.
    """
    gpu = {
        "model": "none",
        "configurations": [
            {"batch": b, "cpu": 1, "gpuPercent": 50, "latencyMs": 1 + b / 2, "memoryMib": 1}
            for b in (1, 2)
        ],
    }
    profile = {"metadata": {"name": "f"}, "spec": {"gpus": [gpu]}}
    # e and f after c, in parallel and then g: one module; a, b, c, d: the shape of an N; d, h: a
    # chain, and a group of policy esg.
    after = {
        "s": "", "a": "s", "b": "s", "c": "ab", "d": "b", "e": "c", "f": "c", "g": "ef", "h": "d",
    }  # fmt: skip
    stages = [{"name": n, "function": "f", "after": list(before)} for n, before in after.items()]
    spec = {"slo": {"latencyMs": 60_000}, "stages": stages}
    workflow = {"metadata": {"name": "w", "namespace": "default"}, "spec": spec}
    catalogue = Catalogue.of(
        [FunctionProfile.model_validate(profile), Workflow.model_validate(workflow)]
    )
    exact, esg = Planner(catalogue), Planner(catalogue, Rules(policy="esg"))
    for planner, stage in ((exact, "s"), (exact, "c"), (esg, "d")):
        planner.plan(PlanRequest(namespace="default", workflow="w", stage=stage))


def _search(  # noqa: PLR0913 - as `search` takes it
    stage: PreparedStage,
    others: OtherStages,
    query: StageQuery,
    limit_ms: float,
    starts_ms: Floats,
    *,
    fastest: bool = False,
) -> Ranking:
    """Find the K cheapest in time, or the K fastest, for each GPU model and place."""
    rankings = [
        search(table, others, query, limit_ms, starts_ms, fastest=fastest) for table in stage.tables
    ]
    return _merged(rankings, _by_time if fastest else _by_cost)


def _with_less_reserve(
    request: PlanRequest, margin_ratio: float, remaining_ms: float | None, end_ms: float
) -> PlanRequest:
    """Return the request with the largest part of its reserve that the fastest completion leaves.

    First less is reserved for waits, then less as a margin. It is one of few parts, below the
    whole, so that configurations other than the fastest fit too.
    """
    remaining_ms = remaining_ms or 0.0
    if request.later_waits_ms > 0:
        part_ratio = _part_ratio(
            (remaining_ms - (1.0 + margin_ratio) * end_ms) / request.later_waits_ms
        )
        return replace(request, later_waits_ms=request.later_waits_ms * part_ratio)
    part_ratio = _part_ratio((remaining_ms / end_ms - 1.0) / margin_ratio)
    return replace(request, margin_ratio=margin_ratio * part_ratio)


def _part_ratio(ratio: float) -> float:
    """Return the largest part of a reserve, below the whole, that is within a ratio."""
    return max(0, min(int(RESERVE_PARTS * ratio), RESERVE_PARTS - 1)) / RESERVE_PARTS


def _margin_ratio(stage: PreparedStage, request: PlanRequest) -> float:
    if request.margin_ratio is not None:
        return request.margin_ratio
    return stage.margin.ratio


def _ceiling(limit: int | None) -> int:
    """Convert to a machine word."""
    return UNLIMITED if limit is None else max(0, min(limit, UNLIMITED))


def _with_smallest_batch(
    stage: PreparedStage, query: StageQuery, request: PlanRequest
) -> StageQuery:
    """Raise the ceiling of the batch to the smallest one within the other ceilings."""
    any_batch = query._replace(batch=UNLIMITED)
    batches = [table.batch[within_ceilings(table, any_batch)] for table in stage.tables]
    smallest = min((int(b.min()) for b in batches if len(b)), default=None)
    if smallest is None:
        raise PlanningError(_nothing_within(stage, query, request))
    return query._replace(batch=max(query.batch, smallest))


def _nothing_within(stage: PreparedStage, query: StageQuery, request: PlanRequest) -> str:
    limits = ", ".join(
        text
        for limit, text in (
            (query.cpu, f"{query.cpu} vCPU"),
            (query.gpu_percent, f"{query.gpu_percent} % GPU"),
            (query.memory_mib, f"{query.memory_mib} MiB GPU memory"),
        )
        if limit != UNLIMITED
    )
    if request.configuration is not None:
        return (
            f"the configuration {request.configuration} of {stage.function} exceeds the pod's "
            f"ceilings ({limits}); raise the requests and limits of its container, or request a "
            "smaller one"
        )
    smallest = min(
        (c for table in stage.tables for c in table.configurations),
        key=lambda c: (c.gpu_percent, c.cpu, c.memory_mib, c.batch),
    )
    smallest_text = "its smallest"
    if request.fleet is not None:
        smallest_text = "the smallest that a node can hold"
    return (
        f"no configuration of {stage.function} within {limits}; {smallest_text} is "
        f"{smallest.cpu} vCPU, {smallest.gpu_percent} % GPU, {smallest.memory_mib} MiB GPU memory "
        f"(batch {smallest.batch})"
    )


def _too_slow(rankings: list[Ranking], request: PlanRequest) -> str:
    first = [c.configuration for ranking in rankings for c in ranking.candidates[:1]]
    maximum = max(1000.0 * c.batch / c.latency_ms for c in first)
    return (
        f"no configuration serves {request.rate_rps:,g} requests per second: the maximum is "
        f"{maximum:,.1f}; those of the highest throughput come first"
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


def _merged(rankings: list[Ranking], order: Order) -> Ranking:
    """Merge rankings, each of which is in order for each place."""
    if len(rankings) == 1 and rankings[0].places == 1:
        return rankings[0]
    return Ranking(
        sorted(
            (candidate for ranking in rankings for candidate in ranking.candidates),
            key=lambda c: (*order(c), *_tie(c)),
        ),
        sum((ranking.effort for ranking in rankings), SearchEffort()),
        max(ranking.epsilon for ranking in rankings),
    )


def _plan(ranking: Ranking, budget: _Budget, message: str = "") -> Plan:
    return Plan(
        not message,
        budget.ms,
        tuple(ranking.candidates),
        ranking.epsilon,
        message,
        budget.margin_ratio,
        budget.later_waits_ms,
        ranking.effort,
    )


def _tie(candidate: Candidate) -> tuple[int, int, int, str]:
    c = candidate.configuration
    return c.gpu_percent, c.cpu, c.batch, candidate.gpu_model
