"""The kernels of placement: which node holds which candidate, and on which of its GPUs.

``tests/placement/naive.py`` holds their slow twins. Each file of kernels states for itself when a
GPU holds an ask: Numba's cache would not see an edit of a kernel that is called in another file.
"""

import numpy as np
from numba import njit

PACK = 0
SPREAD = 1


@njit(
    "int64(int64, int32, int32, int64, int64, int64,"
    "int32[::1], int32[::1], int64[::1], int32[::1], int32[::1], int64[::1], int32[::1])",
    nogil=True,
    cache=True,
)
def choose_gpu(
    node_row, model, percent, memory_mib, cpu_milli, policy,
    node_first_gpu, node_gpus, node_free_cpu_milli,
    gpu_model, gpu_free_percent, gpu_free_memory_mib, gpu_free_clients,
):  # fmt: skip
    """The GPU row on a node for one ask, or -1 where none holds it.

    PACK takes the least share left over, then the least memory, then the lowest row; SPREAD takes
    the most.
    """
    if node_free_cpu_milli[node_row] < cpu_milli:
        return -1
    best = -1
    first = node_first_gpu[node_row]
    for gpu in range(first, first + node_gpus[node_row]):
        if (
            gpu_model[gpu] != model
            or gpu_free_percent[gpu] < percent
            or gpu_free_memory_mib[gpu] < memory_mib
            or gpu_free_clients[gpu] < 1
        ):
            continue
        if best < 0:
            best = gpu
            continue
        share = gpu_free_percent[gpu] - gpu_free_percent[best]
        memory = gpu_free_memory_mib[gpu] - gpu_free_memory_mib[best]
        if policy == SPREAD:
            share, memory = -share, -memory
        if share < 0 or (share == 0 and memory < 0):
            best = gpu
    return best


@njit(
    "int64(int64[::1], float64[::1], float64[::1], int32[::1], int32[::1], int64[::1], int64[::1],"
    "int64, int32[::1], int32[::1], int64[::1], int32[::1], int32[::1], int64[::1], int32[::1],"
    "int64[::1])",
    nogil=True,
    cache=True,
)
def first_held(
    node_rows, node_start_ms, starts_ms, models, percents, memories_mib, cpus_milli, policy,
    node_first_gpu, node_gpus, node_free_cpu_milli,
    gpu_model, gpu_free_percent, gpu_free_memory_mib, gpu_free_clients,
    chosen_gpu,
):  # fmt: skip
    """The first candidate that any of the nodes holds, or -1, and its GPU on each node.

    ``node_rows`` (n,) are rows of the fleet, -1 for unknown nodes, and ``node_start_ms`` (n,) is
    how long a start takes there; the candidates' arrays are (k,), cheapest first, and each holds
    only where a start takes no longer than its own of ``starts_ms``. ``chosen_gpu`` (n,) is
    written: a GPU row, or -1 where the node holds it not.
    """
    for candidate in range(models.shape[0]):
        found = False
        for i in range(node_rows.shape[0]):
            chosen_gpu[i] = -1
            if node_rows[i] < 0 or node_start_ms[i] > starts_ms[candidate]:
                continue
            gpu = choose_gpu(
                node_rows[i], models[candidate], percents[candidate], memories_mib[candidate],
                cpus_milli[candidate], policy, node_first_gpu, node_gpus, node_free_cpu_milli,
                gpu_model, gpu_free_percent, gpu_free_memory_mib, gpu_free_clients,
            )  # fmt: skip
            chosen_gpu[i] = gpu
            found = found or gpu >= 0
        if found:
            return candidate
    return -1


@njit(
    "void(int64[::1], int32, int64, int64,"
    "int32[::1], int32[::1], int32[::1], int32[::1], int64[::1], int32[::1],"
    "int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def nearest_gpus(
    node_rows, model, percent, memory_mib,
    node_first_gpu, node_gpus, gpu_model, gpu_free_percent, gpu_free_memory_mib, gpu_free_clients,
    nearest, most_free_mib,
):  # fmt: skip
    """On each node, the GPU that comes nearest to holding an ask: what a refusal tells of.

    ``node_rows`` (n,) are known nodes; ``model`` is what the ask is for. Nearest is what lacks
    least of the share, then of the memory, then has most clients free, then the lowest row.
    Written, both (n,): ``nearest``, -1 where no GPU is of the model, and ``most_free_mib``, the
    most memory that is free on one GPU of it.
    """
    for i in range(node_rows.shape[0]):
        best = -1
        best_share = best_memory = best_clients = most = 0
        first = node_first_gpu[node_rows[i]]
        for gpu in range(first, first + node_gpus[node_rows[i]]):
            if gpu_model[gpu] != model:
                continue
            share = min(gpu_free_percent[gpu] - percent, 0)
            memory = min(gpu_free_memory_mib[gpu] - memory_mib, 0)
            clients = gpu_free_clients[gpu]
            if best < 0 or gpu_free_memory_mib[gpu] > most:
                most = gpu_free_memory_mib[gpu]
            if (
                best < 0
                or share > best_share
                or (share == best_share and memory > best_memory)
                or (share == best_share and memory == best_memory and clients > best_clients)
            ):
                best, best_share, best_memory, best_clients = gpu, share, memory, clients
        nearest[i] = best
        most_free_mib[i] = most


def prepare() -> None:
    """Compile the kernels, or load them from Numba's cache, by calling each once."""
    i32, i64, f64 = np.zeros(1, np.int32), np.zeros(1, np.int64), np.zeros(1)
    first_held(
        i64, f64, f64, i32, i32, i64, i64, PACK, i32, i32, i64, i32, i32, i64, i32, i64.copy()
    )
    nearest_gpus(i64, 0, 0, 0, i32, i32, i32, i32, i64, i32, i64.copy(), i64.copy())
