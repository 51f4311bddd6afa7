"""A run in which a policy is called about queues of jobs: the part of both kinds of containers."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any

from workbench.simulation.containers.functions import Container
from workbench.simulation.events import CONTAINER_READY, RETRY, RUN_ENDED
from workbench.simulation.loop import Job, Observers, SimulationLoop
from workbench.simulation.policy import Policy
from workbench.simulation.queues.batch_runs import BatchRuns, Run
from workbench.simulation.queues.policy_calls import PolicyCalls
from workbench.simulation.setup import SimulationState
from workbench.simulation.stage_jobs import StageJob
from workbench.simulation.workflow_state import StageQueue, WorkflowState


class QueuedSimulation(SimulationLoop):
    """Jobs on their way from queue to queue; subclasses own the containers that take them."""

    def __init__(
        self, state: SimulationState, policy: Policy, seed: int, observers: Observers
    ) -> None:
        super().__init__(state, policy, seed, observers)
        self._lost_queues: dict[StageQueue, None] = {}  # whose jobs wait again
        self._calls = PolicyCalls(policy, self._queue)
        self._runs = BatchRuns(state, self._tallies, self._queue, observers.on_span)

    # -- hooks of the subclasses ---------------------------------------------------------------

    @abstractmethod
    def _schedule(self, queue: StageQueue, now_ms: float) -> None:
        """Run jobs of a queue while the policy has candidates and they have capacity."""

    @abstractmethod
    def _joined(self, queues: Sequence[StageQueue], now_ms: float) -> None:
        """Schedule the queues that jobs have joined, and those that wait for capacity."""

    @abstractmethod
    def _freed(self, run: Run, now_ms: float) -> Iterable[StageQueue]:
        """Take back the container of a run; return queues to schedule after those joined."""

    @abstractmethod
    def _lost(
        self, container: Container, now_ms: float, *, is_running: bool
    ) -> Iterable[StageQueue]:
        """Remove a container whose GPU has failed; return queues to schedule."""

    @abstractmethod
    def _container_started(self, container: Container, now_ms: float) -> None:
        """Let a container take jobs."""

    # -- events --------------------------------------------------------------------------------

    def _handlers(self) -> dict[int, Callable[[Any, float], None]]:
        return {
            RUN_ENDED: self._end_run,
            CONTAINER_READY: self._container_ready,
            RETRY: self._retry,
        }

    def _arrive(self, workflow: WorkflowState, now_ms: float) -> None:
        job = StageJob(self._new_request(workflow, now_ms), now_ms + workflow.slo_ms)
        for queue in self._join(workflow, workflow.graph.entries, job, now_ms):
            self._schedule(queue, now_ms)

    def _end_run(self, run: Run, now_ms: float) -> None:
        container, parts = run
        if container.lost:
            return
        self._runs.end(container)
        freed = self._freed(run, now_ms)
        joined: dict[StageQueue, None] = {}
        for queue, jobs in parts:
            for job in jobs:
                request = job.request
                if request.ended:
                    continue
                request.ran_on[queue.index] = container.node
                ready = request.finish(queue.index)
                if not request.unfinished:
                    self._end_request(job, now_ms)
                elif ready:
                    for successor in self._join(request.workflow, ready, job, now_ms):
                        joined[successor] = None
        joined.update(dict.fromkeys(freed))
        self._joined(list(joined), now_ms)

    @staticmethod
    def _join(
        workflow: WorkflowState, stages: Sequence[int], job: Job, now_ms: float
    ) -> list[StageQueue]:
        """Add the job to the queue of the first stage, and copies of it to the queues of others."""
        if len(stages) == 1:  # nearly always
            queue = workflow.queues[stages[0]]
            job.since_ms = now_ms
            queue.add(job)
            queue.arrived += 1
            return [queue]
        joined = [workflow.queues[stage] for stage in stages]
        for queue, branch in zip(joined, job.branches(len(joined), now_ms), strict=True):
            queue.add(branch)
            queue.arrived += 1
        return joined

    def _lose(self, container: Container, now_ms: float) -> None:
        queues = self._runs.lose(container, now_ms)
        container.lost = True
        starved = self._lost(container, now_ms, is_running=bool(queues))
        self._lost_queues.update(dict.fromkeys([*starved, *queues]))

    def _capacity_changed(self, now_ms: float) -> None:
        queues, self._lost_queues = list(self._lost_queues), {}
        self._joined(queues, now_ms)

    def _container_ready(self, container: Container, now_ms: float) -> None:
        if not container.lost:
            self._container_started(container, now_ms)

    def _retry(self, queue: StageQueue, now_ms: float) -> None:
        if queue.retry_at_ms <= now_ms and not self._is_stalled(now_ms):
            queue.retry_at_ms = inf
            self._schedule(queue, now_ms)

    @property
    def _begun_ms(self) -> float:
        return self._runs.begun_ms

    def _drop_queued(self) -> None:
        for workflow in self._workflows:
            for queue in workflow.queues:
                while queue.jobs:
                    self._drop(queue.jobs.popleft(), self._now_ms)

    # -- result --------------------------------------------------------------------------------

    def _measured(self) -> dict[str, Any]:
        runs = self._runs
        return {
            **super()._measured(),
            "runs": runs.runs,
            "mean_batch_size": runs.jobs / runs.runs if runs.runs else 0.0,
            "evictions": self._cluster.evictions,
            "planning_calls": self._calls.number,
            "planning_s": self._calls.wall_s,
        }
