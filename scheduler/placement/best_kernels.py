"""The kernels of dispatch: where to run now, out of all nodes, by one call.

What `placing.place`, `scoring.scores` and `scoring.best_first` say one after the other for a pod,
for a dispatcher that knows its containers: where a GPU has one, the start there is the container's.
``tests/placement/test_best_place.py`` holds them against those.
"""

import numpy as np
from numba import njit

SPREAD = 1
GPU_BITS = 32  # the answer packs the candidate above the GPU's row


@njit(
    "int64(int64, float64, float64, int32, int32, int64, int64, float64[::1], float64, float64,"
    "int32[::1], int32[::1], int32[::1], int32[::1], int64[::1], int32[::1])",
    nogil=True,
    cache=True,
)
def soonest_gpu(
    node, transfer_ms, most_start_ms, model, percent, memory_mib, policy,
    gpu_ready_ms, now_ms, cold_ms,
    node_first_gpu, node_gpus, gpu_model, gpu_free_percent, gpu_free_memory_mib, gpu_free_clients,
):  # fmt: skip
    """The GPU row on a node that holds one ask and starts it in time, or -1.

    The shortest start is taken; among equals as `kernels.choose_gpu` does.
    """
    best = -1
    best_start = 0.0
    first = node_first_gpu[node]
    for gpu in range(first, first + node_gpus[node]):
        if (
            gpu_model[gpu] != model
            or gpu_free_percent[gpu] < percent
            or gpu_free_memory_mib[gpu] < memory_mib
            or gpu_free_clients[gpu] < 1
        ):
            continue
        start = min(max(gpu_ready_ms[gpu] - now_ms, 0.0), cold_ms)
        if start + transfer_ms > most_start_ms:
            continue
        if best >= 0:
            share = gpu_free_percent[gpu] - gpu_free_percent[best]
            memory = gpu_free_memory_mib[gpu] - gpu_free_memory_mib[best]
            if policy == SPREAD:
                share, memory = -share, -memory
            if start > best_start or (
                start == best_start and (share > 0 or (share == 0 and memory >= 0))
            ):
                continue
        best = gpu
        best_start = start
    return best


@njit("int64(int64, boolean, int64, int64[::1], int64, int64, int64[::1])", nogil=True, cache=True)
def score_of(node, warm, left_percent, predecessors, home, policy, score_table):
    """The score of a node, as `scoring.scores` gives it."""
    fit_max, home_score, warm_score, predecessor_score = score_table
    for predecessor in predecessors:
        if predecessor == node:
            return predecessor_score
    if warm:
        return warm_score
    if node == home:
        return home_score
    tightness = left_percent if policy == SPREAD else 100 - left_percent
    return min(max(int(np.rint(fit_max * tightness / 100)), 0), fit_max)


@njit(
    "int64(int64, float64[::1], float64[::1], float64, float64, int64[::1], int64, int64, int64,"
    "int64[::1], float64[::1], int32[::1], int32[::1], int64[::1], int64[::1],"
    "int32[::1], int32[::1], int64[::1], int32[::1], int32[::1], int64[::1], int32[::1],"
    "int32[::1])",
    nogil=True,
    cache=True,
)
def best_held(
    nodes, node_transfer_ms, gpu_ready_ms, now_ms, cold_ms, predecessors, home, inverse, policy,
    score_table, starts_ms, models, percents, memories_mib, cpus_milli,
    node_first_gpu, node_gpus, node_free_cpu_milli,
    gpu_model, gpu_free_percent, gpu_free_memory_mib, gpu_free_clients, node_most_percent,
):  # fmt: skip
    """The first candidate that any node holds, and the GPU on the best node that does; or -1.

    A start on a GPU takes ``node_transfer_ms`` of its node, and then until ``gpu_ready_ms`` (inf:
    no container there), but no longer than ``cold_ms``. ``predecessors`` are rows of nodes;
    ``home`` and ``inverse`` are of `scoring.walk`, and ``score_table`` has its scores. The
    candidates' arrays are (k,), best first; ``node_most_percent`` (nodes,) is scratch. The answer
    is candidate << GPU_BITS | GPU row.
    """
    # On a full cluster most candidates want more than is free on any GPU, and then on most nodes.
    anywhere_percent = np.int32(-1)
    for node in range(nodes):
        most = np.int32(-1)
        for gpu in range(node_first_gpu[node], node_first_gpu[node] + node_gpus[node]):
            most = max(most, gpu_free_percent[gpu])
        node_most_percent[node] = most
        anywhere_percent = max(anywhere_percent, most)
    for candidate in range(models.shape[0]):
        if percents[candidate] > anywhere_percent:
            continue
        best = -1
        best_score = -1
        best_walk = 0
        for node in range(nodes):
            if (
                node_most_percent[node] < percents[candidate]
                or node_free_cpu_milli[node] < cpus_milli[candidate]
            ):
                continue
            gpu = soonest_gpu(
                node, node_transfer_ms[node], starts_ms[candidate], models[candidate],
                percents[candidate], memories_mib[candidate], policy, gpu_ready_ms, now_ms, cold_ms,
                node_first_gpu, node_gpus,
                gpu_model, gpu_free_percent, gpu_free_memory_mib, gpu_free_clients,
            )  # fmt: skip
            if gpu < 0:
                continue
            score = score_of(
                node, gpu_ready_ms[gpu] < np.inf, gpu_free_percent[gpu] - percents[candidate],
                predecessors, home, policy, score_table,
            )  # fmt: skip
            walk = (node - home) * inverse % nodes
            if score > best_score or (score == best_score and walk < best_walk):
                best, best_score, best_walk = gpu, score, walk
        if best >= 0:
            return (candidate << GPU_BITS) | best
    return -1


def prepare() -> None:
    """Compile the kernels, or load them from Numba's cache, by calling them once."""
    i32, i64, f64 = np.zeros(1, np.int32), np.zeros(1, np.int64), np.zeros(1)
    best_held(
        1, f64, f64, 0.0, 0.0, i64, 0, 0, 0, np.zeros(4, np.int64), f64, i32, i32, i64, i64,
        i32, i32, i64, i32, i32, i64, i32, i32.copy(),
    )  # fmt: skip
