"""Pods of the live dispatcher in the simulated cluster.

They hold their share while idle, or, in a pool, their memory alone.
"""

from collections.abc import Mapping
from math import inf

import numpy as np

from scheduler.dispatch.pods import Pod, PodStart, PodState, Share
from scheduler.model.plan import Candidate, Configuration
from scheduler.placement.placement import Placer
from workbench.simulation.containers.configurations import anywhere
from workbench.simulation.containers.functions import Container, Function
from workbench.simulation.containers.grant_cache import ContainerGrant, GrantOffers
from workbench.simulation.live.slices import SimulatedSlices
from workbench.simulation.setup import SimulationState


class WarmPods:
    """Starts and stops pods.

    Attributes:
        containers: container of each pod, by the pod's name.
    """

    def __init__(self, state: SimulationState, slices: SimulatedSlices) -> None:
        self._cluster = state.cluster
        self._slices = slices
        self._grants = state.grants
        self._functions: Mapping[str, Function] = state.functions
        scenario = state.scenario
        self._placers = {
            name: Placer(
                state.cluster.ledger.fleet,
                name,
                cold_ms=function.slow_start_ms,
                policy=scenario.placement,
                mix_of=state.cluster.ledger.mix,
            )
            for name, function in state.functions.items()
        }
        self._offers: dict[tuple[str, Share], GrantOffers] = {}
        self._no_container_ms = np.full(len(state.cluster.gpu_uuids), inf)
        self._no_transfer_ms = np.zeros(len(state.cluster.node_names))
        self._no_predecessors = np.empty(0, np.int64)
        self.containers: dict[str, Container] = {}
        self._pods: dict[str, Pod] = {}

    def start(self, start: PodStart, now_ms: float, *, warm: bool) -> Pod | None:
        """Start a pod; None if no node has room for it."""
        (_, function), share = start.function, start.share
        offers = self._offers.get((function, share))
        if offers is None:
            configuration = Configuration(1, share.cpu, share.gpu_percent, share.memory_mib, 1.0)
            candidate: Candidate = anywhere(configuration, share.gpu_model)
            offers = self._offers[function, share] = self._grants.offers([candidate])
        grant = offers.grants[0]
        if start.pooled:
            gpu = self._gpu_of_pool(function, grant)
        else:
            place = self._placers[function].best_gpu(
                offers.table,
                self._no_transfer_ms,
                self._no_container_ms,
                now_ms,
                self._no_predecessors,
            )
            gpu = None if place is None else place[1]
        if gpu is None:
            return None
        container = self._cluster.start_reserved(
            self._functions[function], grant, gpu, now_ms, warm=warm, pooled=start.pooled
        )
        pod = Pod(
            container.uid,
            start.function,
            share,
            pooled=start.pooled,
            node=self._cluster.node_names[container.node],
            gpu=self._cluster.gpu_uuids[gpu],
            state=PodState.READY if warm else PodState.STARTING,
            ready_ms=container.ready_ms,
        )
        self.containers[pod.name] = container
        self._pods[pod.name] = pod
        return pod

    def _gpu_of_pool(self, function: str, grant: ContainerGrant) -> int | None:
        """Return the GPU with the fewest containers of a function, then with the most memory."""
        cluster = self._cluster

        def rank(gpu: int) -> tuple[int, int]:
            on_gpu = cluster.containers_on[gpu]
            return sum(c.function.name == function for c in on_gpu), -cluster.free_mib(gpu)

        gpus = (
            gpu
            for gpu, known in self._slices.by_gpu.items()
            if known.is_open
            and known.percent >= grant.percent
            and cluster.has_room(gpu, grant, pooled=True)
        )
        return min(gpus, key=rank, default=None)

    def stop_lost(self, container: Container, now_ms: float) -> Pod:
        """End a pod whose GPU has failed, and return it."""
        pod = self._pods[container.uid]
        self.stop(pod, now_ms)
        return pod

    def stop(self, pod: Pod, now_ms: float) -> None:
        """End a pod."""
        del self._pods[pod.name]
        self._cluster.stop(self.containers.pop(pod.name), now_ms)
