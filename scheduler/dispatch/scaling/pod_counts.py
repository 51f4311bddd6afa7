"""Number of pods that a function needs: by its rate and objective, and by its backlog."""

from math import ceil, inf

from scheduler.dispatch.pods import PodState
from scheduler.dispatch.scaling.pod_targets import PodTarget
from scheduler.dispatch.scaling.staffing import RUN_WAIT_RATIO, staffed_pods
from scheduler.dispatch.workflow_queues import FunctionState
from scheduler.model.documents import OBJECTIVE

PERIOD_MS = 1_000.0  # between two calls of `Scaler.changes`
GROWTH_SHORTFALL_RATIO = 1.0  # from here on late rows bring pods: the largest reserve is too small


def wanted_pods(
    function: FunctionState,
    target: PodTarget,
    now_ms: float,
    headroom_ratio: float,
    *,
    expected: bool,
) -> int:
    """Return the pods that a function needs; ``expected``: a request comes within a start."""
    busy_pods, cold_ms = target.busy_pods, function.cold_start_ms
    shortfall_ratio = function.shortfall_ratio
    run_wait_ratio = RUN_WAIT_RATIO * met_ratio(function)
    wanted = staffed_count(function, busy_pods, headroom_ratio, run_wait_ratio)
    if target.rows_per_ms * cold_ms < 1.0:
        wanted = 1 if wanted > 1 or expected else 0
    existing = len(function.pool.pods)
    if not existing:
        return max(wanted, min(function.rows, 1))
    if shortfall_ratio <= GROWTH_SHORTFALL_RATIO:
        return wanted
    if _is_behind(function, target, now_ms):
        wanted = max(wanted, existing + 1)
    start_ms = max(cold_ms + target.configuration.latency_ms, PERIOD_MS)
    if rows := _unserved_rows(function, target, now_ms, start_ms):
        # The more, the longer the pods need for what waits, in starts of a pod.
        ratio = min(function.serve_ms(rows) / start_ms, 1.0)
        wanted = max(wanted, existing + ceil(existing * ratio))
    return wanted


def backlog_pods(function: FunctionState, target: PodTarget, now_ms: float) -> float:
    """Return the pods that serve what waits within the time of a start, below the objective."""
    if function.shortfall_ratio <= 0.0:
        return 0.0
    start_ms = max(function.cold_start_ms + target.configuration.latency_ms, PERIOD_MS)
    late_rows = sum(queue.late_rows_since(now_ms - start_ms) for queue in function.queues)
    rows = function.rows - function.late_rows + late_rows
    return rows * target.configuration.latency_ms / target.configuration.batch / start_ms


def met_ratio(function: FunctionState) -> float:
    """Return the part of the allowed wait that is left: none at twice the allowed misses."""
    return min(max(1.0 - function.shortfall_ratio, 0.0), 1.0)


def objective_ratio(function: FunctionState) -> float:
    """Return the strictest objective of a function's workflows."""
    objectives = (queue.workflow.objective_ratio for queue in function.queues)
    return max(objectives, default=OBJECTIVE)


def staffed_count(
    function: FunctionState,
    busy_pods: float,
    headroom_ratio: float,
    run_wait_ratio: float = RUN_WAIT_RATIO,
) -> int:
    """Return the pods for the strictest objective of the function's workflows."""
    # A request may wait too long at any of its stages: each has a part of the allowed misses.
    late_ratios = (
        (1.0 - queue.workflow.objective_ratio) / len(queue.workflow.queues)
        for queue in function.queues
    )
    late_ratio = min(late_ratios, default=1.0 - OBJECTIVE)
    pods = staffed_pods(busy_pods, 1.0 - late_ratio, run_wait_ratio, function.dispersion.ratio)
    further_ratio = headroom_ratio + function.reserve_ratio
    return ceil(busy_pods + (pods - busy_pods) * (1.0 + further_ratio))


def _is_behind(function: FunctionState, target: PodTarget, now_ms: float) -> bool:
    """Return true if rows wait that the pods cannot serve in time, and another pod could."""
    last_jobs = (queue.jobs[-1] for queue in function.queues if queue.jobs)
    last_ms = max((job.deadline_ms for job in last_jobs), default=-inf)
    run_ms = target.configuration.latency_ms
    in_time = now_ms + function.cold_start_ms + run_ms <= last_ms
    return in_time and now_ms + function.wait_ms(now_ms) + run_ms > last_ms


def _unserved_rows(
    function: FunctionState, target: PodTarget, now_ms: float, start_ms: float
) -> int:
    """Return the rows that wait, where some cannot be in time, and no pod can take them or starts.

    Late rows that have waited for longer than a start do not count. They came when there were too
    few pods, and wait for spare ones now: demand for more would last until the last one is served.
    """
    pool = function.pool
    if any(pod.state is PodState.STARTING for pod in pool.usable()):
        return 0
    due_rows = function.rows - function.late_rows
    late_rows = sum(queue.late_rows_since(now_ms - start_ms) for queue in function.queues)
    if late_rows:
        return due_rows + late_rows  # although a pod may be free: others are expected to need it
    limit_ms = now_ms + target.configuration.latency_ms
    queues = () if pool.open else function.queues
    is_short = any(queue.jobs and queue.deadline_ms < limit_ms for queue in queues)
    return due_rows if is_short else 0
