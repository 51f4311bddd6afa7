"""Fragmentation: the free share that what usually asks could not use, and how a grant adds to it.

The measure is after Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent" (USENIX ATC 2023), derived anew from its rule: the expected free
share of a GPU that an ask, drawn from the mix of asks, could not use; a pod goes where its grant
makes that grow least. Two things differ. A class of asks uses no more of a node than the node's
free vCPUs serve, and no more of a GPU than its memory and MPS clients serve, where the paper's
measure is content with one ask that fits. And the mix is what is held now, where the paper's is
given beforehand. Why: docs/adr/0010-placing-against-fragmentation.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nlargest
from typing import NamedTuple, Self

import numpy as np

from scheduler.placement import fragmentation_kernels
from scheduler.placement.fleet import Fleet, Int64Array

CLASSES_MAX = 16  # the most frequent ones: more change nothing that was seen, and cost time


class RequestClass(NamedTuple):
    """What one ask takes."""

    cpu_milli: int
    percent: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class RequestMix:
    """What usually asks on GPUs of one model: classes, and how often each occurs.

    All four are (m,), the most frequent first: thousandths of a vCPU, percent, MiB, how often.
    """

    cpus_milli: Int64Array
    percents: Int64Array
    memories_mib: Int64Array
    counts: Int64Array

    @classmethod
    def of(cls, counted: Mapping[RequestClass, int], *, most: int = CLASSES_MAX) -> Self:
        """The mix of the most frequent classes; an ask for no share is in none."""
        asked = [(count, ask) for ask, count in counted.items() if count > 0 and ask.percent > 0]
        chosen = nlargest(most, asked)
        return cls(
            np.array([ask.cpu_milli for _, ask in chosen], np.int64),
            np.array([ask.percent for _, ask in chosen], np.int64),
            np.array([ask.memory_mib for _, ask in chosen], np.int64),
            np.array([count for count, _ in chosen], np.int64),
        )


@dataclass(frozen=True, slots=True)
class FragmentationDelta:
    """What a grant would do on each node, (n,) each; 0 where the node does not hold it.

    Attributes:
        growth: of fragmentation, on the GPU where it is least: percent of a GPU, times the number
            of asks in the mix, so that equals are equal.
        free_percent: what is free on all the node's GPUs of the model before it.
    """

    growth: Int64Array
    free_percent: Int64Array


def least_growths(  # noqa: PLR0913 - the fleet, the question, and where the answer goes
    fleet: Fleet,
    mix: RequestMix,
    node_rows: Int64Array,
    gpu_rows: Int64Array,
    *,
    model: int,
    ask: RequestClass,
) -> FragmentationDelta:
    """How much an ask makes fragmentation grow on each node, at the least.

    ``model`` is the number of a GPU model. ``gpu_rows`` (n,) is -1 where a node does not hold the
    ask; elsewhere the GPU of least growth is written.
    """
    growths = FragmentationDelta(np.empty_like(gpu_rows), np.empty_like(gpu_rows))
    fragmentation_kernels.least_growths(
        node_rows, model, ask.percent, ask.memory_mib, ask.cpu_milli,
        mix.cpus_milli, mix.percents, mix.memories_mib, mix.counts,
        fleet.node_first_gpu, fleet.node_gpus, fleet.node_free_cpu_milli,
        fleet.gpu_model, fleet.gpu_free_percent, fleet.gpu_free_memory_mib, fleet.gpu_free_clients,
        np.empty_like(mix.counts), gpu_rows, growths.growth, growths.free_percent,
    )  # fmt: skip
    return growths
