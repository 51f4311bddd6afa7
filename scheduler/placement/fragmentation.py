"""Fragmentation: free share that usual requests cannot use, and its growth by a grant.

The measure is after Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent" (USENIX ATC 2023), derived from its rule: the expected free share of
a GPU that a request, drawn from the mix of requests, cannot use; a pod goes where its grant adds
least to it. Two things differ. A class of requests uses no more of a node than the node's free
vCPUs serve, and no more of a GPU than its memory and MPS clients serve; the paper's measure only
tests if one more request fits. And the mix is that of the current reservations, where the paper's
is known in advance. Why: docs/adr/0010-placing-against-fragmentation.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nlargest
from typing import NamedTuple, Self

import numpy as np

from scheduler.kernel_calls import entry_point
from scheduler.placement import fragmentation_kernels
from scheduler.placement.arrays import FleetArrays, Float64Array, Int64Array, MixArrays

_minimize_growth = entry_point(fragmentation_kernels.minimize_growth)
CLASSES_MAX = 16  # of the most frequent; further ones changed no measurement, and take time


class RequestClass(NamedTuple):
    """Capacity that pods of one class request."""

    cpu_milli: int
    gpu_percent: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class RequestMix:
    """Usual requests on GPUs of one model: classes, and the number of pods of each."""

    arrays: MixArrays

    @classmethod
    def of(cls, pods_by_class: Mapping[RequestClass, int], *, limit: int = CLASSES_MAX) -> Self:
        """Return the mix of the most frequent classes, without those that request no share."""
        counted = [
            (pods, request)
            for request, pods in pods_by_class.items()
            if pods > 0 and request.gpu_percent > 0
        ]
        rows = [(*request, pods) for pods, request in nlargest(min(limit, CLASSES_MAX), counted)]
        columns = np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, 4).T)
        return cls(MixArrays(*columns))


@dataclass(frozen=True, slots=True)
class FragmentationDelta:
    """Effect of a grant on each node, (n,) each; 0 where the grant does not fit.

    Attributes:
        growth: growth of fragmentation on the GPU where it is smallest: percent of a GPU, times the
            number of pods in the mix, so that equal growths are equal integers.
        free_percent: free share of all the node's GPUs of the model before the grant.
        usable_percent: scratch of the kernel, (`CLASSES_MAX`,).
    """

    growth: Int64Array
    free_percent: Int64Array
    usable_percent: Int64Array

    @classmethod
    def of(cls, nodes: int) -> Self:
        """Return arrays for so many nodes."""
        return cls(*(np.zeros(count, np.int64) for count in (nodes, nodes, CLASSES_MAX)))


class GpuStarts(NamedTuple):
    """Times of container starts: see `kernels`."""

    ready_ms: Float64Array
    now_ms: float
    cold_ms: float


def minimize_growth(  # noqa: PLR0913 - each by its name
    fleet: FleetArrays,
    mix: RequestMix,
    node_rows: Int64Array,
    gpu_rows: Int64Array,
    *,
    model: int,
    request: RequestClass,
    starts: GpuStarts,
    delta: FragmentationDelta,
) -> None:
    """Move a request to the GPU of each node where it adds least to fragmentation.

    Among GPUs with the same start as that of ``gpu_rows`` (n,): -1 where the request does not fit
    on the node, otherwise replaced by the GPU of smallest growth. ``model`` is the GPU model's
    number. ``delta`` is written.
    """
    _minimize_growth(
        fleet, mix.arrays, node_rows, model, request.gpu_percent, request.memory_mib,
        request.cpu_milli, starts.ready_ms, starts.now_ms, starts.cold_ms,
        delta.usable_percent, gpu_rows, delta.growth, delta.free_percent,
    )  # fmt: skip
