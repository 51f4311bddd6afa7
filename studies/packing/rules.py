"""Rules of placement: one of the nodes on which a pod fits, and a GPU there."""

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import ClassVar

import numpy as np

from scheduler.model.plan import Candidate, Configuration
from scheduler.placement.arrays import Float64Array, Int64Array
from scheduler.placement.candidates import CpuRequest
from scheduler.placement.options import PlacementPolicy
from scheduler.placement.placement import place
from studies.packing import fgd
from studies.packing.cluster import GPU_MODEL, WHOLE, PackedCluster, PackedPod
from studies.packing.fgd import FgdWorkload
from studies.packing.trace import TracePod


class RuleName(StrEnum):
    """Names of the rules, as options give them."""

    RANDOM = "random"
    BEST_FIT = "best-fit"
    FGD = "fgd"
    FGD_ROUNDED = "fgd-rounded"
    PACK = "pack"
    DEFRAG = "defrag"


class Rule(ABC):
    """One rule, for one filling of one cluster.

    Attributes:
        description: description in a few words.
    """

    description: ClassVar[str]

    def __init__(self, cluster: PackedCluster, workload: FgdWorkload, seed: int) -> None:
        """Prepare for a cluster, an expected workload and a seed of random choices."""
        self.cluster = cluster
        self.workload = workload
        self.random = np.random.default_rng(np.random.SeedSequence(seed))

    @abstractmethod
    def choose(self, pod: TracePod, nodes: Int64Array) -> PackedPod:
        """Choose a place on one of these nodes, at least one, on which the pod fits."""

    def fitting_gpus(self, node: int, percent: int) -> Int64Array:
        """Return the rows of the node's GPUs that have so much free."""
        first = int(self.cluster.ledger.fleet.arrays.node_first_gpu[node])
        return first + np.flatnonzero(self.cluster.free_percents(node) >= percent)


class Random(Rule):
    """Any node, any GPU."""

    description = "any node on which the pod fits, any GPU there"

    def choose(self, pod: TracePod, nodes: Int64Array) -> PackedPod:
        """Choose at random."""
        node = int(self.random.choice(nodes))
        if pod.gpus != 1:
            return PackedPod(node, self.cluster.entirely_free(node, pod.gpus))
        return PackedPod(node, (int(self.random.choice(self.fitting_gpus(node, pod.gpu_percent))),))


class BestFit(Rule):
    """Least free vCPUs and GPU share, with equal weight, relative to those of the largest node."""

    description = "least vCPUs and GPU share left on the node, then on the GPU"

    def choose(self, pod: TracePod, nodes: Int64Array) -> PackedPod:
        """Choose the fullest node and its fullest GPU."""
        cluster, fleet = self.cluster, self.cluster.ledger.fleet
        # The pod takes the same everywhere: the order is the same before and after.
        cpu_ratio = cluster.free_cpu_milli[nodes] / cluster.cpu_milli.max()
        gpu_ratio = cluster.free_percent[nodes] / (100 * fleet.arrays.node_gpus.max())
        free: Float64Array = cpu_ratio + gpu_ratio
        node = int(nodes[free.argmin()])
        if pod.gpus != 1:
            return PackedPod(node, cluster.entirely_free(node, pod.gpus))
        gpus = self.fitting_gpus(node, pod.gpu_percent)
        return PackedPod(node, (int(gpus[fleet.arrays.gpu_free_percent[gpus].argmin()]),))


class Fgd(Rule):
    """Fragmentation gradient descent for the workload of the whole trace."""

    description = "fragmentation gradient descent, with the whole workload known in advance"

    def cost(self, growth: Int64Array) -> Int64Array:
        """Return what is compared: the growth of F on each node, as `fgd.growths` has it."""
        return growth

    def choose(self, pod: TracePod, nodes: Int64Array) -> PackedPod:
        """Choose the node and GPU of least cost."""
        cluster = self.cluster
        result = fgd.growths(cluster, self.workload, pod, nodes)
        cost = self.cost(result.growth)
        alike = np.flatnonzero(cost == cost.min())
        free_cpu_milli = cluster.free_cpu_milli[nodes[alike]]
        free_percent = cluster.free_percent[nodes[alike]]
        order = np.lexsort((free_cpu_milli, free_percent, result.free_percent[alike]))
        best = int(alike[order[0]])
        node = int(nodes[best])
        if pod.gpus != 1:
            return PackedPod(node, cluster.entirely_free(node, pod.gpus))
        return PackedPod(node, (int(result.gpu_rows[best]),))


