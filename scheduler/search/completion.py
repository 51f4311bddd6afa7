"""From a plan to one configuration for every stage left: what the best completion consists of.

Answers carry the time and the cost of a completion alone. Here a frontier's point is taken apart
again, by the way in which the frontier was joined; and A* says which options it chose.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from scheduler.model.plan import Candidate, Completion, StageRun
from scheduler.search.astar_run import run_astar
from scheduler.search.dag import Composition, decompose, members
from scheduler.search.downstream import Tail, TailBuilder
from scheduler.search.frontier import Frontier
from scheduler.search.frontier_kernels import ROUNDING
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.tables import FunctionTable
from scheduler.search.workflows import PreparedWorkflow

Point = tuple[float, float]  # of a stage's frontier: ms, dollars per request


def complete(planner: Planner, request: PlanRequest) -> Completion:
    """The best candidate for the stage at hand, and what every stage after it runs under with it.

    Under policy ``esg`` the groups ahead are planned one after the other, each with the time that
    those before it leave. Raises what `Planner.plan` raises.
    """
    if request.workflow is None:
        best = planner.plan(request).candidates[0]
        return Completion((_run(request.stage, request.stage, best, 0.0, best.path_cost_dollars),))
    workflow = planner.workflow(request.namespace, request.workflow)
    return Completion(tuple(_runs(planner, workflow, request)))


def _runs(planner: Planner, workflow: PreparedWorkflow, request: PlanRequest) -> Iterator[StageRun]:
    """The stages left in topological order."""
    slack_ms = planner.stage(request).slack_ms(request.slack_ms)
    points: dict[int, Point] = {}
    ends_ms: dict[int, float] = {}
    for v in workflow.left_from(workflow.number(request.stage)):
        start_ms = max((ends_ms[p] for p in workflow.before(v) if p in ends_ms), default=0.0)
        name, tables = workflow.name(v), workflow.tables(v, request.gpu_models)
        if v not in points:
            asked = replace(request, slack_ms=slack_ms)
            if ends_ms:
                over = 1.0 + request.margin_ratio  # what was planned before may take so much more
                asked = _later(request, name, slack_ms - over * start_ms)
            best = planner.plan(asked).candidates[0]
            points |= _ahead(planner, workflow, asked, best)
            cost = _cost(tables, best)
        else:
            best, cost = _candidate(tables, points[v]), points[v][1]
        run = _run(name, workflow.function(v), best, start_ms, cost)
        ends_ms[v] = run.end_ms
        yield run


def _later(request: PlanRequest, stage: str, slack_ms: float) -> PlanRequest:
    """Of a later stage: what bounds the stage at hand does not bound it."""
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
    """What the stages planned together with a stage take in its best completion."""
    stage = planner.stage(request)
    tail_ms = best.path_ms - best.start_ms - best.stage_ms + best.path_ms * ROUNDING
    return taken_apart(
        workflow.builder(request.gpu_models),
        stage.tail,
        stage.horizon.ahead if stage.horizon else 0,
        tail_ms,
        planner.rules.expansions_max,
    )


def _candidate(tables: tuple[FunctionTable, ...], point: Point) -> Candidate:
    """A later stage as its point on the frontier has it."""
    for table in tables:
        same = (table.time_ms == point[0]) & (table.cost == point[1])
        if same.any():
            index = int(np.flatnonzero(same)[np.argmin(table.tie[same])])
            configuration = table.configurations[index]
            return Candidate(configuration, table.model, point[0], point[0], point[1])
    raise AssertionError("a point of a stage's frontier is one of its configurations")


def _cost(tables: tuple[FunctionTable, ...], candidate: Candidate) -> float:
    table = next(table for table in tables if table.model == candidate.gpu_model)
    return float(table.cost[table.configurations.index(candidate.configuration)])


def _run(stage: str, function: str, candidate: Candidate, start_ms: float, cost: float) -> StageRun:
    return StageRun(
        stage=stage,
        function=function,
        configuration=candidate.configuration,
        gpu_model=candidate.gpu_model,
        start_ms=start_ms + candidate.start_ms,
        end_ms=start_ms + candidate.start_ms + candidate.stage_ms,
        cost_dollars=cost,
    )


def taken_apart(
    builder: TailBuilder, tail: Tail, ahead: int, limit_ms: float, expansions_max: int
) -> dict[int, Point]:
    """What each stage of a tail takes in its cheapest completion within a time.

    Args:
        builder: that made the tail.
        tail: of the stages in ``ahead``.
        ahead: a set of stages as bits.
        limit_ms: for the whole tail; not less than its fastest completion takes.
        expansions_max: states that A* may expand.
    """
    if ahead == 0:
        return {}
    if tail.graph is None:
        return _spread(builder, ahead, limit_ms)
    within_ms = limit_ms * (1.0 + ROUNDING)
    if tail.swept is not None:
        options = tail.swept.options[_last(tail.swept.frontier, within_ms)]
    else:
        start = np.zeros(1)
        additive = tail.additive
        run = run_astar(tail.graph, start, start, within_ms, 1, expansions_max, additive=additive)
        options = run.options(0)[1:]
    points: dict[int, Point] = {}
    for part, option in zip(tail.parts, options.tolist(), strict=True):
        points |= _spread(builder, part, float(builder.known(part).time_ms[option]))
    return points


def _last(frontier: Frontier, within_ms: float) -> int:
    """The cheapest point within a time; the fastest where none is."""
    return max(int(np.searchsorted(frontier.time_ms, within_ms, side="right")) - 1, 0)


def _spread(builder: TailBuilder, mask: int, limit_ms: float) -> dict[int, Point]:
    """The cheapest way to run a set of stages within a time, stage by stage."""
    composition, parts = decompose(builder.dag, mask)
    if composition is Composition.SINGLE:
        frontier = builder.known(mask)
        last = _last(frontier, limit_ms * (1.0 + ROUNDING))
        return {next(members(mask)): (float(frontier.time_ms[last]), float(frontier.cost[last]))}
    if composition is Composition.PARALLEL:
        return {v: point for part in parts for v, point in _spread(builder, part, limit_ms).items()}
    rest = mask & ~parts[0]
    first, then = builder.known(parts[0]), builder.known(rest)
    left_ms = limit_ms * (1.0 + ROUNDING) - first.time_ms
    at = np.searchsorted(then.time_ms, left_ms, side="right") - 1
    cost = np.where(at >= 0, first.cost + then.cost[at], np.inf)
    best = int(np.argmin(cost))
    first_ms = float(first.time_ms[best])
    return _spread(builder, parts[0], first_ms) | _spread(builder, rest, limit_ms - first_ms)
