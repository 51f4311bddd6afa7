"""Scheduling of a queue under planning policies: placement, and the runs that begin."""

from collections.abc import Callable, Sequence
from math import inf

import numpy as np

from scheduler.model.plan import Candidate
from scheduler.model.progress import NOTHING_BEGUN
from workbench.simulation.containers.data_locality import Input
from workbench.simulation.containers.functions import Function
from workbench.simulation.containers.grant_cache import ContainerGrant, GrantOffers
from workbench.simulation.loop import Job
from workbench.simulation.queues.batch_runs import BatchRuns
from workbench.simulation.queues.policy_calls import PolicyCalls
from workbench.simulation.retries import most_urgent_first
from workbench.simulation.setup import SimulationState
from workbench.simulation.workflow_state import StageQueue


class QueueDispatcher:
    """Schedules queues when a job joins them, when capacity is freed, and at their retry times.

    Attributes:
        cold_starts, forced, placement_failures: counts as in `Result`.
    """

    def __init__(
        self,
        state: SimulationState,
        calls: PolicyCalls,
        runs: BatchRuns,
        on_drop: Callable[[Job, float], None],
    ) -> None:
        self._cluster = state.cluster
        self._grants = state.grants
        self._calls = calls
        self._runs = runs
        self._on_drop = on_drop
        self._waiting: dict[StageQueue, None] = {}
        self._all_ready_ms = np.full(len(state.cluster.gpu_uuids), -inf)
        self.cold_starts = self.forced = self.placement_failures = 0

    def capacity_freed(self, joined: Sequence[StageQueue], now_ms: float) -> None:
        """Schedule the queues that jobs have joined, and those that wait for capacity."""
        if self._waiting:
            queues = {**self._waiting, **dict.fromkeys(joined)}
            for queue in most_urgent_first(queue for queue in queues if queue.jobs):
                self.schedule(queue, now_ms)
        else:
            for queue in joined:
                self.schedule(queue, now_ms)

    def schedule(self, queue: StageQueue, now_ms: float) -> None:
        """Run jobs of the queue while the policy has candidates and a node has capacity."""
        jobs = queue.jobs
        while jobs:
            oldest = jobs[0]
            if now_ms > oldest.deadline_ms + queue.give_up_after_ms:
                self._on_drop(jobs.popleft(), now_ms)
                continue
            inputs = queue.inputs.of(oldest.request.ran_on)
            candidates = self._candidates(queue, oldest, inputs, now_ms)
            if not candidates:
                self._waiting.pop(queue, None)
                return
            if not self._begin(queue, candidates, inputs, now_ms):
                self.placement_failures += 1
                queue.retry_state.miss(now_ms)
                self._waiting[queue] = None
                return
            if queue.retry_state.missed:
                queue.retry_state.hit()
        if self._waiting:
            self._waiting.pop(queue, None)

    def _candidates(
        self, queue: StageQueue, oldest: Job, inputs: Input, now_ms: float
    ) -> Sequence[Candidate]:
        request = self._calls.request
        request.key = queue.key
        request.now_ms = now_ms
        request.queued = len(queue.jobs)
        request.slack_ms = oldest.deadline_ms - now_ms
        request.waited_ms = now_ms - oldest.since_ms
        request.missed = queue.retry_state.missed
        # A warm container counts while the function has containers at all: busy ones are idle soon.
        request.starts_ms = inputs.starts_ms[queue.function.containers > 0]
        request.noise_factor = queue.noise.next_factor
        request.progress = oldest.request.progress(now_ms) if queue.has_siblings else NOTHING_BEGUN
        return self._calls.candidates(queue)

    # -- placement -----------------------------------------------------------------------------

    def _begin(
        self, queue: StageQueue, candidates: Sequence[Candidate], inputs: Input, now_ms: float
    ) -> bool:
        """Run the oldest jobs under the first candidate that fits a node."""
        offers = self._grants.of(candidates)
        queue.preferred = offers.grants[0]
        place = self._place(queue, offers, inputs, now_ms)
        is_forced = place is None and queue.retry_state.forced
        if is_forced:
            place = self._place(queue, queue.minimum, inputs, now_ms)
        if place is None or self._should_wait(queue.function, offers, place, now_ms):
            return False
        self.forced += is_forced
        grant, gpu = place
        function = queue.function
        container, is_new = self._cluster.begin(function, grant, gpu, now_ms)
        self.cold_starts += is_new
        self._runs.begin(container, ((queue, queue.take(grant.batch)),), now_ms)
        container.pool.add_busy(container, self._runs.predicted_end_ms)
        return True

    def _place(
        self, queue: StageQueue, offers: GrantOffers, inputs: Input, now_ms: float
    ) -> tuple[ContainerGrant, int] | None:
        """Return the first grant that fits, and its GPU."""
        function = queue.function
        placer, way_ms, nodes = queue.placer, inputs.node_transfer_ms, inputs.nodes
        if function.shared is not None:
            place = placer.best_gpu(offers.table, way_ms, function.shared.ready_ms, now_ms, nodes)
            return None if place is None else (offers.grants[place[0]], place[1])
        best: tuple[int, int] | None = None
        first_feasible = -1  # unknown
        for share in offers.shares:
            if best is not None and best[0] < share.indices[0]:
                break
            if share.indices[-1] < first_feasible:
                continue
            ready_ms = function.pool(share.grant).ready_ms
            place = placer.best_gpu(share.table, way_ms, ready_ms, now_ms, nodes)
            if place is not None:
                index = share.indices[place[0]]
                if best is None or index < best[0]:
                    best = index, place[1]
            elif first_feasible < 0:
                # One call shows what no container could change: on a full cluster nothing fits.
                warm = placer.best_gpu(offers.table, way_ms, self._all_ready_ms, now_ms, nodes)
                if warm is None:
                    break
                first_feasible = warm[0]
        return None if best is None else (offers.grants[best[0]], best[1])

    def _should_wait(
        self,
        function: Function,
        offers: GrantOffers,
        place: tuple[ContainerGrant, int],
        now_ms: float,
    ) -> bool:
        """Return true if a run of the function will end before a container is ready at this place.

        Its container is then claimed when the run has ended. A new container that evicts no other
        is started all the same: the function has more to do than its containers can.
        """
        grant, gpu = place
        ready_ms = function.pool(grant).ready_at_ms[gpu]
        if ready_ms <= now_ms:
            return False
        if ready_ms == inf:
            if not self._cluster.is_full(gpu, grant):
                return False
            ready_ms = now_ms + function.cold_ms
        return function.soonest_free_ms(share.grant for share in offers.shares) < ready_ms
