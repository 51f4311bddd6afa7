"""The kernels of placement: the candidate that fits, its GPU on each node, and the best node.

``tests/placement/naive.py`` holds their slow twins. Each module of kernels tests for itself if a
candidate fits on a GPU: Numba's cache would not see an edit of a kernel that is called from another
module.

Arguments that several kernels share:

* ``node_rows`` (n,): rows of the fleet, -1 for unknown nodes.
* ``node_start_ms`` (n,): start time on the node before any container can run.
* ``gpu_ready_ms`` (gpus,): when a container on each GPU is ready, inf where there is none. A start
  on a GPU adds the time from ``now_ms`` until then, ``cold_ms`` at most, to that of its node.
"""

import numpy as np
from numba import b1, f8, i4, i8, njit, void

from scheduler.placement.array_types import (
    CANDIDATES_TYPE,
    FLEET_TYPE,
    FLOAT64_ARRAY,
    INT32_ARRAY,
    INT64_ARRAY,
)
from scheduler.placement.arrays import (
    CandidateArrays,
    FleetArrays,
    Float64Array,
    Int32Array,
    Int64Array,
)
from scheduler.placement.scores import (
    DEFRAG,
    FIT_MAX,
    HOME,
    INDEX_BITS,
    PREDECESSOR,
    SPREAD,
    WARM,
)


@njit(
    i8(
        FLEET_TYPE, i8, f8, f8, i4, i4, i8, i8, FLOAT64_ARRAY, f8, f8,
    ),
    nogil=True,
    cache=True,
    inline="always",
)  # fmt: skip
def choose_gpu(
    fleet: FleetArrays,
    node_row: int,
    node_start_ms: float,
    start_max_ms: float,
    model: int,
    gpu_percent: int,
    memory_mib: int,
    policy: int,
    gpu_ready_ms: Float64Array,
    now_ms: float,
    cold_ms: float,
) -> int:
    """Choose the GPU row for one candidate on a node with enough vCPUs; -1 where none fits.

    The shortest start comes first. Then PACK takes the GPU with the least free share, then the
    least free memory; SPREAD takes the most of both; then the lowest row.
    """
    best = -1
    best_start_ms = 0.0
    first = fleet.node_first_gpu[node_row]
    for gpu in range(first, first + fleet.node_gpus[node_row]):
        if (
            fleet.gpu_model[gpu] != model
            or fleet.gpu_free_percent[gpu] < gpu_percent
            or fleet.gpu_free_memory_mib[gpu] < memory_mib
            or fleet.gpu_free_clients[gpu] < 1
        ):
            continue
        start_ms = min(max(gpu_ready_ms[gpu] - now_ms, 0.0), cold_ms)
        if start_ms + node_start_ms > start_max_ms:
            continue
        if best >= 0:
            share = fleet.gpu_free_percent[gpu] - fleet.gpu_free_percent[best]
            memory = fleet.gpu_free_memory_mib[gpu] - fleet.gpu_free_memory_mib[best]
            if policy == SPREAD:
                share, memory = -share, -memory
            if start_ms > best_start_ms or (
                start_ms == best_start_ms and (share > 0 or (share == 0 and memory >= 0))
            ):
                continue
        best = gpu
        best_start_ms = start_ms
    return best


