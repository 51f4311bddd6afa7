"""The kernels of fragmentation: the GPU of each node where a grant adds least to it.

``tests/placement/naive_fragmentation.py`` holds their slow twins.
"""

from numba import b1, f8, i8, njit, void

from scheduler.placement.array_types import (
    FLEET_TYPE,
    FLOAT64_ARRAY,
    INT64_ARRAY,
    MIX_TYPE,
)
from scheduler.placement.arrays import (
    FleetArrays,
    Float64Array,
    Int64Array,
    MixArrays,
)


@njit(i8(i8, i8, i8, i8, i8), nogil=True, cache=True)
def usable_percent(
    free_percent: int, free_mib: int, free_clients: int, gpu_percent: int, memory_mib: int
) -> int:
    """Return the share of one GPU that requests of one class can use.

    0 where not one fits; otherwise all that is free, limited by the requests that its memory and
    its MPS clients serve.
    """
    served = free_clients
    if memory_mib > 0:
        served = min(served, free_mib // memory_mib)
    if free_percent < gpu_percent or served < 1:
        return 0
    return min(free_percent, served * gpu_percent)


@njit(i8(i8, i8, i8, i8), nogil=True, cache=True)
def limit_by_cpu(usable: int, free_cpu_milli: int, cpu_milli: int, gpu_percent: int) -> int:
    """Return the part of a node's usable share that its free vCPUs serve."""
    if cpu_milli <= 0:
        return usable
    return min(usable, max(free_cpu_milli, 0) // cpu_milli * gpu_percent)


@njit(i8(FLEET_TYPE, MIX_TYPE, i8, i8, INT64_ARRAY), nogil=True, cache=True, inline="always")
def sum_node(
    fleet: FleetArrays, mix: MixArrays, node_row: int, model: int, usable: Int64Array
) -> int:
    """Return the free share of a node's GPUs of a model; write what each class can use of it.

    ``usable`` (m,) is written: the sum of `usable_percent`.
    """
    free_percent = 0
    usable[:] = 0
    first = int(fleet.node_first_gpu[node_row])
    end = first + int(fleet.node_gpus[node_row])
    gpu = first
    while gpu < end:
        percent, free_mib = fleet.gpu_free_percent[gpu], fleet.gpu_free_memory_mib[gpu]
        clients, is_of_model = fleet.gpu_free_clients[gpu], fleet.gpu_model[gpu] == model
        # Most nodes have several equal GPUs in a row.
        count = 1
        while (
            gpu + count < end
            and fleet.gpu_model[gpu + count] == fleet.gpu_model[gpu]
            and fleet.gpu_free_percent[gpu + count] == percent
            and fleet.gpu_free_memory_mib[gpu + count] == free_mib
            and fleet.gpu_free_clients[gpu + count] == clients
        ):
            count += 1
        gpu += count
        if not is_of_model:
            continue
        free_percent += count * max(percent, 0)
        for request in range(mix.pods.shape[0]):
            usable[request] += count * usable_percent(
                percent, free_mib, clients, mix.gpu_percent[request], mix.memory_mib[request]
            )
    return free_percent


@njit(f8(FLOAT64_ARRAY, i8, f8, f8), nogil=True, cache=True, inline="always")
def start_time_ms(gpu_ready_ms: Float64Array, gpu: int, now_ms: float, cold_ms: float) -> float:
    """Return the start time on a GPU, ms."""
    start_ms: float = min(max(gpu_ready_ms[gpu] - now_ms, 0.0), cold_ms)
    return start_ms


@njit(b1(FLEET_TYPE, FLOAT64_ARRAY, f8, f8, i8, i8), nogil=True, cache=True, inline="always")
def has_twin(
    fleet: FleetArrays,
    gpu_ready_ms: Float64Array,
    now_ms: float,
    cold_ms: float,
    first: int,
    gpu: int,
) -> bool:
    """Return true if a row from ``first`` on before ``gpu`` equals it."""
    for twin in range(first, gpu):
        if (
            fleet.gpu_model[twin] == fleet.gpu_model[gpu]
            and fleet.gpu_free_percent[twin] == fleet.gpu_free_percent[gpu]
            and fleet.gpu_free_memory_mib[twin] == fleet.gpu_free_memory_mib[gpu]
            and fleet.gpu_free_clients[twin] == fleet.gpu_free_clients[gpu]
            and start_time_ms(gpu_ready_ms, twin, now_ms, cold_ms)
            == start_time_ms(gpu_ready_ms, gpu, now_ms, cold_ms)
        ):
            return True
    return False


@njit(b1(FLEET_TYPE, FLOAT64_ARRAY, f8, f8, i8, i8), nogil=True, cache=True, inline="always")
def are_equal(
    fleet: FleetArrays,
    gpu_ready_ms: Float64Array,
    now_ms: float,
    cold_ms: float,
    node_row: int,
    second_row: int,
) -> bool:
    """Return true if two nodes have the same vCPUs free, and equal GPUs in the same order."""
    count = fleet.node_gpus[node_row]
    if (
        fleet.node_gpus[second_row] != count
        or fleet.node_free_cpu_milli[second_row] != fleet.node_free_cpu_milli[node_row]
    ):
        return False
    gpu, second = int(fleet.node_first_gpu[node_row]), int(fleet.node_first_gpu[second_row])
    for _ in range(count):
        if (
            fleet.gpu_free_percent[gpu] != fleet.gpu_free_percent[second]
            or fleet.gpu_free_memory_mib[gpu] != fleet.gpu_free_memory_mib[second]
            or fleet.gpu_free_clients[gpu] != fleet.gpu_free_clients[second]
            or fleet.gpu_model[gpu] != fleet.gpu_model[second]
            or start_time_ms(gpu_ready_ms, gpu, now_ms, cold_ms)
            != start_time_ms(gpu_ready_ms, second, now_ms, cold_ms)
        ):
            return False
        gpu += 1
        second += 1
    return True


@njit(
    i8(FLEET_TYPE, MIX_TYPE, i8, i8, i8, i8, i8, INT64_ARRAY),
    nogil=True,
    cache=True,
    inline="always",
)
def growth(
    fleet: FleetArrays,
    mix: MixArrays,
    gpu: int,
    free_cpu_milli: int,
    gpu_percent: int,
    memory_mib: int,
    cpu_milli: int,
    usable: Int64Array,
) -> int:
    """Return the growth of fragmentation by a grant on a GPU: percent of it, times the mix.

    ``usable`` (m,) is the share that each class can use on all GPUs of the node, whatever its
    vCPUs serve.
    """
    free_percent = fleet.gpu_free_percent[gpu]
    free_mib, free_clients = fleet.gpu_free_memory_mib[gpu], fleet.gpu_free_clients[gpu]
    total = 0
    for request in range(mix.pods.shape[0]):
        share, share_mib = mix.gpu_percent[request], mix.memory_mib[request]
        before = usable_percent(free_percent, free_mib, free_clients, share, share_mib)
        after = usable_percent(
            free_percent - gpu_percent, free_mib - memory_mib, free_clients - 1, share, share_mib
        )
        share_milli = mix.cpu_milli[request]
        usable_before = limit_by_cpu(usable[request], free_cpu_milli, share_milli, share)
        usable_after = limit_by_cpu(
            usable[request] - before + after, free_cpu_milli - cpu_milli, share_milli, share
        )
        # The grant itself is free no longer, so it is no part of what is lost.
        total += mix.pods[request] * (usable_before - usable_after - gpu_percent)
    return total


@njit(
    void(
        FLEET_TYPE, MIX_TYPE, INT64_ARRAY, i8, i8, i8, i8, FLOAT64_ARRAY, f8, f8,
        INT64_ARRAY, INT64_ARRAY, INT64_ARRAY, INT64_ARRAY,
    ),
    nogil=True,
    cache=True,
)  # fmt: skip
def minimize_growth(
    fleet: FleetArrays,
    mix: MixArrays,
    node_rows: Int64Array,
    model: int,
    gpu_percent: int,
    memory_mib: int,
    cpu_milli: int,
    gpu_ready_ms: Float64Array,
    now_ms: float,
    cold_ms: float,
    usable: Int64Array,
    gpu_rows: Int64Array,
    growths: Int64Array,
    node_free_percent: Int64Array,
) -> None:
    """Choose, on each node where a request fits, the GPU where it adds least to fragmentation.

    Only GPUs with the start of the node's GPU in ``gpu_rows``, which is the shortest, are compared.
    ``usable`` (m,) is scratch. Written, (n,) each: ``gpu_rows``, which stays -1 where it is -1;
    ``growths``, that of `growth` on the GPU; and ``node_free_percent``, the free share of all GPUs
    of the model on the node. Equal growths are ordered as `kernels.choose_gpu` does to pack.
    """
    last, last_start_ms = -1, 0.0
    for i in range(node_rows.shape[0]):
        growths[i] = node_free_percent[i] = 0
        if gpu_rows[i] < 0:
            continue
        row = node_rows[i]
        first = int(fleet.node_first_gpu[row])
        start_ms = start_time_ms(gpu_ready_ms, gpu_rows[i], now_ms, cold_ms)
        # Many nodes are equal, such as those that are empty.
        if (
            last >= 0
            and start_ms == last_start_ms
            and are_equal(fleet, gpu_ready_ms, now_ms, cold_ms, row, node_rows[last])
        ):
            growths[i], node_free_percent[i] = growths[last], node_free_percent[last]
            gpu_rows[i] = first + gpu_rows[last] - fleet.node_first_gpu[node_rows[last]]
            continue
        last, last_start_ms = i, start_ms
        free_cpu_milli = fleet.node_free_cpu_milli[row]
        node_free_percent[i] = sum_node(fleet, mix, row, model, usable)
        best = -1
        for gpu in range(first, first + fleet.node_gpus[row]):
            if (
                fleet.gpu_model[gpu] != model
                or fleet.gpu_free_percent[gpu] < gpu_percent
                or fleet.gpu_free_memory_mib[gpu] < memory_mib
                or fleet.gpu_free_clients[gpu] < 1
                or start_time_ms(gpu_ready_ms, gpu, now_ms, cold_ms) != start_ms
            ):
                continue
            # Most nodes have several equal GPUs: the first one stands for all.
            if has_twin(fleet, gpu_ready_ms, now_ms, cold_ms, first, gpu):
                continue
            gpu_growth = growth(
                fleet, mix, gpu, free_cpu_milli, gpu_percent, memory_mib, cpu_milli, usable
            )
            if best >= 0:
                share = fleet.gpu_free_percent[gpu] - fleet.gpu_free_percent[best]
                memory = fleet.gpu_free_memory_mib[gpu] - fleet.gpu_free_memory_mib[best]
                if gpu_growth > growths[i] or (
                    gpu_growth == growths[i] and (share > 0 or (share == 0 and memory >= 0))
                ):
                    continue
            best = gpu
            growths[i] = gpu_growth
        gpu_rows[i] = best
