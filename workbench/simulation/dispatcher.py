"""Scheduling of a queue: call of the policy, placement, and the runs that begin."""

from collections.abc import Callable, Sequence
from math import inf
from time import perf_counter

from scheduler.dispatch.retries import most_urgent_first
from scheduler.model.plan import Candidate
from scheduler.model.progress import NOTHING_BEGUN
from workbench.simulation.autoscaler import Autoscaler
from workbench.simulation.data_locality import Input
from workbench.simulation.errors import PolicyError
from workbench.simulation.events import RETRY, RUN_ENDED, EventQueue
from workbench.simulation.functions import Container, Function
from workbench.simulation.grant_cache import ContainerGrant, GrantOffers
from workbench.simulation.loop import Job
from workbench.simulation.policy import Policy, SchedulingRequest
from workbench.simulation.result import Span
from workbench.simulation.setup import SimulationState
from workbench.simulation.workflow_state import StageQueue

Run = tuple[StageQueue, Container, list[Job]]


class QueueDispatcher:
    """Schedules queues when a job joins them, when capacity is freed, and at their retry times.

    Attributes:
        runs, jobs, cold_starts, forced, placement_failures: counts for the `Result`.
        planning_calls, planning_s: of the policy.
        reserved_dollars: cost of what runs held before they began to execute.
        begun_ms: begin of the last run.
    """

    def __init__(  # noqa: PLR0913 - what scheduling needs, each by name
        self,
        *,
        state: SimulationState,
        policy: Policy,
        events: EventQueue,
        autoscaler: Autoscaler | None,
        on_drop: Callable[[Job, float], None],
        on_span: Callable[[Span], None] | None,
    ) -> None:
        self._policy = policy
        self._cluster = state.cluster
        self._grants = state.grants
        self._events = events
        self._autoscaler = autoscaler
        self._on_drop = on_drop
        self._on_span = on_span
        self._interference_ratio = state.scenario.interference_ratio
        self._percent_max = state.scenario.limits.percent_max
        self._waiting: dict[StageQueue, None] = {}
        self._request = SchedulingRequest(("", "", ""), 0.0, 0, 0.0, 0.0, 0, (), 1.0)
        self.runs = self.jobs = self.cold_starts = self.forced = self.placement_failures = 0
        self.planning_calls = 0
        self.planning_s = 0.0
        self.reserved_dollars = 0.0
        self.begun_ms = 0.0

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
            if not (
                self._begin(queue, candidates, inputs, now_ms)
                if self._autoscaler is None
                else self._begin_autoscaled(self._autoscaler, queue, candidates, now_ms)
            ):
                if self._autoscaler is not None:
                    self._retry_when_due(queue, now_ms)
                self.placement_failures += 1
                queue.retry_state.miss(now_ms)
                self._waiting[queue] = None
                return
            if queue.retry_state.missed:
                queue.retry_state.hit()
        if self._waiting:
            self._waiting.pop(queue, None)

    # -- the policy ----------------------------------------------------------------------------

    def _candidates(
        self, queue: StageQueue, oldest: Job, inputs: Input, now_ms: float
    ) -> Sequence[Candidate]:
        request = self._request
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
        self.planning_calls += 1
        began = perf_counter()
        try:
            candidates = self._policy.candidates(request)
            if not candidates:
                self._retry_at(queue, self._policy.retry_at_ms(request), now_ms)
        except Exception as error:
            raise PolicyError.of(self._policy.name, queue.key, now_ms, error) from error
        self.planning_s += perf_counter() - began
        return candidates

    def _retry_when_due(self, queue: StageQueue, now_ms: float) -> None:
        """Set a retry time when all containers that the policy named are busy."""
        try:
            time_ms = self._policy.retry_at_ms(self._request)
        except Exception as error:
            raise PolicyError.of(self._policy.name, queue.key, now_ms, error) from error
        if time_ms > now_ms:
            self._retry_at(queue, time_ms, now_ms)

    def _retry_at(self, queue: StageQueue, time_ms: float, now_ms: float) -> None:
        if not time_ms > now_ms:
            raise ValueError(
                f"retry_at_ms is {time_ms}, which is past; return a later time, or inf"
            )
        if time_ms < queue.retry_at_ms:
            queue.retry_at_ms = time_ms
            self._events.push(time_ms, RETRY, queue)

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
        slowdown_factor = 1.0
        if self._interference_ratio:
            slowdown_factor += self._interference_ratio * self._held_ratio(gpu)
        container, is_new = self._cluster.begin(queue.function, grant, gpu, now_ms)
        self.cold_starts += is_new
        self._run(queue, container, slowdown_factor, now_ms)
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
        # A container is warm for its own grant alone, so each grant is placed by itself.
        for grant, table in zip(offers.grants, offers.single_tables, strict=True):
            ready_ms = function.pool(grant).ready_ms
            place = placer.best_gpu(table, way_ms, ready_ms, now_ms, nodes)
            if place is not None:
                return grant, place[1]
        return None

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
        ready_ms = float(function.pool(grant).ready_ms[gpu])
        if ready_ms <= now_ms:
            return False
        if ready_ms == inf:
            if not self._cluster.is_full(gpu, grant):
                return False
            ready_ms = now_ms + function.cold_ms
        return function.soonest_free_ms(offers.grants) < ready_ms

    def _begin_autoscaled(
        self,
        autoscaler: Autoscaler,
        queue: StageQueue,
        candidates: Sequence[Candidate],
        now_ms: float,
    ) -> bool:
        """Run the oldest jobs in an idle container of the autoscaler."""
        container = autoscaler.claim(queue, candidates)
        if container is None:
            return False
        slowdown_factor = 1.0
        if self._interference_ratio:
            neighbours_ratio = (
                self._held_ratio(container.gpu) - container.grant.percent / self._percent_max
            )
            slowdown_factor += self._interference_ratio * neighbours_ratio
        self._run(queue, container, slowdown_factor, now_ms)
        return True

    def _held_ratio(self, gpu: int) -> float:
        """Return the held ratio of a GPU's share."""
        free_percent = self._cluster.ledger.fleet.arrays.gpu_free_percent[gpu]
        return 1.0 - int(free_percent) / self._percent_max

    # -- the run -------------------------------------------------------------------------------

    def _run(
        self, queue: StageQueue, container: Container, slowdown_factor: float, now_ms: float
    ) -> None:
        """Move the oldest jobs from the queue into a container."""
        grant = container.grant
        jobs = queue.take(grant.batch)
        ready_ms = container.ready_ms
        start_ms = ready_ms - now_ms if ready_ms > now_ms else 0.0
        transfer_ms = 0.0
        if queue.inputs.before:  # all jobs read over the node's one network
            for job in jobs:
                transfer_ms += queue.inputs.transfer_ms(job.request.ran_on, container.node)
        execute_ms = grant.latency_ms * queue.noise.take_factor() * slowdown_factor
        executes_ms = now_ms + start_ms + transfer_ms
        end_ms = executes_ms + execute_ms
        cost_dollars = execute_ms * grant.dollars_per_ms
        part_dollars = cost_dollars / len(jobs)
        for job in jobs:
            job.queue_ms += now_ms - job.since_ms
            job.start_ms += start_ms
            job.transfer_ms += transfer_ms
            job.execute_ms += execute_ms
            job.request.cost_dollars += part_dollars
        if queue.has_siblings:
            for job in jobs:
                job.request.ends_ms[queue.index] = executes_ms + grant.latency_ms
        queue.tally.cost_dollars += cost_dollars
        self.reserved_dollars += (start_ms + transfer_ms) * grant.dollars_per_ms
        self.runs += 1
        self.jobs += len(jobs)
        self.begun_ms = now_ms
        if self._autoscaler is None:
            pool = queue.function.pool(grant)
            pool.add_busy(container, executes_ms + grant.latency_ms)
        self._events.push(end_ms, RUN_ENDED, (queue, container, jobs))
        if self._on_span is not None:
            self._on_span(
                Span(
                    workflow=queue.workflow_index,
                    stage=queue.key[2],
                    function=queue.function.name,
                    node=self._cluster.node_names[container.node],
                    gpu=self._cluster.gpu_uuids[container.gpu],
                    container=container.number,
                    begin_ms=now_ms,
                    start_ms=start_ms,
                    transfer_ms=transfer_ms,
                    execute_ms=executes_ms,
                    end_ms=end_ms,
                    batch=grant.batch,
                    jobs=len(jobs),
                    cpu=grant.configuration.cpu,
                    gpu_percent=grant.percent,
                    memory_mib=grant.memory_mib,
                    cost_dollars=cost_dollars,
                )
            )
