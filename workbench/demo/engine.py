"""What happens between a request's arrival and its end: queues, pods, kube-scheduler's two loops.

As kube-scheduler does it, one pod at a time goes through filter and prioritize, while the binds of
earlier ones are under way; a pod that fits nowhere waits until room comes (without kube-scheduler's
back-off of a second, for which these SLOs have no time). Containers start at once, as if the
functions were warm, and run for the planned time with log-normal noise.
"""

import asyncio
import contextlib
import math
import random
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.model.plan import Prices
from workbench.demo.extender import DemoGrant, Extender
from workbench.demo.requests import DemoRequest, Queue, WaitingStage

Json = dict[str, Any]
NOISE = 0.05  # standard deviation of the logarithm of run time over planned time
_FORCED_S = 1.0  # a pod that waits for room is tried again at least that often


@dataclass(slots=True)
class DemoTally:
    """What the scheduling came to."""

    filters: int = 0
    nowhere: int = 0  # filters after which the pod had to wait
    refused: int = 0  # binds
    batches: list[int] = field(default_factory=list)  # of the pods bound
    decided_s: list[float] = field(default_factory=list)  # first filter asked to bind answered
    late: int = 0  # pods whose plan said that the SLO cannot be met any more
    dollars_least: float = 0.0  # for the pods from bind answered to their end
    dollars_most: float = 0.0  # and from bind asked to the service having heard of their end


class Engine:
    """Plays the requests against one service; ``requests`` are those that have arrived so far."""

    def __init__(
        self, extender: Extender, nodes: Sequence[str], prices: Prices, rng: random.Random
    ) -> None:
        self.requests: list[DemoRequest] = []
        self.tally = DemoTally()
        self._extender = extender
        self._nodes = nodes
        self._prices = prices
        self._rng = rng
        self._queues: dict[tuple[tuple[str, str], str], Queue] = {}
        self._active: deque[Queue] = deque()  # whose pod is to be tried now
        self._parked: list[Queue] = []  # whose pod found no room
        self._rooms = 0  # how often room came
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()

    async def play(self, arrivals: Iterable[DemoRequest], *, drain_s: float) -> None:
        """Let all requests arrive in their time, and wait until they are served.

        Requests that are not served ``drain_s`` seconds after the last arrival are given up.
        """
        async with asyncio.TaskGroup() as group:
            scheduling = group.create_task(self._schedule(group))
            for request in arrivals:
                await asyncio.sleep(request.arrived - time.time())
                self.requests.append(request)
                self._advance([request])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._drained(), drain_s)
            scheduling.cancel()

    @property
    def waiting(self) -> int:
        """Requests that wait for a pod."""
        return sum(len(queue.waiting) for queue in self._queues.values())

    async def _drained(self) -> None:
        while any(request.ended is None for request in self.requests):
            self._ended.clear()
            await self._ended.wait()

    def _advance(self, requests: Iterable[DemoRequest]) -> None:
        """Let the requests wait for the stages that may run now."""
        now = time.time()
        for request in requests:
            for stage in request.ready_stages():
                key = request.workflow.key, stage.name
                if key not in self._queues:
                    self._queues[key] = Queue(request.workflow, stage.name)
                self._queues[key].add(request, now)
                self._want_pod(self._queues[key])

    def _want_pod(self, queue: Queue) -> None:
        if queue.waiting and queue.leader is None:
            queue.create_pod()
            self._active.append(queue)
            self._wake.set()

    # -- kube-scheduler ------------------------------------------------------------------------

    async def _schedule(self, group: asyncio.TaskGroup) -> None:
        while True:
            while not self._active:
                self._wake.clear()
                try:
                    await asyncio.wait_for(self._wake.wait(), _FORCED_S)
                except TimeoutError:
                    self._room_came()
            queue = self._active.popleft()
            rooms = self._rooms
            began = time.perf_counter()
            if queue.leader is not queue.waiting[0].request:  # overtaken while it waited
                await self._extender.delete(queue.pod())
                queue.create_pod()
            pod = queue.pod()
            self.tally.filters += 1
            passing = await self._extender.filter(pod, self._nodes)
            if not passing:
                self.tally.nowhere += 1
                # Room that came while filter was asked may have come too late for its answer.
                (self._parked if rooms == self._rooms else self._active).append(queue)
                continue
            node = passing[0] if len(passing) == 1 else await self._extender.best(pod, passing)
            group.create_task(self._bind(queue, pod, node, began, group))

    def _room_came(self) -> None:
        self._rooms += 1
        self._active.extend(self._parked)
        self._parked.clear()
        self._wake.set()

    async def _bind(
        self, queue: Queue, pod: Json, node: str, began: float, group: asyncio.TaskGroup
    ) -> None:
        asked = time.time()
        error = await self._extender.bind(pod, node)
        bound = time.time()
        if error:
            self.tally.refused += 1
            self._active.appendleft(queue)
            self._wake.set()
            return
        self.tally.decided_s.append(time.perf_counter() - began)
        grant = await self._extender.grant(pod)
        taken = queue.take(grant.batch)
        self._want_pod(queue)
        self.tally.batches.append(len(taken))
        self.tally.late += not grant.feasible
        group.create_task(self._run(_Running(pod, queue.stage, taken, grant, asked, bound)))

    # -- the kubelet, and the DAG engine -------------------------------------------------------

    async def _run(self, running: "_Running") -> None:
        grant = running.grant
        run_s = grant.stage_ms / 1000 * math.exp(self._rng.gauss(0.0, NOISE))
        await asyncio.sleep(running.bound + run_s - time.time())
        ended = time.time()
        await self._extender.finish(running.pod)
        told = time.time()
        self._room_came()
        self._account(running, ended, told)
        # The engine starts what comes next when the API server has told it that the pod has ended.
        self._advance(waiting.request for waiting in running.served)
        self._ended.set()
        await self._extender.delete(running.pod)

    def _account(self, running: "_Running", ended: float, told: float) -> None:
        grant, bound = running.grant, running.bound

        def dollars(seconds: float) -> float:
            return self._prices.request_cost_dollars(
                1000 * seconds, grant.cpu, grant.gpu_percent, 1
            )

        self.tally.dollars_least += dollars(ended - bound)
        self.tally.dollars_most += dollars(told - running.asked)
        for waiting in running.served:
            request = waiting.request
            request.cost += dollars(ended - bound) / len(running.served)
            request.waited_s += bound - waiting.since
            request.beyond_plan_s += ended - bound - grant.stage_ms / 1000
            request.led &= request is running.served[0].request
            request.succeed(running.stage, ended, told)


@dataclass(frozen=True, slots=True)
class _Running:
    """A pod that runs."""

    pod: Json
    stage: str
    served: list[WaitingStage]
    grant: DemoGrant
    asked: float  # when bind was asked, and
    bound: float  # when it had answered; seconds since the epoch
