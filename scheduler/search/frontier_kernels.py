# ruff: noqa: FBT001 - kernels take plain arrays, and no keywords in compiled code
"""Kernel that ranks the configurations of a stage by the frontier of the stages after it.

A frontier is two parallel arrays: ``time_ms`` strictly rising, ``cost`` (dollars per request)
strictly falling; every point is a real completion.

The kernels share one module because Numba's cache does not notice an edit of a callee in another
module.
"""

from typing import NamedTuple

from numba import b1, f8, i8, njit, void

from scheduler.search.arrays import Floats, Integers, type_of

UNLIMITED = 2**62  # a ceiling, as a machine word
ROUNDING = 1e-12  # relative; the order of summation changes a sum of 32 doubles by under 1e-14

_F = f8[::1]
_I = i8[::1]


class StageArrays(NamedTuple):
    """The n configurations of the current stage, by rising cost.

    Plans use ``time_ms``; ``latency_ms`` is the mean time, which limits the throughput. ``tie`` is
    the order of equal configurations.
    """

    time_ms: Floats
    latency_ms: Floats
    cost: Floats
    batch: Integers
    cpu: Integers
    gpu_percent: Integers
    memory_mib: Integers
    tie: Integers


class StageQuery(NamedTuple):
    """Number of candidates, ceilings of the current stage, and the rate that it must serve.

    ``interval_ms`` is 0; or the time between arrivals, for a pod that waits for a full batch and
    must serve them all.
    """

    k: int
    batch: int = UNLIMITED
    cpu: int = UNLIMITED
    gpu_percent: int = UNLIMITED
    memory_mib: int = UNLIMITED
    interval_ms: float = 0.0
    expansions_max: int = 0  # states that one A* search may expand


_STAGE = type_of(StageArrays)
_QUERY = type_of(StageQuery)


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


@njit(void(_I, _F, _F, i8, i8, f8, f8, _I), nogil=True, cache=True)
def _insert(
    out_index: Integers,
    out_primary: Floats,
    out_secondary: Floats,
    count: int,
    index: int,
    primary_score: float,
    secondary_score: float,
    tie: Integers,
) -> None:
    """Insert an entry into the list of the K lowest by (primary, secondary, tie)."""
    k = out_index.shape[0]
    at = count
    while at > 0:
        before = at - 1
        if out_primary[before] < primary_score:
            break
        if out_primary[before] == primary_score:
            if out_secondary[before] < secondary_score:
                break
            if out_secondary[before] == secondary_score and tie[out_index[before]] < tie[index]:
                break
        if at < k:
            out_index[at] = out_index[before]
            out_primary[at] = out_primary[before]
            out_secondary[at] = out_secondary[before]
        at = before
    if at < k:
        out_index[at] = index
        out_primary[at] = primary_score
        out_secondary[at] = secondary_score


@njit(
    i8(_STAGE, _QUERY, f8, _F, _F, f8, b1, _I, _F, _F, _I),
    nogil=True,
    cache=True,
)
def _rank_at_place(
    stage: StageArrays,
    query: StageQuery,
    start_ms: float,
    downstream_ms: Floats,
    downstream_cost: Floats,
    budget_ms: float,
    fastest: bool,
    out_index: Integers,
    out_ms: Floats,
    out_cost: Floats,
    counts: Integers,
) -> int:
    """Rank as `rank_by_frontier` does for one place; add to ``counts``, return the results."""
    k = out_index.shape[0]
    interval_ms = query.interval_ms
    left_ms = budget_ms - start_ms
    count = 0
    for i in range(stage.cost.shape[0]):
        if (
            stage.batch[i] > query.batch
            or stage.cpu[i] > query.cpu
            or stage.gpu_percent[i] > query.gpu_percent
            or stage.memory_mib[i] > query.memory_mib
        ):
            continue
        served_ms = stage.batch[i] * interval_ms * (1.0 + ROUNDING)
        if interval_ms > 0.0 and served_ms < stage.latency_ms[i]:
            continue
        stage_ms = stage.time_ms[i] + (stage.batch[i] - 1) * interval_ms
        if fastest:
            counts[0] += 1
            path_ms = start_ms + (stage_ms + downstream_ms[0])
            if count < k or path_ms <= out_ms[k - 1]:
                path_cost = stage.cost[i] + downstream_cost[0]
                _insert(out_index, out_ms, out_cost, count, i, path_ms, path_cost, stage.tie)
                count = min(count + 1, k)
            continue
        if count == k and stage.cost[i] + downstream_cost[-1] > out_cost[k - 1]:
            counts[2] += stage.cost.shape[0] - i
            break
        if stage_ms + downstream_ms[0] > left_ms:
            counts[1] += 1
            continue
        counts[0] += 1
        point = _cheapest_within(downstream_ms, stage_ms, left_ms)
        path_cost = stage.cost[i] + downstream_cost[point]
        if count < k or path_cost <= out_cost[k - 1]:
            path_ms = start_ms + (stage_ms + downstream_ms[point])
            _insert(out_index, out_cost, out_ms, count, i, path_cost, path_ms, stage.tie)
            count = min(count + 1, k)
    return count


@njit(
    i8(_STAGE, _QUERY, _F, _F, _F, f8, b1, _I, _F, _F, _F, _I),
    nogil=True,
    cache=True,
)
def rank_by_frontier(
    stage: StageArrays,
    query: StageQuery,
    starts_ms: Floats,
    downstream_ms: Floats,
    downstream_cost: Floats,
    budget_ms: float,
    fastest: bool,
    out_index: Integers,
    out_ms: Floats,
    out_cost: Floats,
    out_start_ms: Floats,
    counts: Integers,
) -> int:
    """Rank the K best configurations of the current stage for each place, with their completions.

    The current stage precedes all remaining stages, so the best completion through configuration i
    is the cheapest point of the downstream frontier within ``budget - time[i]``. This is A* with an
    exact h, which therefore never leaves its first depth. A configuration is cut by time if even
    the fastest downstream completion is too late. The list is sorted by cost: at the first
    configuration that even with the cheapest downstream completion is not among the K best, all
    following ones are cut by cost.

    - starts_ms: (places,) time until the stage starts at a place.
    - downstream_ms, downstream_cost: (m,) frontier of all stages after the current one.
    - budget_ms: time for the current stage and those after it; inf without a limit.
    - fastest: rank by the fastest completion instead, without a budget.
    - out_index, out_ms, out_cost, out_start_ms: (places * K,) the results, place after place:
      configuration, time and cost of the path, and the start that is part of the time.
    - counts: (3,) set to: expanded, cut by time, cut by cost.

    Returns the number of results.
    """
    counts[:] = 0
    first = 0
    for start_ms in starts_ms:
        end = first + query.k
        count = _rank_at_place(
            stage, query, start_ms, downstream_ms, downstream_cost, budget_ms, fastest,
            out_index[first:end], out_ms[first:end], out_cost[first:end], counts,
        )  # fmt: skip
        out_start_ms[first : first + count] = start_ms
        first += count
    return first
