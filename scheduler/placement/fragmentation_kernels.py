"""The kernels of fragmentation: on which GPU of each node a grant makes it grow least.

``tests/placement/naive_fragmentation.py`` holds their slow twins.
"""

import numpy as np
from numba import njit

from scheduler.placement.fleet import Int32Array, Int64Array


@njit("int64(int64, int64, int64, int64, int64)", nogil=True, cache=True)
def of_use(
    free_percent: int, free_mib: int, free_clients: int, percent: int, memory_mib: int
) -> int:
    """The share of one GPU that asks of one class could use.

    None where it does not hold one; else all that is free, but no more than its memory and clients
    serve.
    """
    served = free_clients
    if memory_mib > 0:
        served = min(served, free_mib // memory_mib)
    if free_percent < percent or served < 1:
        return 0
    return min(free_percent, served * percent)


@njit("int64(int64, int64, int64, int64)", nogil=True, cache=True)
def fed(usable_percent: int, cpu_milli: int, ask_cpu_milli: int, percent: int) -> int:
    """The part of a node's usable share that its free vCPUs serve."""
    if ask_cpu_milli <= 0:
        return usable_percent
    return min(usable_percent, max(cpu_milli, 0) // ask_cpu_milli * percent)


@njit(
    "int64(int64, int64, int64, int64[::1], int64[::1],"
    "int32[::1], int32[::1], int64[::1], int32[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def sum_up(
    first: int,
    count: int,
    model: int,
    mix_percents: Int64Array,
    mix_memories_mib: Int64Array,
    gpu_model: Int32Array,
    gpu_free_percent: Int32Array,
    gpu_free_memory_mib: Int64Array,
    gpu_free_clients: Int32Array,
    usable: Int64Array,
) -> int:
    """What is free on a node's GPUs of a model; written to ``usable`` (m,), what is `of_use`."""
    free_percent = 0
    usable[:] = 0
    for gpu in range(first, first + count):
        if gpu_model[gpu] != model:
            continue
        free_percent += max(gpu_free_percent[gpu], 0)
        for asked in range(mix_percents.shape[0]):
            usable[asked] += of_use(
                gpu_free_percent[gpu], gpu_free_memory_mib[gpu], gpu_free_clients[gpu],
                mix_percents[asked], mix_memories_mib[asked],
            )  # fmt: skip
    return free_percent


@njit(
    "boolean(int64, int64, int32[::1], int32[::1], int64[::1], int32[::1])",
    nogil=True,
    cache=True,
)
def has_twin(
    first: int,
    gpu: int,
    gpu_model: Int32Array,
    gpu_free_percent: Int32Array,
    gpu_free_memory_mib: Int64Array,
    gpu_free_clients: Int32Array,
) -> bool:
    """Whether one of the rows from ``first`` on before ``gpu`` is just like it."""
    for other in range(first, gpu):
        if (
            gpu_model[other] == gpu_model[gpu]
            and gpu_free_percent[other] == gpu_free_percent[gpu]
            and gpu_free_memory_mib[other] == gpu_free_memory_mib[gpu]
            and gpu_free_clients[other] == gpu_free_clients[gpu]
        ):
            return True
    return False


@njit(
    "int64(int64, int64, int64, int64, int64, int64, int64,"
    "int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def growth(
    free_percent: int,
    free_mib: int,
    free_clients: int,
    cpu_free_milli: int,
    percent: int,
    memory_mib: int,
    cpu_milli: int,
    mix_cpus_milli: Int64Array,
    mix_percents: Int64Array,
    mix_memories_mib: Int64Array,
    mix_counts: Int64Array,
    usable: Int64Array,
) -> int:
    """By how much more is lost when an ask is granted on a GPU: percent of it, times the mix.

    ``usable`` (m,) is the share of use on all GPUs of the node, before its vCPUs are looked at.
    """
    grown = 0
    for asked in range(mix_counts.shape[0]):
        share, each_mib = mix_percents[asked], mix_memories_mib[asked]
        before = of_use(free_percent, free_mib, free_clients, share, each_mib)
        after = of_use(
            free_percent - percent, free_mib - memory_mib, free_clients - 1, share, each_mib
        )
        each_milli = mix_cpus_milli[asked]
        was_of_use = fed(usable[asked], cpu_free_milli, each_milli, share)
        is_of_use = fed(
            usable[asked] - before + after, cpu_free_milli - cpu_milli, each_milli, share
        )
        # What the grant takes is not free any more, so it is no part of what is lost.
        grown += mix_counts[asked] * (was_of_use - is_of_use - percent)
    return grown


@njit(
    "void(int64[::1], int64, int64, int64, int64,"
    "int64[::1], int64[::1], int64[::1], int64[::1],"
    "int32[::1], int32[::1], int64[::1], int32[::1], int32[::1], int64[::1], int32[::1],"
    "int64[::1], int64[::1], int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def least_growths(
    node_rows: Int64Array,
    model: int,
    percent: int,
    memory_mib: int,
    cpu_milli: int,
    mix_cpus_milli: Int64Array,
    mix_percents: Int64Array,
    mix_memories_mib: Int64Array,
    mix_counts: Int64Array,
    node_first_gpu: Int32Array,
    node_gpus: Int32Array,
    node_free_cpu_milli: Int64Array,
    gpu_model: Int32Array,
    gpu_free_percent: Int32Array,
    gpu_free_memory_mib: Int64Array,
    gpu_free_clients: Int32Array,
    usable: Int64Array,
    chosen_gpu: Int64Array,
    growths: Int64Array,
    node_free_percent: Int64Array,
) -> None:
    """On each node that holds an ask, the GPU where granting it makes fragmentation grow least.

    The classes of the mix are (m,), and so is ``usable``, which is scratch. Written, (n,) each:
    ``chosen_gpu``, which comes as -1 where the node does not hold the ask and stays so;
    ``growths``, what `growth` says of that GPU; and ``node_free_percent``, what is free on all GPUs
    of the model on the node. Among equals the GPU is chosen as `kernels.choose_gpu` does to pack.
    """
    for i in range(node_rows.shape[0]):
        growths[i] = node_free_percent[i] = 0
        if chosen_gpu[i] < 0:
            continue
        first, count = int(node_first_gpu[node_rows[i]]), int(node_gpus[node_rows[i]])
        cpu_free_milli = node_free_cpu_milli[node_rows[i]]
        node_free_percent[i] = sum_up(
            first, count, model, mix_percents, mix_memories_mib,
            gpu_model, gpu_free_percent, gpu_free_memory_mib, gpu_free_clients, usable,
        )  # fmt: skip
        best = -1
        for gpu in range(first, first + count):
            if (
                gpu_model[gpu] != model
                or gpu_free_percent[gpu] < percent
                or gpu_free_memory_mib[gpu] < memory_mib
                or gpu_free_clients[gpu] < 1
            ):
                continue
            # A node mostly has several GPUs that are alike: one stands for them all.
            if has_twin(
                first, gpu, gpu_model, gpu_free_percent, gpu_free_memory_mib, gpu_free_clients
            ):
                continue
            grown = growth(
                gpu_free_percent[gpu], gpu_free_memory_mib[gpu], gpu_free_clients[gpu],
                cpu_free_milli, percent, memory_mib, cpu_milli,
                mix_cpus_milli, mix_percents, mix_memories_mib, mix_counts, usable,
            )  # fmt: skip
            if best >= 0:
                share = gpu_free_percent[gpu] - gpu_free_percent[best]
                memory = gpu_free_memory_mib[gpu] - gpu_free_memory_mib[best]
                if grown > growths[i] or (
                    grown == growths[i] and (share > 0 or (share == 0 and memory >= 0))
                ):
                    continue
            best = gpu
            growths[i] = grown
        chosen_gpu[i] = best


def prepare() -> None:
    """Compile the kernels, or load them from Numba's cache, by calling them once."""
    i32, i64 = np.zeros(1, np.int32), np.zeros(1, np.int64)
    least_growths(
        i64, 0, 0, 0, 0, i64, i64, i64, i64, i32, i32, i64, i32, i32, i64, i32,
        i64.copy(), i64.copy(), i64.copy(), i64.copy(),
    )  # fmt: skip
