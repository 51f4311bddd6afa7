"""`esg agent`: reads the GPUs, judges them, and keeps the node showing the result.

At its end it marks the GPUs as ill, with one last write. From then on nobody would notice a GPU
that falls ill or an MPS daemon that dies, and what nobody looks after is not offered. Pods that run
keep running, and their requests stay in the capacity; the next agent offers the GPUs again after
its first reading.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import structlog

from scheduler.agent.daemon_state import DaemonState, read_state, trouble_of
from scheduler.agent.health_events import HealthEvents
from scheduler.agent.inventory import Inventory, Judged
from scheduler.agent.metrics import AgentMetrics, Sample, gpu_samples, pod_samples
from scheduler.agent.node_publisher import DesiredNodeState, Publisher
from scheduler.agent.pods import NodePods, pod_uid_of_process
from scheduler.agent.reader import reading_gpus
from scheduler.agent.reading import Reading
from scheduler.agent.settings import AgentSettings
from scheduler.cluster.errors import ClusterError
from scheduler.cluster.one_node import OneNode
from scheduler.cluster.reflector import Handler
from scheduler.model.node import Gpu

log = structlog.get_logger(__name__)

_LOOK_EVERY_S = 1.0  # at the states of the MPS daemons, and at how long NVML has been silent
_LAST_WRITE_S = 3.0  # what the end of the process may have to wait for

Connect = Callable[[Handler, Handler], AbstractAsyncContextManager[OneNode]]
"""Gives the node, and is handed whom to tell of it and of its pods."""


class Agent:
    """Everything that one agent holds; it works while `run` runs."""

    def __init__(
        self,
        settings: AgentSettings,
        node: str,
        *,
        connect: Connect,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.metrics = AgentMetrics(self._samples)
        self._settings = settings
        self._node = node
        self._connect = connect
        self._clock = clock
        self._inventory = Inventory(settings, clock=clock)
        self._publisher = Publisher()
        self._pods = NodePods()
        self._judged: tuple[Judged, ...] = ()
        self._xids: Counter[tuple[str, int]] = Counter()
        self._outdated = False

    def unreadiness(self) -> str:
        """Why the node does not show healthy GPUs as it should; empty when it does."""
        return self._inventory.problem or self._publisher.trouble

    def unhealthiness(self) -> str:
        """Why this container must be replaced by a new one; empty while it can do its work.

        The driver's libraries and devices are put into a container when it is made. So one that was
        made before they were there never sees them, and one whose driver was exchanged has those of
        the old one. A call of NVML that hangs is no reason: it hangs in the driver, where another
        process' calls would too, and a process that hangs there may not even be killed.
        """
        if self._outdated:
            return "the driver was exchanged while this process ran; it must be started anew"
        nothing_s = self._inventory.told_nothing_s
        if nothing_s >= self._settings.nvml_restart_after_s:
            return (
                f"NVML has told nothing for {nothing_s:.0f} s ({self._inventory.problem}); a new "
                "container has the driver's libraries that are there now"
            )
        return ""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set, then mark the GPUs as ill.

        Raises:
            ClusterConfigError: no usable API server is configured, or no usable node's name.
        """
        async with self._connect(self._publisher, self._pods) as link:
            teller = HealthEvents(
                lambda kind, reason, message: link.record_event(
                    type=kind, reason=reason, message=message
                )
            )

            def take(reading: Reading) -> None:
                self._take(reading, teller)

            try:
                with reading_gpus(take, every_s=self._settings.read_every_s):
                    works = (link.run(), self._publisher.run(link), self._keep_looking(teller))
                    await _until(stop, works)
            finally:
                await self._mark_ill(link)

    def _take(self, reading: Reading, teller: HealthEvents) -> None:
        self._outdated = reading.outdated
        for xid in reading.xids:
            self._xids[xid.uuid, xid.code] += 1
        teller.heard(reading)
        self._inventory.take(reading)
        self._look(teller)

    async def _keep_looking(self, teller: HealthEvents) -> None:
        while True:
            self._look(teller)
            await asyncio.sleep(_LOOK_EVERY_S)

    def _look(self, teller: HealthEvents) -> None:
        """Judge the GPUs anew, and publish them."""
        if not self._inventory.known:
            return
        self._judged = self._inventory.judged(lambda uuid: trouble_of(self._daemon(uuid)))
        self._want(tuple(each.gpu for each in self._judged))
        teller.judged(self._judged)

    def _want(self, gpus: tuple[Gpu, ...]) -> None:
        self._publisher.want(
            DesiredNodeState(gpus, self._pods.requests() if self._pods.known else None)
        )

    async def _mark_ill(self, link: OneNode) -> None:
        if not self._inventory.known:
            return
        ill = tuple(each.gpu.model_copy(update={"healthy": False}) for each in self._judged)
        self._want(ill)
        try:
            async with asyncio.timeout(_LAST_WRITE_S):
                await self._publisher.make_so(link)
        except (ClusterError, TimeoutError) as error:
            log.warning("the GPUs could not be marked as ill", problem=str(error) or "no answer")

    def _daemon(self, uuid: str) -> DaemonState:
        return read_state(
            Path(self._settings.mps_root) / uuid,
            clock=self._clock,
            silent_after_s=self._settings.mps_silent_after_s,
        )

    def _samples(self) -> Iterator[Sample]:
        node = self._node
        up = self._inventory.known and not self._inventory.problem
        yield "esg_agent_nvml_up", (node,), float(up)
        for what, count in self._publisher.writes.items():
            yield "esg_agent_node_writes_total", (node, what), count
        yield from gpu_samples(node, self._judged)
        here = {each.gpu.uuid for each in self._judged}
        for uuid in here:
            yield "esg_mps_restarts_total", (node, uuid), self._daemon(uuid).restarts
        for (uuid, code), count in self._xids.items():
            if uuid in here:
                yield "esg_gpu_xid_errors_total", (node, uuid, str(code)), count
        yield from pod_samples(self._judged, self._pods.granted, pod_uid_of_process)


async def _until(stop: asyncio.Event, works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do the works until ``stop`` is set; raise what ends one of them, for none ever should."""
    stopping = asyncio.create_task(stop.wait())
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (stopping, *tasks):
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error
