"""`esg agent`: reads the GPUs, assesses their health, and publishes it on the node.

At its end it removes the GPUs from the node, so that a node that leaves is as before. While pods
have shares of them it marks them as unhealthy instead: these pods continue, and their requests stay
in the capacity. Either way unsupervised GPUs are not offered, because nothing would notice that one
fails. The next agent offers them again after its first reading.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from scheduler.agent.gpus.inventory import AssessedGpu, Inventory
from scheduler.agent.gpus.reader import read_gpus
from scheduler.agent.gpus.reading import Reading
from scheduler.agent.health_events import HealthEvents
from scheduler.agent.metrics import (
    AgentMetrics,
    Sample,
    client_samples,
    clients_max,
    excess_samples,
    gpu_samples,
    granted_samples,
    pod_samples,
)
from scheduler.agent.mps.daemon_state import DaemonState, read_state, trouble_of
from scheduler.agent.node_publisher import DesiredNodeState, Publisher
from scheduler.agent.node_taints import NodeTaints
from scheduler.agent.pod_events import PodEvents
from scheduler.agent.pods.claimants import Claims, NodeUsers
from scheduler.agent.pods.grants import write_grants
from scheduler.agent.pods.memory_use import MemoryExcesses, memory_by_pod
from scheduler.agent.pods.node_pods import NodePods
from scheduler.agent.pods.process_pods import pod_uid_of_process
from scheduler.agent.settings import AgentSettings
from scheduler.cluster.errors import ClusterError
from scheduler.cluster.events import Reference
from scheduler.cluster.one_node import OneNode
from scheduler.cluster.reflector import Handler
from scheduler.model.node import Gpu

if TYPE_CHECKING:
    from scheduler.agent.dra.kubelet_plugin import KubeletPlugin

log = structlog.get_logger(__name__)

_CHECK_EVERY_S = 1.0  # of the MPS daemons' states, and of NVML's silence
_EVICT_EVERY_S = 10.0  # an eviction that a disruption budget refuses is retried
_LAST_WRITE_S = 3.0  # time limit of the last write, which delays the end of the process

ConnectNode = Callable[[Handler, Handler], AbstractAsyncContextManager[OneNode]]
"""Connects to the node, with the handlers of the node and of its pods."""


class Agent:
    """The agent of one node; it works while `run` runs."""

    def __init__(
        self,
        settings: AgentSettings,
        node: str,
        *,
        connect: ConnectNode,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.metrics = AgentMetrics(self._samples)
        self._settings = settings
        self._node = node
        self._connect = connect
        self._clock = clock
        self._inventory = Inventory(settings, clock=clock)
        self._publisher = Publisher(NodeTaints(is_autoscaled=settings.autoscaled, clock=clock))
        self._claims = Claims(
            Path(settings.mps_permits) if settings.mps_permits else None, uid_of=pod_uid_of_process
        )
        self._pods = NodePods(self._write_grants)
        self._plugin = _kubelet_plugin(settings, self._pods)
        self._excesses = MemoryExcesses(
            tolerance_ratio=settings.memory_tolerance_ratio, clock=clock
        )
        self._grants_problem = ""
        self._gpus: tuple[AssessedGpu, ...] = ()
        self._xids: Counter[tuple[str, int]] = Counter()
        self._outdated = False
        self._cuda_version: int | None = None

    def not_ready_reason(self) -> str:
        """Explain why the node cannot run function pods as it shows; empty if it can."""
        plugin_problem = "" if self._plugin is None else self._plugin.problem
        return self._inventory.problem or self._publisher.trouble or plugin_problem

    def unhealthy_reason(self) -> str:
        """Explain why a new container must replace this one; empty while it can work.

        A container gets the driver's libraries and devices at its creation. One that is older than
        the driver never sees them, and after an exchange of the driver it has the old ones. A
        hanging call of NVML is no reason: it hangs in the driver, where another process's calls
        would hang too, and such a process may not even be killable.
        """
        if self._outdated:
            return "the driver was exchanged while this process ran; restart the container"
        unavailable_s = self._inventory.unavailable_s
        if unavailable_s >= self._settings.nvml_restart_after_s:
            return (
                f"NVML reports no GPUs for {unavailable_s:.0f} s ({self._inventory.problem}); "
                "restart the container: a new one gets the driver's current libraries"
            )
        return ""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set, then remove the GPUs, or mark them as unhealthy.

        Raises:
            ClusterConfigError: no usable API server, or no valid node name, is configured.
        """
        async with self._connect(self._publisher, self._pods) as link:
            events = HealthEvents(
                lambda kind, reason, message: link.record_event(
                    type=kind, reason=reason, message=message
                )
            )

            pod_events = PodEvents(
                lambda pod, kind, reason, message: link.record_event(
                    type=kind, reason=reason, message=message, pod=pod
                )
            )

            try:
                with read_gpus(partial(self._update, events), every_s=self._settings.read_every_s):
                    tasks = (
                        link.run(),
                        self._publisher.run(link),
                        self._keep_checking(events, pod_events),
                        *([self._keep_evicting(link)] if self._settings.evict_after_s else []),
                        *([] if self._plugin is None else [self._plugin.run()]),
                    )
                    await _run_until(stop, tasks)
            finally:
                await self._leave(link)

    def _update(self, events: HealthEvents, reading: Reading) -> None:
        self._outdated = reading.outdated
        self._cuda_version = reading.cuda_version or self._cuda_version
        for xid in reading.xids:
            self._xids[xid.uuid, xid.code] += 1
        events.report_reading(reading)
        self._inventory.update(reading)
        self._check(events)

    async def _keep_checking(self, events: HealthEvents, pod_events: PodEvents) -> None:
        while True:
            self._write_grants()
            self._check(events)
            self._check_memory(pod_events)
            for assessed in self._gpus:
                uuid = assessed.gpu.uuid
                pod_events.report_ended(uuid, self._daemon(uuid).clients, self._pods.granted)
            await asyncio.sleep(_CHECK_EVERY_S)

    def _check_memory(self, pod_events: PodEvents) -> None:
        pods = self._pods.granted
        used_bytes = memory_by_pod(self._gpus, pods, pod_uid_of_process)
        pod_events.report_memory(self._excesses.update(used_bytes, pods))

    async def _keep_evicting(self, link: OneNode) -> None:
        """Evict pods that exceed their memory, and retry while they do."""
        while True:
            for excess in self._excesses.lasting(self._settings.evict_after_s):
                pod = excess.pod
                try:
                    await link.evict(Reference.pod(pod.namespace, pod.name, pod.uid))
                except ClusterError as error:
                    log.warning("pod not evicted", pod=pod.name, problem=str(error))
                else:
                    log.warning("pod evicted", pod=pod.name, namespace=pod.namespace)
            await asyncio.sleep(_EVICT_EVERY_S)

    def _write_grants(self) -> None:
        """Write the granted pods for `esg mps`, which must know new ones before they start."""
        if not self._settings.mps_grants or not self._pods.is_complete:
            return
        problem = ""
        try:
            write_grants(Path(self._settings.mps_grants), self._pods.granted, clock=self._clock)
        except OSError as error:
            problem = str(error)
        if problem and problem != self._grants_problem:
            log.error("grants cannot be written for `esg mps`", problem=problem)
        self._grants_problem = problem

    def _check(self, events: HealthEvents) -> None:
        """Assess and publish the GPUs."""
        if not self._inventory.is_known:
            return
        if self._settings.check_claims:
            self._claims.update(self._inventory.devices, self._users())
        self._gpus = self._inventory.assessed(
            lambda uuid: trouble_of(self._daemon(uuid)), self._claims.of
        )
        self._publish(tuple(assessed.gpu for assessed in self._gpus))
        if self._users() is not None:  # before that, each start would report a problem
            events.report_health(self._gpus)

    def _users(self) -> NodeUsers | None:
        if self._publisher.node is None or not self._pods.is_complete:
            return None
        pods = self._pods
        return NodeUsers(self._publisher.node, pods.granted, pods.whole_gpu.values())

    def _publish(self, gpus: tuple[Gpu, ...]) -> None:
        self._publisher.set_desired(
            DesiredNodeState(gpus, self._pods.requests() if self._pods.is_complete else None)
        )

    async def _leave(self, link: OneNode) -> None:
        """Remove the GPUs from the node; while pods have shares of them, mark them as unhealthy."""
        if not self._inventory.is_known:
            return
        gpus = (assessed.gpu for assessed in self._gpus)
        self._publish(tuple(gpu.model_copy(update={"healthy": False}) for gpu in gpus))
        is_idle = self._pods.is_complete and not self._pods.granted and not self._pods.requests()
        try:
            async with asyncio.timeout(_LAST_WRITE_S):
                if is_idle:
                    await self._publisher.withdraw(link)
                else:
                    await self._publisher.reconcile(link)
        except (ClusterError, TimeoutError) as error:
            log.warning("GPUs not removed from the node", problem=str(error) or "no answer")

    def _daemon(self, uuid: str) -> DaemonState:
        return read_state(
            Path(self._settings.mps_root) / uuid,
            clock=self._clock,
            silent_after_s=self._settings.mps_silent_after_s,
        )

    def _samples(self) -> Iterator[Sample]:
        node = self._node
        up = self._inventory.is_known and not self._inventory.problem
        yield "esg_agent_nvml_up", (node,), float(up)
        for field, count in self._publisher.writes.items():
            yield "esg_agent_node_writes_total", (node, field), count
        if self._plugin is not None:
            yield "esg_agent_claim_plugin_registered", (node,), float(not self._plugin.problem)
            for result, count in self._plugin.calls.items():
                yield "esg_agent_claims_total", (node, result), count
        yield from gpu_samples(node, self._gpus)
        uuids = {assessed.gpu.uuid for assessed in self._gpus}
        for uuid in uuids:
            daemon = self._daemon(uuid)
            yield "esg_mps_restarts_total", (node, uuid), daemon.restarts
            yield from client_samples(node, uuid, daemon.clients)
            yield "esg_mps_clients_max", (node, uuid), clients_max(self._cuda_version)
        for (uuid, code), count in self._xids.items():
            if uuid in uuids:
                yield "esg_gpu_xid_errors_total", (node, uuid, str(code)), count
        yield from excess_samples(self._excesses.current.values())
        yield from pod_samples(self._gpus, self._pods.granted, pod_uid_of_process)
        yield from granted_samples(node, self._pods.granted.values())


def _kubelet_plugin(settings: AgentSettings, pods: NodePods) -> "KubeletPlugin | None":
    if not settings.kubelet_root:
        return None
    from scheduler.agent.dra.kubelet_plugin import KubeletPlugin  # noqa: PLC0415 - it takes grpcio

    return KubeletPlugin(settings, pods)


async def _run_until(stop: asyncio.Event, coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run the coroutines until ``stop`` is set; none should end before, so raise its error."""
    stopping = asyncio.create_task(stop.wait())
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (stopping, *tasks):
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
