"""Completion of an instance: one configuration for every stage that has not begun.

The stages are planned one after the other, each when its predecessors have ended, by profiled times
and with the progress of the others: what the service does when every run takes as long as its
profile states.
"""

import heapq
from dataclasses import replace

from scheduler.model.plan import Candidate, Completion, StageRun
from scheduler.model.progress import InstanceProgress
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.ranking import with_rounding_ms
from scheduler.search.workflows import PreparedWorkflow


def complete(planner: Planner, request: PlanRequest) -> Completion:
    """Return the best candidate for the current stage, and those of all other stages after it.

    Predecessors of the current stage have ended, and no other stage has begun. Raises like
    `Planner.plan`.
    """
    plan = planner.plan(request)
    if request.workflow is None:
        best = plan.candidates[0]
        run = _run(request.stage, request.stage, best, 0.0, best.path_cost_dollars)
        return Completion((run,), plan.epsilon)
    workflow = planner.workflow(request.namespace, request.workflow)
    request = replace(request, margin_ratio=plan.margin_ratio, later_waits_ms=plan.later_waits_ms)
    current = workflow.number(request.stage)
    runs = _runs(planner, workflow, current, request)
    order = sorted(runs, key=lambda v: (v != current, v))
    return Completion(tuple(runs[v] for v in order), plan.epsilon)


def _runs(
    planner: Planner, workflow: PreparedWorkflow, current: int, request: PlanRequest
) -> dict[int, StageRun]:
    """Plan the unfinished stages in the order in which they can begin."""
    slack_ms = with_rounding_ms(planner.stage(request).slack_ms(request.slack_ms))
    unfinished = set(workflow.unfinished(current))
    before = {v: unfinished.intersection(workflow.before(v)) for v in unfinished}
    runs: dict[int, StageRun] = {}
    ready = [(0.0, v != current, v) for v in unfinished if not before[v]]
    heapq.heapify(ready)
    while ready:
        now_ms, _, v = heapq.heappop(ready)
        name = workflow.name(v)
        stage_request = request if v == current else _later(request, name)
        stretch = 1.0 + (request.margin_ratio or 0.0)  # earlier stages may take this much longer
        stage_request = replace(
            stage_request,
            slack_ms=slack_ms - stretch * now_ms,
            progress=_progress(runs, now_ms),
        )
        best = planner.plan(stage_request).candidates[0]
        cost = _cost_dollars(workflow, v, request, best)
        runs[v] = _run(name, workflow.function(v), best, now_ms, cost)
        for w in unfinished - runs.keys():
            if v in before[w] and before[w] <= runs.keys():
                heapq.heappush(ready, (max(runs[p].end_ms for p in before[w]), True, w))
    return runs


def _later(request: PlanRequest, stage: str) -> PlanRequest:
    """Return the request for another stage, without the limits of the current one."""
    return PlanRequest(
        namespace=request.namespace,
        workflow=request.workflow,
        stage=stage,
        fleet=request.fleet,
        margin_ratio=request.margin_ratio,
        k=1,
    )


def _progress(runs: dict[int, StageRun], now_ms: float) -> InstanceProgress:
    """Return the progress at a time."""
    return InstanceProgress(
        frozenset(run.stage for run in runs.values() if run.end_ms <= now_ms),
        {run.stage: run.end_ms - now_ms for run in runs.values() if run.end_ms > now_ms},
    )


def _cost_dollars(
    workflow: PreparedWorkflow, v: int, request: PlanRequest, candidate: Candidate
) -> float:
    tables = workflow.tables(v, request.fleet)
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
