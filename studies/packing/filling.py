"""Filling of a cluster: pods arrive one after the other and stay where they are placed."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from studies.packing.cluster import PackedCluster
from studies.packing.fgd import FgdWorkload, fragmentation_percent
from studies.packing.rules import RULES, KubeScheduler, RuleName
from studies.packing.trace import Machine, TracePod


class CpuPods(StrEnum):
    """Placement of pods without a GPU: by the rule, as for all others; or by kube-scheduler."""

    RULE = "rule"
    KUBE_SCHEDULER = "kube-scheduler"


@dataclass(frozen=True, slots=True)
class PackingPoint:
    """State of a filling; in percent of all GPUs of the cluster.

    Attributes:
        arrived_percent: share that the pods requested which have arrived.
        granted_percent: reserved share.
        fragmentation_percent: free share that is unusable, by the measure of `fgd`.
    """

    arrived_percent: float
    granted_percent: float
    fragmentation_percent: float


@dataclass(frozen=True, slots=True)
class Filled:
    """Result of a filling.

    Attributes:
        rule: rule of placement.
        pods: number of pods that arrived.
        unplaced: number of pods that fit on no node.
        unplaced_gpu: number of unplaced pods that request a GPU.
        unplaced_several: number of unplaced pods that request several GPUs.
        curve: state at each percent that arrived, and at the end.
        seconds: CPU time of placement, without that of the measures.
    """

    rule: RuleName
    pods: int
    unplaced: int
    unplaced_gpu: int
    unplaced_several: int
    curve: tuple[PackingPoint, ...]
    seconds: float

    @property
    def end(self) -> PackingPoint:
        """State after all arrivals."""
        return self.curve[-1]

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``esg openb --json`` prints, with units in the keys."""
        return {
            "rule": self.rule,
            "pods": self.pods,
            "unplaced": self.unplaced,
            "unplaced_gpu": self.unplaced_gpu,
            "unplaced_several": self.unplaced_several,
            "granted_percent": self.end.granted_percent,
            "fragmentation_percent": self.end.fragmentation_percent,
            "seconds": self.seconds,
            "curve": [asdict(point) for point in self.curve],
        }


def fill(  # noqa: PLR0913 - each by its name
    machines: Sequence[Machine],
    pods: Sequence[TracePod],
    rule: RuleName,
    *,
    expected: Iterable[TracePod],
    seed: int = 0,
    cpu_pods: CpuPods = CpuPods.RULE,
    track: Callable[[Sequence[TracePod]], Iterable[TracePod]] = iter,
) -> Filled:
    """Place the pods in their order; skip those that fit on no node.

    Args:
        machines: nodes of the empty cluster.
        pods: pods in the order of arrival.
        rule: rule of placement.
        expected: pods of the workload that FGD and the measure know in advance.
        seed: seed of the rule's random choices.
        cpu_pods: placement of pods without a GPU.
        track: function that wraps the iteration over the pods, for a progress bar.
    """
    cluster = PackedCluster(machines)
    workload = FgdWorkload.of(expected, cluster.models)
    for_gpu_pods = RULES[rule](cluster, workload, seed)
    for_cpu_pods = for_gpu_pods
    if cpu_pods is CpuPods.KUBE_SCHEDULER:
        for_cpu_pods = KubeScheduler(cluster, workload, seed)
    arrived_percent = 0
    unplaced: list[int] = []  # number of GPUs of each pod
    curve: list[PackingPoint] = []
    seconds = 0.0

    def add_point() -> None:
        """Add a point to the curve."""
        curve.append(
            PackingPoint(
                100 * arrived_percent / cluster.capacity_percent,
                100 * cluster.granted_percent / cluster.capacity_percent,
                fragmentation_percent(cluster, workload),
            )
        )

    for pod in track(pods):
        if 100 * arrived_percent >= len(curve) * cluster.capacity_percent:
            add_point()
        arrived_percent += pod.share_percent
        began = time.process_time()
        nodes = cluster.nodes_for(pod)
        if len(nodes):
            place = (for_gpu_pods if pod.gpus else for_cpu_pods).choose(pod, nodes)
            cluster.reserve(pod, place)
        else:
            unplaced.append(pod.gpus)
        seconds += time.process_time() - began
    add_point()
    return Filled(
        rule=rule,
        pods=len(pods),
        unplaced=len(unplaced),
        unplaced_gpu=sum(gpus > 0 for gpus in unplaced),
        unplaced_several=sum(gpus > 1 for gpus in unplaced),
        curve=tuple(curve),
        seconds=seconds,
    )
