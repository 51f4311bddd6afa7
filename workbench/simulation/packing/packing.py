"""One filling: pods arrive one after the other, and each stays where it is placed."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from workbench.simulation.packing.cluster import PackedCluster
from workbench.simulation.packing.fgd import FgdWorkload, fragmentation_percent
from workbench.simulation.packing.rules import RULES, KubeScheduler, RuleName
from workbench.simulation.packing.trace import Machine, Pod


class CpuPods(StrEnum):
    """Who places the pods that ask for no GPU: the rule, as for all others; or kube-scheduler."""

    RULE = "rule"
    KUBE_SCHEDULER = "kube-scheduler"


@dataclass(frozen=True, slots=True)
class PackingPoint:
    """A moment of a filling; all in percent of all GPUs of the cluster.

    Attributes:
        arrived_percent: what the pods ask that came until then.
        granted_percent: what is held.
        fragmentation_percent: what is free and of no use, after the measure of `fgd`.
    """

    arrived_percent: float
    granted_percent: float
    fragmentation_percent: float


@dataclass(frozen=True, slots=True)
class Filled:
    """What became of the pods.

    Attributes:
        rule: of placement.
        pods: how many came.
        unplaced: how many found no node.
        unplaced_gpu: how many of these ask for a GPU.
        unplaced_several: how many of those ask for several.
        curve: a point for each percent that arrived, and the end.
        seconds: of one core that placing took, without what is measured beside it.
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
        """When all had come."""
        return self.curve[-1]

    def as_json(self) -> dict[str, Any]:
        """With units in the keys: what ``esg openb --json`` prints."""
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


def fill(  # noqa: PLR0913 - what is placed, where, and how
    machines: Sequence[Machine],
    pods: Sequence[Pod],
    rule: RuleName,
    *,
    expected: Iterable[Pod],
    seed: int = 0,
    cpu_pods: CpuPods = CpuPods.RULE,
    track: Callable[[Sequence[Pod]], Iterable[Pod]] = iter,
) -> Filled:
    """Place the pods in their order; what finds no node is passed over.

    Args:
        machines: the cluster, empty.
        pods: as they arrive.
        rule: of placement.
        expected: pods of which the workload is made that FGD and the measure know beforehand.
        seed: of the rule's chance.
        cpu_pods: who places pods that ask for no GPU.
        track: what the pods go through on their way, for a progress bar.
    """
    cluster = PackedCluster(machines)
    workload = FgdWorkload.of(expected, cluster.models)
    chosen = RULES[rule](cluster, workload, seed)
    for_cpu_pods = chosen
    if cpu_pods is CpuPods.KUBE_SCHEDULER:
        for_cpu_pods = KubeScheduler(cluster, workload, seed)
    arrived_percent = 0
    unplaced: list[int] = []  # the GPUs that each asked
    curve: list[PackingPoint] = []
    seconds = 0.0

    def look() -> None:
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
            look()
        arrived_percent += pod.share_percent
        began = time.process_time()
        nodes = cluster.nodes_for(pod)
        if len(nodes):
            place = (chosen if pod.gpus else for_cpu_pods).choose(pod, nodes)
            cluster.hold(pod, place)
        else:
            unplaced.append(pod.gpus)
        seconds += time.process_time() - began
    look()
    return Filled(
        rule=rule,
        pods=len(pods),
        unplaced=len(unplaced),
        unplaced_gpu=sum(gpus > 0 for gpus in unplaced),
        unplaced_several=sum(gpus > 1 for gpus in unplaced),
        curve=tuple(curve),
        seconds=seconds,
    )
