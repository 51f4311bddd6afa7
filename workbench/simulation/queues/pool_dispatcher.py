"""Scheduling under autoscaling policies: the queues of a pool share its containers and batches."""

from collections.abc import Callable

from workbench.simulation.loop import Job
from workbench.simulation.queues.autoscaler import Autoscaler, ContainerPool
from workbench.simulation.queues.batch_runs import BatchRuns
from workbench.simulation.queues.policy_calls import PolicyCalls
from workbench.simulation.workflow_state import StageQueue


class PoolDispatcher:
    """Schedules a pool when a job joins it, a container of it is free, and at its retry time.

    Attributes:
        placement_failures: number of attempts at which no idle container could take the jobs.
    """

    def __init__(
        self,
        calls: PolicyCalls,
        runs: BatchRuns,
        autoscaler: Autoscaler,
        on_drop: Callable[[Job, float], None],
    ) -> None:
        self._calls = calls
        self._runs = runs
        self._autoscaler = autoscaler
        self._on_drop = on_drop
        self.placement_failures = 0

    def schedule(self, queue: StageQueue, now_ms: float) -> None:
        """Run jobs of the queue's pool while its policy names kinds of containers that are idle."""
        pool = self._autoscaler.pool(queue)
        while (first := self._first(pool, now_ms)) is not None:
            candidates = self._calls.candidates(first)
            if not candidates:
                return
            container = pool.claim(candidates)
            if container is None:
                self._calls.retry_when_due(first)
                self.placement_failures += 1
                return
            self._runs.begin(container, pool.take(container.grant.batch), now_ms)

    def _first(self, pool: ContainerPool, now_ms: float) -> StageQueue | None:
        """Describe the pool's jobs to the policy; return the queue of the most urgent one."""
        waiting = []
        for queue in pool.queues:
            jobs = queue.jobs
            while jobs and now_ms > jobs[0].deadline_ms + queue.give_up_after_ms:
                self._on_drop(jobs.popleft(), now_ms)
            if jobs:
                waiting.append(queue)
        if not waiting:
            return None
        first = min(waiting, key=_deadline_ms) if len(waiting) > 1 else waiting[0]
        oldest = first.jobs[0]
        request = self._calls.request
        request.key = first.key
        request.now_ms = now_ms
        request.queued = sum(len(queue.jobs) for queue in waiting)
        request.slack_ms = oldest.deadline_ms - now_ms
        request.waited_ms = now_ms - min(queue.jobs[0].since_ms for queue in waiting)
        request.missed = 0
        request.starts_ms = first.inputs.of(oldest.request.ran_on).starts_ms[1]
        request.noise_factor = first.noise.next_factor
        return first


def _deadline_ms(queue: StageQueue) -> float:
    return queue.jobs[0].deadline_ms
