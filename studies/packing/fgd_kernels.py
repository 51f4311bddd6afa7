"""The kernels of fragmentation gradient descent: see `fgd`.

``tests/studies/packing/naive.py`` holds their slow twins.
"""

from numba import njit

from scheduler.placement.arrays import Int32Array, Int64Array

_WHOLE = 100  # percent


@njit(
    "int64(int64[::1], int64, int64, int64, int64[::1], int64[::1], int64[::1], int64[::1],"
    "int64[::1])",
    nogil=True,
    cache=True,
)
def fragment(
    free_percents: Int64Array,
    count: int,
    cpu_milli: int,
    model: int,
    task_cpus_milli: Int64Array,
    task_gpus: Int64Array,
    task_percents: Int64Array,
    task_models: Int64Array,
    task_counts: Int64Array,
) -> int:
    """Return F of one node: percent of a GPU, times the number of tasks in the workload.

    The node has ``cpu_milli`` free and, of its first ``count`` GPUs, ``free_percents``; its GPUs
    are of ``model``. The classes of tasks are (m,) each; ``task_models`` has a bit for each model
    that a class may run on.
    """
    total = largest = whole = 0
    for gpu in range(count):
        total += free_percents[gpu]
        largest = max(largest, free_percents[gpu])
        whole += free_percents[gpu] == _WHOLE
    lost = 0
    for task in range(task_counts.shape[0]):
        runs = cpu_milli >= task_cpus_milli[task] and task_models[task] >> model & 1
        if task_gpus[task] == 1:
            runs = runs and largest >= task_percents[task]
        else:
            # A task without a GPU uses none of the free share.
            runs = runs and 0 < task_gpus[task] <= whole
        if not runs:
            lost += task_counts[task] * total
            continue
        for gpu in range(count):
            if free_percents[gpu] < task_percents[task]:
                lost += task_counts[task] * free_percents[gpu]
    return lost


@njit(
    "void(int64[::1], int64, int64, int64, int64[::1],"
    "int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    "int32[::1], int32[::1], int64[::1], int32[::1],"
    "int64[::1], int64[::1], int64[::1], int64[::1])",
    nogil=True,
    cache=True,
)
def growths(
    node_rows: Int64Array,
    gpus: int,
    percent: int,
    cpu_milli: int,
    node_model: Int64Array,
    task_cpus_milli: Int64Array,
    task_gpus: Int64Array,
    task_percents: Int64Array,
    task_models: Int64Array,
    task_counts: Int64Array,
    node_first_gpu: Int32Array,
    node_gpus: Int32Array,
    node_free_cpu_milli: Int64Array,
    gpu_free_percent: Int32Array,
    free: Int64Array,
    growth: Int64Array,
    gpu_row: Int64Array,
    after_percent: Int64Array,
) -> None:
    """Find the smallest growth of F of each node by a task, over the node's GPUs.

    It fits on the nodes ``node_rows`` (n,); it requests ``percent`` of each of ``gpus`` GPUs, which
    are entirely free ones where they are several. ``free`` is scratch for the GPUs of one node.
    Written, (n,) each: ``growth``; for a task of one GPU ``gpu_row``, the GPU of smallest growth,
    the fullest among equals; and ``after_percent``, its free share afterwards, else 0.
    """
    for i in range(node_rows.shape[0]):
        node = node_rows[i]
        first, count = int(node_first_gpu[node]), int(node_gpus[node])
        cpu_free_milli = node_free_cpu_milli[node]
        for gpu in range(count):
            free[gpu] = gpu_free_percent[first + gpu]
        before = fragment(
            free, count, cpu_free_milli, node_model[node],
            task_cpus_milli, task_gpus, task_percents, task_models, task_counts,
        )  # fmt: skip
        gpu_row[i] = -1
        after_percent[i] = 0
        if gpus != 1:
            missing = gpus
            for gpu in range(count):
                if missing > 0 and free[gpu] == _WHOLE:
                    free[gpu] = 0
                    missing -= 1
            after = fragment(
                free, count, cpu_free_milli - cpu_milli, node_model[node],
                task_cpus_milli, task_gpus, task_percents, task_models, task_counts,
            )  # fmt: skip
            growth[i] = after - before
            continue
        for gpu in range(count):
            seen = free[gpu] < percent
            for earlier in range(gpu):
                seen = seen or free[earlier] == free[gpu]
            if seen:
                continue
            free[gpu] -= percent
            after = fragment(
                free, count, cpu_free_milli - cpu_milli, node_model[node],
                task_cpus_milli, task_gpus, task_percents, task_models, task_counts,
            )  # fmt: skip
            if (
                gpu_row[i] < 0
                or after - before < growth[i]
                or (after - before == growth[i] and free[gpu] < after_percent[i])
            ):
                gpu_row[i] = first + gpu
                growth[i] = after - before
                after_percent[i] = free[gpu]
            free[gpu] += percent
