"""Size of a pool: its slices, and the processes of each function that run in them.

The slices follow the work of all functions together, as if the GPUs were servers that run batches:
square-root staffing by the objective. A slice is a whole GPU, or, where the pool needs less than
one, a sum of the shares that run in it: percent between two sums serve nobody.

A process costs memory alone. So there are as many of each function as would serve its rate without
a wait, and on each GPU as many as fill it at the function's part of the work: a burst finds them
there. Where memory holds hardly more processes than vCPUs and percent do, there is nothing to pool:
the pods hold their shares.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import ceil, floor, inf, sqrt
from typing import NamedTuple

from scheduler.dispatch.pods import FunctionKey, Share
from scheduler.dispatch.scaling.staffing import RUN_WAIT_RATIO, staffed_pods

CLIENTS_MAX = 48  # of MPS, on one GPU
FILL_RATIO = 0.96  # of the largest sum of shares that a slice holds: not every remainder is filled
POOLED_MEMORY_RATIO = 1.25  # processes by memory over those by percent and vCPUs; below: reserved
MEMORY_PARTS = 2  # of a reserved pod's part of the memory: so many processes have room in it
WHOLE_PERCENT = 100


class PoolFunction(NamedTuple):
    """A function of a pool.

    Attributes:
        busy_pods: number of pods that its rate keeps busy.
        objective_ratio: the strictest one of its workflows.
        met_ratio: part of the allowed wait that is left: 1 at the objective, 0 at twice the misses.
    """

    share: Share
    busy_pods: float
    objective_ratio: float
    met_ratio: float


class PoolGpu(NamedTuple):
    """A GPU of a pool: its memory for processes, and the vCPUs beside it; inf: not known."""

    memory_mib: float
    cpus: float


class PoolSize(NamedTuple):
    """Size of a pool on GPUs of one model.

    Attributes:
        slices: number of slices, each of ``percent`` and ``cpus``.
        processes: number of processes of each function on one GPU, on average.
    """

    slices: int
    percent: int
    cpus: int
    processes: Mapping[FunctionKey, float]


def reserved_text(functions: Sequence[PoolFunction], gpu: PoolGpu) -> str:
    """Tell why pods hold their shares in place of a pool; empty: they need not."""
    busy_pods = sum(function.busy_pods for function in functions)
    if not busy_pods:
        return ""
    memory_mib = sum(f.busy_pods * f.share.memory_mib for f in functions) / busy_pods
    percent, cpus = _busy_shares(functions)
    by_memory = min(gpu.memory_mib / memory_mib, CLIENTS_MAX)
    by_share = min(WHOLE_PERCENT * busy_pods / percent, gpu.cpus * busy_pods / cpus)
    if by_memory >= POOLED_MEMORY_RATIO * by_share:
        return ""
    return (
        f"pods hold their shares: memory and MPS clients of a GPU allow {by_memory:.1f} processes, "
        f"percent and vCPUs {by_share:.1f}; a pool needs {POOLED_MEMORY_RATIO:g} times as many"
    )


def pool_size(  # noqa: PLR0913 - each by its name
    functions: Mapping[FunctionKey, PoolFunction],
    gpu: PoolGpu,
    *,
    headroom_ratio: float = 0.0,
    percent_max: int = WHOLE_PERCENT,
    slices_min: int = 0,
    slices_max: float = inf,
) -> PoolSize:
    """Return the slices and processes for the rates of functions.

    ``percent_max`` is of a slice, where larger ones find no room; ``slices_min`` are whole GPUs.
    The processes are divided among at most ``slices_max`` slices, where more find no room.
    """
    busy_pods = sum(function.busy_pods for function in functions.values())
    if not busy_pods:
        return PoolSize(0, 0, 0, dict.fromkeys(functions, 0.0))
    wait_ratio = RUN_WAIT_RATIO * min(function.met_ratio for function in functions.values())
    objective_ratio = max(function.objective_ratio for function in functions.values())
    running = staffed_pods(busy_pods, objective_ratio, wait_ratio)
    running += (running - busy_pods) * headroom_ratio
    percent, cpus = (running / busy_pods * busy for busy in _busy_shares(functions.values()))
    sums = _sums_of_shares([function.share for function in functions.values()], percent_max)
    largest = max(sums)
    # A share with more vCPUs than the node has for each of its GPUs runs in a slice, too.
    cpus_max = max(gpu.cpus, *(function.share.cpu for function in functions.values()))
    needed = max(percent / largest, cpus / min(sums[largest], cpus_max)) / FILL_RATIO
    slices = max(ceil(needed), slices_min)
    size, size_cpus = largest, sums[largest]
    if percent_max == WHOLE_PERCENT:
        size, size_cpus = WHOLE_PERCENT, floor(cpus_max) if cpus_max < inf else size_cpus
    if slices == 1 and not slices_min:
        fitting = (
            (percent_sum, cpus_sum)
            for percent_sum, cpus_sum in sorted(sums.items())
            if percent <= FILL_RATIO * percent_sum and cpus <= FILL_RATIO * cpus_sum <= size_cpus
        )
        size, size_cpus = next(fitting, (size, size_cpus))
    processes = _processes(functions, int(min(slices, slices_max)), size, gpu)
    return PoolSize(slices, size, size_cpus, processes)


def _busy_shares(functions: Iterable[PoolFunction]) -> tuple[float, float]:
    """Return the percent and the vCPUs of the pods that the rates keep busy."""
    listed = list(functions)
    percent = sum(function.busy_pods * function.share.gpu_percent for function in listed)
    return percent, sum(function.busy_pods * function.share.cpu for function in listed)


def _sums_of_shares(shares: Sequence[Share], percent_max: int) -> dict[int, int]:
    """Return the percent of shares that run together, each sum with the most vCPUs of any.

    Each is at least the largest share, and none exceeds ``percent_max`` unless that is less.
    """
    largest = max(share.gpu_percent for share in shares)
    cpus = {0: 0}
    for percent in range(1, max(percent_max, largest) + 1):
        before = [
            cpus[percent - share.gpu_percent] + share.cpu
            for share in shares
            if percent - share.gpu_percent in cpus
        ]
        if before:
            cpus[percent] = max(before)
    cpus_min = max(share.cpu for share in shares)
    return {percent: max(sum_, cpus_min) for percent, sum_ in cpus.items() if percent >= largest}


def _processes(
    functions: Mapping[FunctionKey, PoolFunction], slices: int, percent: int, gpu: PoolGpu
) -> dict[FunctionKey, float]:
    """Return the processes of each function on one GPU, as far as there is memory."""
    part = {
        key: max(f.share.gpu_percent / WHOLE_PERCENT, f.share.cpu / gpu.cpus)
        for key, f in functions.items()
    }
    work = sum(part[key] * f.busy_pods for key, f in functions.items())
    goals = {
        key: max(
            # These fill a slice at the function's part of the work.
            ceil(percent / WHOLE_PERCENT * f.busy_pods / work),
            ceil(staffed_pods(f.busy_pods, f.objective_ratio, 0.0) / slices),
        )
        for key, f in functions.items()
        if f.busy_pods
    }
    memory_mib = sum(functions[key].share.memory_mib * goal for key, goal in goals.items())
    if memory_mib <= gpu.memory_mib and sum(goals.values()) <= CLIENTS_MAX:
        return dict.fromkeys(functions, 0.0) | {key: float(goal) for key, goal in goals.items()}
    free_mib, free_clients = slices * gpu.memory_mib, slices * CLIENTS_MAX
    counts = dict.fromkeys(functions, 0)
    queue = [(_reserve_ratio(functions[key], 0), key) for key in goals]
    heapify(queue)
    while queue:
        _, key = heappop(queue)
        share = functions[key].share
        if counts[key] < goals[key] * slices and share.memory_mib <= free_mib and free_clients:
            free_mib -= share.memory_mib
            free_clients -= 1
            counts[key] += 1
            heappush(queue, (_reserve_ratio(functions[key], counts[key]), key))
    return {key: count / slices for key, count in counts.items()}


def _reserve_ratio(function: PoolFunction, processes: int) -> float:
    return (processes - function.busy_pods) / sqrt(function.busy_pods)
