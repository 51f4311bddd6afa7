"""Completion of a plan: one configuration for every remaining stage.

A plan has only the total time and cost of a completion. This module splits a point of a frontier
into points of its parts, in the way in which the frontier was joined; A* reports its options.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from scheduler.model.plan import Candidate, Completion, StageRun
from scheduler.search.astar_run import run_astar
from scheduler.search.dag import Composition, decompose, members
from scheduler.search.downstream import Downstream, DownstreamBuilder
from scheduler.search.frontier import Frontier
from scheduler.search.frontier_kernels import ROUNDING
from scheduler.search.graph import Query
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.tables import FunctionTable
from scheduler.search.workflows import PreparedWorkflow

Point = tuple[float, float]  # of a stage's frontier: ms, dollars per request


def complete(planner: Planner, request: PlanRequest) -> Completion:
    """Return the best candidate for the current stage and the configurations of all later stages.

    With policy ``esg`` the groups ahead are planned one after the other, each with the time that
    remains after those before it. Raises like `Planner.plan`.
    """
    if request.workflow is None:
        best = planner.plan(request).candidates[0]
        return Completion((_run(request.stage, request.stage, best, 0.0, best.path_cost_dollars),))
    workflow = planner.workflow(request.namespace, request.workflow)
    return Completion(tuple(_runs(planner, workflow, request)))


def _runs(planner: Planner, workflow: PreparedWorkflow, request: PlanRequest) -> Iterator[StageRun]:
    """Iterate over the remaining stages in topological order."""
    slack_ms = planner.stage(request).slack_ms(request.slack_ms)
    points: dict[int, Point] = {}
    ends_ms: dict[int, float] = {}
    for v in workflow.from_stage(workflow.number(request.stage)):
        start_ms = max((ends_ms[p] for p in workflow.before(v) if p in ends_ms), default=0.0)
        name, tables = workflow.name(v), workflow.tables(v, request.gpu_models)
        if v not in points:
            stage_request = replace(request, slack_ms=slack_ms)
            if ends_ms:
                stretch = 1.0 + request.margin_ratio  # earlier stages may take this much longer
                stage_request = _later(request, name, slack_ms - stretch * start_ms)
            best = planner.plan(stage_request).candidates[0]
            points |= _ahead(planner, workflow, stage_request, best)
            cost = _cost_dollars(tables, best)
        else:
            best, cost = _candidate(tables, points[v]), points[v][1]
        run = _run(name, workflow.function(v), best, start_ms, cost)
        ends_ms[v] = run.end_ms
        yield run


def _later(request: PlanRequest, stage: str, slack_ms: float) -> PlanRequest:
    """Return the request for a later stage, without the limits of the current one."""
    return PlanRequest(
        namespace=request.namespace,
        workflow=request.workflow,
        stage=stage,
        slack_ms=slack_ms,
        gpu_models=request.gpu_models,
        margin_ratio=request.margin_ratio,
        k=1,
    )


def _ahead(
    planner: Planner, workflow: PreparedWorkflow, request: PlanRequest, best: Candidate
) -> dict[int, Point]:
    """Return the points of the stages ahead in the best completion of a stage."""
    stage = planner.stage(request)
    limit_ms = best.path_ms - best.start_ms - best.stage_ms + best.path_ms * ROUNDING
    return stage_points(
        workflow.builder(request.gpu_models),
        stage.downstream,
        stage.window.ahead if stage.window else 0,
        limit_ms,
        planner.rules.expansions_max,
    )


def _candidate(tables: tuple[FunctionTable, ...], point: Point) -> Candidate:
    """Return the configuration of a later stage at a point of its frontier."""
    for table in tables:
        same = (table.time_ms == point[0]) & (table.cost == point[1])
        if same.any():
            index = int(np.flatnonzero(same)[np.argmin(table.tie[same])])
            configuration = table.configurations[index]
            return Candidate(configuration, table.model, point[0], point[0], point[1])
    raise AssertionError("a point of a stage's frontier is one of its configurations")


def _cost_dollars(tables: tuple[FunctionTable, ...], candidate: Candidate) -> float:
    table = next(table for table in tables if table.model == candidate.gpu_model)
    return float(table.cost[table.configurations.index(candidate.configuration)])


def _run(
    stage: str, function: str, candidate: Candidate, start_ms: float, cost_dollars: float
) -> StageRun:
    return StageRun(
        stage=stage,
        function=function,
        configuration=candidate.configuration,
        gpu_model=candidate.gpu_model,
        start_ms=start_ms + candidate.start_ms,
        end_ms=start_ms + candidate.start_ms + candidate.stage_ms,
        cost_dollars=cost_dollars,
    )


def stage_points(
    builder: DownstreamBuilder,
    downstream: Downstream,
    ahead: int,
    limit_ms: float,
    expansions_max: int,
) -> dict[int, Point]:
    """Return the point of each stage ahead in their cheapest completion within a time limit.

    Args:
        builder: that built ``downstream``.
        downstream: of the stages in ``ahead``.
        ahead: a set of stages as bits.
        limit_ms: for all these stages; at least the time of their fastest completion.
        expansions_max: states that A* may expand.
    """
    if ahead == 0:
        return {}
    if downstream.graph is None:
        return _split(builder, ahead, limit_ms)
    within_ms = limit_ms * (1.0 + ROUNDING)
    if downstream.refined is not None:
        options = downstream.refined.options[_last(downstream.refined.frontier, within_ms)]
    else:
        start = np.zeros(1)
        query = Query(start, start, within_ms, expansions_max, downstream.additive)
        options = run_astar(downstream.graph, query, 1).options(0)[1:]
    points: dict[int, Point] = {}
    for part, option in zip(downstream.parts, options.tolist(), strict=True):
        points |= _split(builder, part, float(builder.frontier(part).time_ms[option]))
    return points


def _last(frontier: Frontier, within_ms: float) -> int:
    """Return the cheapest point within a time, or the fastest point if none is."""
    return max(int(np.searchsorted(frontier.time_ms, within_ms, side="right")) - 1, 0)


def _split(builder: DownstreamBuilder, mask: int, limit_ms: float) -> dict[int, Point]:
    """Split a time limit among a set of stages at minimum cost."""
    composition, parts = decompose(builder.dag, mask)
    if composition is Composition.SINGLE:
        frontier = builder.frontier(mask)
        last = _last(frontier, limit_ms * (1.0 + ROUNDING))
        return {next(members(mask)): (float(frontier.time_ms[last]), float(frontier.cost[last]))}
    if composition is Composition.PARALLEL:
        return {v: point for part in parts for v, point in _split(builder, part, limit_ms).items()}
    rest = mask & ~parts[0]
    first, second = builder.frontier(parts[0]), builder.frontier(rest)
    remaining_ms = limit_ms * (1.0 + ROUNDING) - first.time_ms
    at = np.searchsorted(second.time_ms, remaining_ms, side="right") - 1
    cost = np.where(at >= 0, first.cost + second.cost[at], np.inf)
    best = int(np.argmin(cost))
    first_ms = float(first.time_ms[best])
    return _split(builder, parts[0], first_ms) | _split(builder, rest, limit_ms - first_ms)
