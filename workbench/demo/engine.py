"""Kube-scheduler's two loops, the DAG engine and the kubelet of the demo.

As in kube-scheduler, one pod at a time goes through filter and prioritize, while the binds of
earlier pods are pending; a pod without a feasible node waits until capacity is freed (without
kube-scheduler's back-off of a second, for which these SLOs have no time). Containers start at once,
as if the functions were warm, and run for the planned time with log-normal noise.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scheduler.model.documents import Workflow
from scheduler.model.plan import Prices
from workbench.demo.extender import DemoGrant, ExtenderClient
from workbench.demo.requests import DemoJob, DemoRequest, DemoWorkflow, PodQueue
from workbench.simulation.rng import Noise

NOISE_RATIO = 0.05  # standard deviation of log(run time / planned time)
_RETRY_S = 1.0  # a pod without a feasible node is tried again at least so often


@dataclass(slots=True)
class PodCounts:
    """Counts and times of scheduling calls and pods.

    Attributes:
        infeasible: filters without a feasible node.
        late: pods whose plan could not meet the SLO any more.
        batches: requests of each pod bound.
        decisions_ms: from the first filter to the answer of bind.
        cost_dollars: lower and upper bound: from the answer of bind to the end of the pod, and from
            the call of bind to the service's answer that the pod ended.
    """

    infeasible: int = 0
    refused: int = 0
    late: int = 0
    batches: list[int] = field(default_factory=list)
    decisions_ms: list[float] = field(default_factory=list)
    cost_dollars: tuple[float, float] = (0.0, 0.0)


class DemoEngine:
    """Plays requests against one service; ``requests`` are those that have arrived so far."""

    def __init__(
        self,
        extender: ExtenderClient,
        nodes: Sequence[str],
        workflows: Iterable[Workflow],
        prices: Prices,
        seed: int,
    ) -> None:
        self.requests: list[DemoRequest] = []
        self.workflows = [DemoWorkflow(workflow) for workflow in workflows]
        self.counts = PodCounts()
        self._extender = extender
        self._nodes = nodes
        self._prices = prices
        self._noise = Noise(np.random.default_rng(seed), NOISE_RATIO)
        self._active: deque[PodQueue] = deque()  # queues whose pod is to be tried now
        self._parked: list[PodQueue] = []  # queues whose pod has no feasible node
        self._releases = 0  # how often capacity was freed
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()

    async def play(self, arrivals: Iterable[tuple[float, int]], *, drain_s: float) -> None:
        """Send requests (ms since the epoch, index of workflow) and wait until they end.

        Requests that have not ended ``drain_s`` seconds after the last arrival are given up.
        """
        async with asyncio.TaskGroup() as group:
            scheduling = group.create_task(self._schedule(group))
            for arrival_ms, index in arrivals:
                await asyncio.sleep(arrival_ms / 1000 - time.time())
                workflow = self.workflows[index]
                request = DemoRequest(len(self.requests), workflow, arrival_ms)
                self.requests.append(request)
                job = DemoJob(request, arrival_ms + request.slo_ms)
                self._join(workflow.graph.entries, job)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._drained(), drain_s)
            scheduling.cancel()

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a pod, by stage."""
        return sum(len(queue.jobs) for workflow in self.workflows for queue in workflow.queues)

    async def _drained(self) -> None:
        while any(request.unfinished for request in self.requests):
            self._ended.clear()
            await self._ended.wait()

    def _join(self, stages: Sequence[int], job: DemoJob) -> None:
        """Add a request to the queues of the stages that begin now."""
        queues = job.request.workflow.queues
        for stage, branch in zip(stages, job.branches(len(stages), _now_ms()), strict=True):
            queues[stage].add(branch)
            self._ensure_pod(queues[stage])

    def _ensure_pod(self, queue: PodQueue) -> None:
        if queue.jobs and queue.leader is None:
            queue.create_pod()
            self._active.append(queue)
            self._wake.set()

    # -- kube-scheduler ------------------------------------------------------------------------

    async def _schedule(self, group: asyncio.TaskGroup) -> None:
        while True:
            while not self._active:
                self._wake.clear()
                try:
                    await asyncio.wait_for(self._wake.wait(), _RETRY_S)
                except TimeoutError:
                    self._capacity_freed()
            queue = self._active.popleft()
            releases = self._releases
            began = time.perf_counter()
            if queue.leader is not queue.jobs[0]:  # an older request has joined the queue
                await self._extender.delete(queue.pod())
                queue.create_pod()
            pod = queue.pod()
            feasible = await self._extender.filter(pod, self._nodes)
            if not feasible:
                self.counts.infeasible += 1
                # Capacity freed during the call may have come too late for its answer.
                (self._parked if releases == self._releases else self._active).append(queue)
                continue
            node = feasible[0] if len(feasible) == 1 else await self._extender.best(pod, feasible)
            group.create_task(self._bind(queue, pod, node, began, group))

    def _capacity_freed(self) -> None:
        self._releases += 1
        self._active.extend(self._parked)
        self._parked.clear()
        self._wake.set()

    async def _bind(
        self,
        queue: PodQueue,
        pod: Mapping[str, Any],
        node: str,
        began_s: float,
        group: asyncio.TaskGroup,
    ) -> None:
        called_ms = _now_ms()
        error = await self._extender.bind(pod, node)
        bound_ms = _now_ms()
        if error:
            self.counts.refused += 1
            self._active.appendleft(queue)
            self._wake.set()
            return
        self.counts.decisions_ms.append(1000 * (time.perf_counter() - began_s))
        grant = await self._extender.grant(pod)
        jobs = queue.take_batch(grant.batch)
        self._ensure_pod(queue)
        self.counts.batches.append(len(jobs))
        self.counts.late += not grant.feasible
        group.create_task(self._run(_Run(pod, queue.index, jobs, grant, called_ms, bound_ms)))

    # -- the kubelet, and the DAG engine -------------------------------------------------------

    async def _run(self, run: "_Run") -> None:
        run_ms = run.grant.stage_ms * self._noise.take_factor()
        await asyncio.sleep((run.bound_ms + run_ms) / 1000 - time.time())
        ended_ms = _now_ms()
        await self._extender.finish(run.pod)
        reported_ms = _now_ms()
        self._capacity_freed()
        self._account(run, ended_ms, reported_ms)
        # The next stages begin when the API server has reported that the pod ended.
        for job in run.jobs:
            self._advance(job, run, ended_ms, reported_ms)
        self._ended.set()
        await self._extender.delete(run.pod)

    def _account(self, run: "_Run", ended_ms: float, reported_ms: float) -> None:
        def dollars(held_ms: float) -> float:
            return self._prices.request_cost_dollars(
                held_ms, run.grant.cpu, run.grant.gpu_percent, 1
            )

        minimum_dollars, maximum_dollars = self.counts.cost_dollars
        self.counts.cost_dollars = (
            minimum_dollars + dollars(ended_ms - run.bound_ms),
            maximum_dollars + dollars(reported_ms - run.called_ms),
        )
        run.jobs[0].request.workflow.tally.cost_dollars += dollars(ended_ms - run.bound_ms)
        for job in run.jobs:
            job.queue_ms += run.bound_ms - job.since_ms
            job.execute_ms += ended_ms - run.bound_ms
            job.request.led &= job is run.jobs[0]

    def _advance(self, job: DemoJob, run: "_Run", ended_ms: float, reported_ms: float) -> None:
        request = job.request
        ready = request.finish(run.stage)
        if not request.unfinished:
            request.ended_ms, request.reported_ms = ended_ms, reported_ms
            request.workflow.tally.end(job, ended_ms - request.arrival_ms)
        elif ready:
            self._join(ready, job)


@dataclass(frozen=True, slots=True)
class _Run:
    """A pod that runs; times in ms since the epoch."""

    pod: Mapping[str, Any]
    stage: int
    jobs: list[DemoJob]
    grant: DemoGrant
    called_ms: float  # bind was called
    bound_ms: float  # bind had answered


def _now_ms() -> float:
    return 1000 * time.time()
