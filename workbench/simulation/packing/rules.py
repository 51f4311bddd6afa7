"""Rules of placement: which of the nodes that hold a pod, and which GPU there."""

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import ClassVar

import numpy as np

from scheduler.model.plan import Candidate, Configuration
from scheduler.placement.arrays import Float64Array, Int64Array
from scheduler.placement.candidates import CpuRequest
from scheduler.placement.options import PlacementPolicy
from scheduler.placement.placement import place
from workbench.simulation.packing import fgd
from workbench.simulation.packing.cluster import GPU_MODEL, PackedCluster, Place
from workbench.simulation.packing.fgd import FgdWorkload
from workbench.simulation.packing.trace import Pod


class RuleName(StrEnum):
    """How a rule is asked for."""

    RANDOM = "random"
    BEST_FIT = "best-fit"
    FGD = "fgd"
    FGD_ROUNDED = "fgd-rounded"
    PACK = "pack"
    DEFRAG = "defrag"


class Rule(ABC):
    """One rule, for one filling of one cluster.

    Attributes:
        says: what it does, in a few words.
    """

    says: ClassVar[str]

    def __init__(self, cluster: PackedCluster, workload: FgdWorkload, seed: int) -> None:
        """For that cluster; the workload is what may be expected, the seed that of its chance."""
        self.cluster = cluster
        self.workload = workload
        self.random = np.random.default_rng(np.random.SeedSequence(seed))

    @abstractmethod
    def choose(self, pod: Pod, nodes: Int64Array) -> Place:
        """The place on one of these nodes, at least one, which all hold the pod."""

    def fitting_gpus(self, node: int, percent: int) -> Int64Array:
        """Rows of the node's GPUs that have so much free."""
        first = int(self.cluster.ledger.fleet.arrays.node_first_gpu[node])
        return first + np.flatnonzero(self.cluster.free_percents(node) >= percent)


class Random(Rule):
    """Any node, any GPU."""

    says = "any node that holds the pod, any GPU there"

    def choose(self, pod: Pod, nodes: Int64Array) -> Place:
        """At random."""
        node = int(self.random.choice(nodes))
        if pod.gpus != 1:
            return Place(node, self.cluster.entirely_free(node, pod.gpus))
        return Place(node, (int(self.random.choice(self.fitting_gpus(node, pod.gpu_percent))),))


class BestFit(Rule):
    """Where least is left over: vCPUs and GPU share alike, each against the largest node's."""

    says = "least vCPUs and GPU share left on the node, then on the GPU"

    def choose(self, pod: Pod, nodes: Int64Array) -> Place:
        """Node and GPU of least leftover."""
        cluster, fleet = self.cluster, self.cluster.ledger.fleet
        # What the pod takes is the same everywhere: free before, or left after, is one order.
        cpu_left = cluster.free_cpu_milli[nodes] / cluster.cpu_milli.max()
        gpu_left = cluster.free_percent[nodes] / (100 * fleet.arrays.node_gpus.max())
        left: Float64Array = cpu_left + gpu_left
        node = int(nodes[left.argmin()])
        if pod.gpus != 1:
            return Place(node, cluster.entirely_free(node, pod.gpus))
        gpus = self.fitting_gpus(node, pod.gpu_percent)
        return Place(node, (int(gpus[fleet.arrays.gpu_free_percent[gpus].argmin()]),))


class Fgd(Rule):
    """Fragmentation gradient descent, for the workload that the whole trace is."""

    says = "fragmentation gradient descent, told the whole workload beforehand"
    step_percent: ClassVar[float] = 0.0

    def choose(self, pod: Pod, nodes: Int64Array) -> Place:
        """Where F grows least."""
        cluster = self.cluster
        told = fgd.growths(cluster, self.workload, pod, nodes)
        growth = told.growth
        if self.step_percent:
            growth = np.floor(growth / (self.step_percent * self.workload.total)).astype(np.int64)
        alike = np.flatnonzero(growth == growth.min())
        free_cpu_milli = cluster.free_cpu_milli[nodes[alike]]
        free_percent = cluster.free_percent[nodes[alike]]
        order = np.lexsort((free_cpu_milli, free_percent, told.left_percent[alike]))
        best = int(alike[order[0]])
        node = int(nodes[best])
        if pod.gpus != 1:
            return Place(node, cluster.entirely_free(node, pod.gpus))
        return Place(node, (int(told.gpu_rows[best]),))


