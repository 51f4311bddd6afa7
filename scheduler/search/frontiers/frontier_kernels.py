# ruff: noqa: FBT001 - kernels take plain arrays, and no keywords in compiled code
"""Kernel that ranks the configurations of a stage by the frontier of the stages after it.

A frontier is two parallel arrays: ``time_ms`` strictly rising, ``cost`` (dollars per request)
strictly falling; every point is a real completion.

The kernels share one module because Numba's cache does not notice an edit of a callee in another
module.
"""

from numba import b1, f8, i8, njit, types

from scheduler.search.frontiers.array_types import records_type, type_of
from scheduler.search.frontiers.arrays import Floats, Records
from scheduler.search.frontiers.frontier_arrays import RANKED_ROW, ROUNDING, STAGE_ROW, StageQuery

_F = f8[::1]

_STAGE = records_type(STAGE_ROW)
_RANKED = records_type(RANKED_ROW)
_QUERY = type_of(StageQuery)
_COUNTS = types.UniTuple(i8, 4)  # type: ignore[no-untyped-call]


@njit(i8(_F, f8, f8), nogil=True, cache=True)
def _cheapest_within(downstream_ms: Floats, stage_ms: float, budget_ms: float) -> int:
    """Return the last point that fits the budget after ``stage_ms``; the first one must fit."""
    low = 0
    high = downstream_ms.shape[0]
    while high - low > 1:
        middle = (low + high) // 2
        if stage_ms + downstream_ms[middle] <= budget_ms:
            low = middle
        else:
            high = middle
    return low


@njit(types.void(_STAGE, _RANKED, i8, i8, f8, f8, f8, b1), nogil=True, cache=True)
def _insert(
    stage: Records,
    ranked: Records,
    count: int,
    row: int,
    stage_ms: float,
    path_ms: float,
    path_dollars: float,
    fastest: bool,
) -> None:
    """Insert a row into the K first by (cost, time, tie), or by (time, cost, tie)."""
    k = ranked.shape[0]
    first, second = (path_ms, path_dollars) if fastest else (path_dollars, path_ms)
    at = count
    while at > 0:
        before = ranked[at - 1]
        before_first = before["path_ms"] if fastest else before["path_cost"]
        if before_first < first:
            break
        if before_first == first:
            before_second = before["path_cost"] if fastest else before["path_ms"]
            if before_second < second:
                break
            if before_second == second and stage[before["row"]]["tie"] < stage[row]["tie"]:
                break
        if at < k:
            ranked[at] = before
        at -= 1
    if at < k:
        ranked[at]["row"] = row
        ranked[at]["stage_ms"] = stage_ms
        ranked[at]["path_ms"] = path_ms
        ranked[at]["path_cost"] = path_dollars


@njit(
    _COUNTS(_STAGE, _QUERY, f8, _F, _F, f8, b1, _RANKED),
    nogil=True,
    cache=True,
)
def _rank_at_place(
    stage: Records,
    query: StageQuery,
    start_ms: float,
    downstream_ms: Floats,
    downstream_cost: Floats,
    budget_ms: float,
    fastest: bool,
    ranked: Records,
) -> tuple[int, int, int, int]:
    """Rank as `rank_by_frontier` does, for one place."""
    k = ranked.shape[0]
    interval_ms = query.interval_ms
    remaining_ms = budget_ms - start_ms
    count, expanded, cut_by_time, cut_by_cost = 0, 0, 0, 0
    for i in range(stage.shape[0]):
        row = stage[i]
        if (
            row["batch"] > query.batch
            or row["cpu"] > query.cpu
            or row["gpu_percent"] > query.gpu_percent
            or row["memory_mib"] > query.memory_mib
        ):
            continue
        served_ms = row["batch"] * interval_ms * (1.0 + ROUNDING)
        if interval_ms > 0.0 and served_ms < row["latency_ms"]:
            continue
        stage_ms = row["time_ms"] + (row["batch"] - 1) * interval_ms
        point = 0
        if not fastest:
            if count == k and row["cost"] + downstream_cost[-1] > ranked[k - 1]["path_cost"]:
                cut_by_cost += stage.shape[0] - i
                break
            if stage_ms + downstream_ms[0] > remaining_ms:
                cut_by_time += 1
                continue
            point = _cheapest_within(downstream_ms, stage_ms, remaining_ms)
        expanded += 1
        path_ms = start_ms + (stage_ms + downstream_ms[point])
        path_cost = row["cost"] + downstream_cost[point]
        last = ranked[k - 1]
        if count == k and (path_ms > last["path_ms"] if fastest else path_cost > last["path_cost"]):
            continue
        _insert(stage, ranked, count, i, stage_ms, path_ms, path_cost, fastest)
        count = min(count + 1, k)
    return count, expanded, cut_by_time, cut_by_cost


@njit(
    _COUNTS(_STAGE, _QUERY, _F, _F, _F, f8, b1, _RANKED),
    nogil=True,
    cache=True,
)
def rank_by_frontier(
    stage: Records,
    query: StageQuery,
    starts_ms: Floats,
    downstream_ms: Floats,
    downstream_cost: Floats,
    budget_ms: float,
    fastest: bool,
    ranked: Records,
) -> tuple[int, int, int, int]:
    """Rank the K best configurations of the current stage for each place, with their completions.

    The current stage precedes all remaining stages, so the best completion through configuration i
    is the cheapest point of the downstream frontier within ``budget - time[i]``. This is A* with an
    exact h, which therefore never leaves its first depth. A configuration is cut by time if even
    the fastest downstream completion is too late. The list is sorted by cost: at the first
    configuration that even with the cheapest downstream completion is not among the K best, all
    following ones are cut by cost.

    - stage: (n,) of STAGE_ROW, by rising cost.
    - starts_ms: (places,) time until the stage starts at a place.
    - downstream_ms, downstream_cost: (m,) frontier of all stages after the current one.
    - budget_ms: time for the current stage and those after it; inf without a limit.
    - fastest: rank by the fastest completion instead, without a budget.
    - ranked: (places * K,) of RANKED_ROW; set to the results, place after place.

    Returns the number of results, and of configurations expanded, cut by time, and cut by cost.
    """
    first, expanded, cut_by_time, cut_by_cost = 0, 0, 0, 0
    for start_ms in starts_ms:
        at_place = ranked[first : first + query.k]
        counts = _rank_at_place(
            stage, query, start_ms, downstream_ms, downstream_cost, budget_ms, fastest, at_place
        )
        at_place[: counts[0]]["start_ms"][:] = start_ms
        first += counts[0]
        expanded += counts[1]
        cut_by_time += counts[2]
        cut_by_cost += counts[3]
    return first, expanded, cut_by_time, cut_by_cost
