"""Fragmentation gradient descent (FGD), and the measure of fragmentation that it descends.

Source: Weng, Yang, Yu, Wang, Tang, Yang, Zhang, "Beware of Fragmentation: Scheduling GPU-Sharing
Workloads with Fragmentation Gradient Descent", USENIX ATC 2023. Its rule: a workload M is classes
of tasks m with a popularity p_m. A node n's fragment for m is all its free GPU share where n cannot
run m, for want of vCPUs, GPUs or the right model, and where m asks for no GPU; else it is the free
share of those GPUs that each have less free than m asks of one. F_n(M) = sum p_m F_n(m). A task
goes to the node, and there to the GPU, where that makes F_n(M) grow least.

Derived from that rule here: integers for popularities, so that equal values are equal; the GPUs of
a task of several (entirely free ones: it makes no difference which); and the order of equal nodes,
which the rule leaves open: best fit, the smallest remaining share of the GPU, then of the node,
then the fewest vCPUs. Classes differ by vCPUs, GPUs, share and models, not by memory.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from scheduler.placement.arrays import Int64Array
from studies.packing import fgd_kernels
from studies.packing.cluster import PackedCluster
from studies.packing.trace import TracePod


@dataclass(frozen=True, slots=True)
class FgdWorkload:
    """Classes of expected tasks, (m,) each, and the number of tasks."""

    cpus_milli: Int64Array
    gpus: Int64Array
    percents: Int64Array
    models: Int64Array  # a bit for each model of the cluster
    counts: Int64Array
    total: int

    @classmethod
    def of(cls, pods: Iterable[TracePod], models: Sequence[str]) -> Self:
        """Return the workload of which these pods are a sample, on GPUs of these models."""
        bit = {model: 1 << i for i, model in enumerate(models)}
        everywhere = (1 << len(models)) - 1
        classes = Counter(
            (
                pod.cpu_milli,
                pod.gpus,
                pod.gpu_percent,
                sum(bit.get(model, 0) for model in pod.models) if pod.models else everywhere,
            )
            for pod in pods
        )
        columns = np.array(list(classes), np.int64).reshape(-1, 4).T.copy()
        counts = np.array(list(classes.values()), np.int64)
        return cls(columns[0], columns[1], columns[2], columns[3], counts, int(counts.sum()))


@dataclass(frozen=True, slots=True)
class FgdGrowths:
    """Effect of a task on nodes where it fits, (n,) each.

    Attributes:
        growth: growth of F, in percent of a GPU times the number of tasks in the workload.
        gpu_rows: row of the GPU that a task of one GPU takes; otherwise -1.
        free_percent: free share of that GPU afterwards; otherwise 0.
    """

    growth: Int64Array
    gpu_rows: Int64Array
    free_percent: Int64Array


def growths(
    cluster: PackedCluster, workload: FgdWorkload, pod: TracePod, node_rows: Int64Array
) -> FgdGrowths:
    """Return the growth of F on each of the nodes, on which the pod fits."""
    fleet = cluster.ledger.fleet.arrays
    result = FgdGrowths(*(np.empty_like(node_rows) for _ in range(3)))
    scratch = np.empty(int(fleet.node_gpus.max()), np.int64)
    fgd_kernels.growths(
        node_rows, pod.gpus, pod.gpu_percent, pod.cpu_milli, cluster.model_of,
        workload.cpus_milli, workload.gpus, workload.percents, workload.models, workload.counts,
        fleet.node_first_gpu, fleet.node_gpus, fleet.node_free_cpu_milli, fleet.gpu_free_percent,
        scratch, result.growth, result.gpu_rows, result.free_percent,
    )  # fmt: skip
    return result


def fragmentation_percent(cluster: PackedCluster, workload: FgdWorkload) -> float:
    """Return the expected share of the cluster's GPUs that is free and unusable by the workload."""
    lost = 0
    for node, free_cpu_milli in enumerate(cluster.free_cpu_milli.tolist()):
        percents = np.maximum(cluster.free_percents(node), 0).astype(np.int64)
        lost += fgd_kernels.fragment(
            percents, len(percents), free_cpu_milli, int(cluster.model_of[node]),
            workload.cpus_milli, workload.gpus, workload.percents, workload.models, workload.counts,
        )  # fmt: skip
    return 100 * lost / (workload.total * cluster.capacity_percent)