class FgdRounded(Fgd):
    """The same with small differences passed over, as whole scores do: then best fit decides more.

    Nodes are scored in whole numbers by Kubernetes, and the published simulator is one of its
    schedulers. The step is ours: with it the figures come near the published ones.
    """

    says = "the same, differences under 4 % of a GPU passed over, as whole scores do"
    step_percent = 4.0


class Pack(Rule):
    """The live placement as it is by default: candidate, GPU, score and order are those of a pod.

    A pod of several GPUs is asked about as one GPU with its part of the vCPUs, on nodes that have
    as many GPUs entirely free. A pod of none goes to a node without GPUs; if there is no room, it
    is asked about as one of no share. No node is warm or a predecessor's, and the first is the home
    of all.
    """

    says = "ours, ESG_PLACEMENT=pack"
    policy: ClassVar[PlacementPolicy] = "pack"

    def choose(self, pod: Pod, nodes: Int64Array) -> Place:
        """What filter puts first, and the GPU that bind takes there."""
        fleet = self.cluster.ledger.fleet
        without_gpu = nodes[fleet.arrays.node_gpus[nodes] == 0]
        if len(without_gpu):  # they hold no other pods
            return Place(int(without_gpu[0]), ())
        configuration = Configuration(1, 0, pod.gpu_percent, 0, 0.0)
        placing = place(
            fleet,
            [Candidate(configuration, GPU_MODEL, 0.0, 0.0, 0.0)],
            nodes,
            cpu=CpuRequest(container_milli=pod.cpu_milli // max(pod.gpus, 1)),
            policy=self.policy,
            mix_of=self.cluster.ledger.mix,
        )
        best = placing.best
        assert best is not None  # noqa: S101 - the nodes all have room
        node = int(nodes[best])
        if pod.gpus == 1:
            return Place(node, (int(placing.gpu_rows[best]),))
        return Place(node, self.cluster.entirely_free(node, pod.gpus))


class Defrag(Pack):
    """The live placement that guards against fragmentation; it knows what is held, and no more."""

    says = "ours, ESG_PLACEMENT=defrag; the mix of asks is learned from what is held"
    policy = "defrag"


class KubeScheduler(Rule):
    """kube-scheduler's default scores: least allocated, and balanced, with the same weight.

    NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation, over vCPUs and memory:
    what places a pod live that asks for no GPU, for it is not put to the extender; and here no
    other.
    """

    says = "kube-scheduler's default scores"

    def choose(self, pod: Pod, nodes: Int64Array) -> Place:
        """The emptiest and most balanced node."""
        cluster = self.cluster
        cpu_free = (cluster.free_cpu_milli[nodes] - pod.cpu_milli) / cluster.cpu_milli[nodes]
        memory_free = (cluster.free_memory_mib[nodes] - pod.memory_mib) / cluster.memory_mib[nodes]
        # The standard deviation of two numbers is half their difference.
        score = (cpu_free + memory_free) / 2 + 1 - np.abs(cpu_free - memory_free) / 2
        return Place(int(nodes[score.argmax()]), ())


RULES: dict[RuleName, type[Rule]] = {
    RuleName.RANDOM: Random,
    RuleName.BEST_FIT: BestFit,
    RuleName.FGD: Fgd,
    RuleName.FGD_ROUNDED: FgdRounded,
    RuleName.PACK: Pack,
    RuleName.DEFRAG: Defrag,
}