@njit(
    i8(
        FLEET_TYPE, CANDIDATES_TYPE, INT64_ARRAY, FLOAT64_ARRAY, i8, FLOAT64_ARRAY, f8, f8,
        INT32_ARRAY, INT64_ARRAY,
    ),
    nogil=True,
    cache=True,
)  # fmt: skip
def first_feasible(
    fleet: FleetArrays,
    candidates: CandidateArrays,
    node_rows: Int64Array,
    node_start_ms: Float64Array,
    policy: int,
    gpu_ready_ms: Float64Array,
    now_ms: float,
    cold_ms: float,
    free_max_percent: Int32Array,
    gpu_rows: Int64Array,
) -> int:
    """Return the first candidate that fits on any of the nodes, or -1.

    A candidate fits only where a start takes no longer than it allows. ``gpu_rows`` (n,) is
    written: its GPU row, or -1 where it does not fit. ``free_max_percent`` (n,) is scratch.
    """
    # On a full cluster most candidates need more than is free on any GPU, and then on most nodes.
    fleet_max_percent = np.int32(-1)
    for i in range(node_rows.shape[0]):
        gpu_rows[i] = -1
        node_max_percent = np.int32(-1)
        row = node_rows[i]
        if row >= 0:
            first = fleet.node_first_gpu[row]
            for gpu in range(first, first + fleet.node_gpus[row]):
                node_max_percent = max(node_max_percent, fleet.gpu_free_percent[gpu])
        free_max_percent[i] = node_max_percent
        fleet_max_percent = max(fleet_max_percent, node_max_percent)
    for candidate in range(candidates.model.shape[0]):
        gpu_percent = candidates.gpu_percent[candidate]
        if gpu_percent > fleet_max_percent:
            continue
        fits = False
        for i in range(node_rows.shape[0]):
            gpu_rows[i] = -1
            if (
                free_max_percent[i] < gpu_percent
                or fleet.node_free_cpu_milli[node_rows[i]] < candidates.cpu_milli[candidate]
            ):
                continue
            gpu_rows[i] = choose_gpu(
                fleet, node_rows[i], node_start_ms[i], candidates.start_ms[candidate],
                candidates.model[candidate], gpu_percent, candidates.memory_mib[candidate],
                policy, gpu_ready_ms, now_ms, cold_ms,
            )  # fmt: skip
            fits = fits or gpu_rows[i] >= 0
        if fits:
            return candidate
    return -1


@njit(i8(i8, i8, b1, INT64_ARRAY), nogil=True, cache=True, inline="always")
def affinity_score(row: int, home: int, warm: bool, predecessors: Int64Array) -> int:  # noqa: FBT001
    """Return the score of a node that the pod prefers; 0 for any other."""
    for predecessor in predecessors:
        if predecessor == row:
            return PREDECESSOR
    if warm:
        return WARM
    return HOME if row == home else 0


@njit(i8(i8, i8), nogil=True, cache=True)
def fit_score(free_percent: int, policy: int) -> int:
    """Return the score of the share that a grant leaves free on a GPU."""
    tightness_percent = free_percent if policy == SPREAD else 100 - free_percent
    return min(max(int(np.rint(FIT_MAX * tightness_percent / 100)), 0), FIT_MAX)


@njit(void(INT64_ARRAY, INT64_ARRAY, INT64_ARRAY), nogil=True, cache=True)
def score_growths(gpu_rows: Int64Array, growths: Int64Array, scores: Int64Array) -> None:
    """Score the growth of fragmentation: FIT_MAX where it is smallest, 0 where it is largest."""
    smallest = largest = 0
    first = True
    for i in range(gpu_rows.shape[0]):
        if gpu_rows[i] >= 0:
            smallest = growths[i] if first else min(smallest, growths[i])
            largest = growths[i] if first else max(largest, growths[i])
            first = False
    for i in range(gpu_rows.shape[0]):
        scores[i] = FIT_MAX
        if smallest < largest:
            relief_ratio = (largest - growths[i]) / (largest - smallest)
            scores[i] = int(np.rint(FIT_MAX * relief_ratio))


@njit(
    i8(
        FLEET_TYPE, i8, INT64_ARRAY, INT64_ARRAY, FLOAT64_ARRAY, INT64_ARRAY, i8, i8, i8, i8,
        INT64_ARRAY, INT64_ARRAY, INT64_ARRAY,
    ),
    nogil=True,
    cache=True,
)  # fmt: skip
def score_nodes(
    fleet: FleetArrays,
    gpu_percent: int,
    node_rows: Int64Array,
    gpu_rows: Int64Array,
    gpu_ready_ms: Float64Array,
    predecessors: Int64Array,
    home: int,
    inverse: int,
    node_count: int,
    policy: int,
    growths: Int64Array,
    free_percents: Int64Array,
    scores: Int64Array,
) -> int:
    """Score the nodes, 0 to 10, and return the index of the best one; -1 where none has a GPU row.

    A node whose row is among ``predecessors`` comes first, then one where the GPU has a container,
    then ``home``, then the tightest fit (SPREAD: the loosest; DEFRAG: the smallest growth of
    fragmentation). With DEFRAG, equal scores are ordered by the growth, then by the node's free
    share, which keeps whole nodes whole; ``growths`` and ``free_percents`` are (n,), and unused
    otherwise. The walk from home (`scoring.walk`) orders what is still equal. ``scores`` (n,) is
    written, 0 where a node has no GPU row.
    """
    if policy == DEFRAG:
        score_growths(gpu_rows, growths, scores)
    best = -1
    best_position = 0
    for i in range(node_rows.shape[0]):
        gpu = gpu_rows[i]
        if gpu < 0:
            scores[i] = 0
            continue
        row = node_rows[i]
        affinity = affinity_score(row, home, gpu_ready_ms[gpu] < np.inf, predecessors)
        if affinity:
            scores[i] = affinity
        elif policy != DEFRAG:
            scores[i] = fit_score(fleet.gpu_free_percent[gpu] - gpu_percent, policy)
        position = (row - home) * inverse % node_count
        if best >= 0:
            order = scores[best] - scores[i]
            if order == 0 and policy == DEFRAG:
                order = growths[i] - growths[best] or free_percents[i] - free_percents[best]
            if order == 0:
                order = position - best_position
            if order >= 0:
                continue
        best = i
        best_position = position
    return best