class FgdRounded(Fgd):
    """The same by integer scores: best fit decides between nodes of equal score.

    Kubernetes scores nodes in integers from 0 to 100. The public simulator of FGD's authors
    (hkust-adsl/kubernetes-scheduler-simulator) takes the sigmoid of what F falls by, in GPUs, times
    100, rounded down. It orders equal nodes by their names.
    """

    description = "the same by integer scores from 0 to 100, as in the simulator of its authors"

    def cost(self, growth: Int64Array) -> Int64Array:
        """Return the scores, with the opposite sign."""
        growth_gpus = growth / (WHOLE * self.workload.total)
        scores = np.floor(100.0 / (1.0 + np.exp(growth_gpus)))
        return -scores.astype(np.int64)


class Pack(Rule):
    """The default live placement: candidate, GPU, score and order are those of a function pod.

    A pod of several GPUs is placed as one GPU with its part of the vCPUs, on nodes that have as
    many GPUs entirely free. A pod without a GPU goes to a node without GPUs; if it fits on none, it
    is placed as one without a share. No node is warm or a predecessor's, and the first is the home
    of all.
    """

    description = "ours, ESG_PLACEMENT=pack"
    policy: ClassVar[PlacementPolicy] = "pack"

    def choose(self, pod: TracePod, nodes: Int64Array) -> PackedPod:
        """Choose the node that filter puts first, and the GPU that bind takes there."""
        fleet = self.cluster.ledger.fleet
        without_gpu = nodes[fleet.arrays.node_gpus[nodes] == 0]
        if len(without_gpu):  # only pods without a GPU run there
            return PackedPod(int(without_gpu[0]), ())
        configuration = Configuration(1, 0, pod.gpu_percent, 0, 0.0)
        placement = place(
            fleet,
            [Candidate(configuration, GPU_MODEL, 0.0, 0.0, 0.0)],
            nodes,
            cpu=CpuRequest(container_milli=pod.cpu_milli // max(pod.gpus, 1)),
            policy=self.policy,
            mix_of=self.cluster.ledger.mix,
        )
        best = placement.best
        assert best is not None  # noqa: S101 - the pod fits on all nodes
        node = int(nodes[best])
        if pod.gpus == 1:
            return PackedPod(node, (int(placement.gpu_rows[best]),))
        return PackedPod(node, self.cluster.entirely_free(node, pod.gpus))


class Defrag(Pack):
    """The live placement against fragmentation; it knows only the current reservations."""

    description = "ours, ESG_PLACEMENT=defrag; the request mix is that of the current reservations"
    policy = "defrag"


class KubeScheduler(Rule):
    """kube-scheduler's default scores: least allocated, and balanced, with the same weight.

    NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation, over vCPUs and memory.
    They place pods without a GPU live, because kube-scheduler calls no extender for these; here
    they place no other.
    """

    description = "kube-scheduler's default scores"

    def choose(self, pod: TracePod, nodes: Int64Array) -> PackedPod:
        """Choose the emptiest and most balanced node."""
        cluster = self.cluster
        cpu_free = (cluster.free_cpu_milli[nodes] - pod.cpu_milli) / cluster.cpu_milli[nodes]
        memory_free = (cluster.free_memory_mib[nodes] - pod.memory_mib) / cluster.memory_mib[nodes]
        # The standard deviation of two numbers is half their difference.
        score = (cpu_free + memory_free) / 2 + 1 - np.abs(cpu_free - memory_free) / 2
        return PackedPod(int(nodes[score.argmax()]), ())


RULES: dict[RuleName, type[Rule]] = {
    RuleName.RANDOM: Random,
    RuleName.BEST_FIT: BestFit,
    RuleName.FGD: Fgd,
    RuleName.FGD_ROUNDED: FgdRounded,
    RuleName.PACK: Pack,
    RuleName.DEFRAG: Defrag,
}