@njit(
    i8(
        FLEET_TYPE, CANDIDATES_TYPE, INT64_ARRAY, FLOAT64_ARRAY, i8, FLOAT64_ARRAY, f8, f8,
        INT64_ARRAY, i8, i8, i8, INT32_ARRAY, INT64_ARRAY, INT64_ARRAY,
    ),
    nogil=True,
    cache=True,
)  # fmt: skip
def place(
    fleet: FleetArrays,
    candidates: CandidateArrays,
    node_rows: Int64Array,
    node_start_ms: Float64Array,
    policy: int,
    gpu_ready_ms: Float64Array,
    now_ms: float,
    cold_ms: float,
    predecessors: Int64Array,
    home: int,
    inverse: int,
    node_count: int,
    free_max_percent: Int32Array,
    gpu_rows: Int64Array,
    scores: Int64Array,
) -> int:
    """Run `first_feasible`, then `score_nodes`, for PACK or SPREAD.

    The result is candidate << INDEX_BITS | index of the best node; -1 where no candidate fits.
    """
    candidate = first_feasible(
        fleet, candidates, node_rows, node_start_ms, policy, gpu_ready_ms, now_ms, cold_ms,
        free_max_percent, gpu_rows,
    )  # fmt: skip
    if candidate < 0:
        return -1
    best = score_nodes(
        fleet, candidates.gpu_percent[candidate], node_rows, gpu_rows, gpu_ready_ms, predecessors,
        home, inverse, node_count, policy, gpu_rows, gpu_rows, scores,
    )  # fmt: skip
    return candidate << INDEX_BITS | best


@njit(void(FLEET_TYPE, INT64_ARRAY, i4, i8, i8, INT64_ARRAY, INT64_ARRAY), nogil=True, cache=True)
def nearest_gpus(
    fleet: FleetArrays,
    node_rows: Int64Array,
    model: int,
    gpu_percent: int,
    memory_mib: int,
    nearest: Int64Array,
    free_max_mib: Int64Array,
) -> None:
    """Find the GPU of each node that comes nearest to a candidate, for refusals.

    ``node_rows`` (n,) are known nodes; ``model`` is the candidate's. The nearest GPU lacks least of
    the share, then of the memory, then has most MPS clients free, then has the lowest row. Written,
    both (n,): ``nearest``, -1 where no GPU is of the model, and ``free_max_mib``, the most memory
    that is free on one GPU of it.
    """
    for i in range(node_rows.shape[0]):
        best = -1
        best_share = best_memory = best_clients = free_mib = 0
        first = fleet.node_first_gpu[node_rows[i]]
        for gpu in range(first, first + fleet.node_gpus[node_rows[i]]):
            if fleet.gpu_model[gpu] != model:
                continue
            share = min(fleet.gpu_free_percent[gpu] - gpu_percent, 0)
            memory = min(fleet.gpu_free_memory_mib[gpu] - memory_mib, 0)
            clients = fleet.gpu_free_clients[gpu]
            if best < 0 or fleet.gpu_free_memory_mib[gpu] > free_mib:
                free_mib = fleet.gpu_free_memory_mib[gpu]
            if (
                best < 0
                or share > best_share
                or (share == best_share and memory > best_memory)
                or (share == best_share and memory == best_memory and clients > best_clients)
            ):
                best, best_share, best_memory, best_clients = gpu, share, memory, clients
        nearest[i] = best
        free_max_mib[i] = free_mib
