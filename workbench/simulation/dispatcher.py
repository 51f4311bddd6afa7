"""A look at a queue: what the policy wants, where it fits, and the runs that begin."""

from collections.abc import Callable, Sequence
from time import perf_counter

from scheduler.dispatch.retries import most_urgent_first
from scheduler.model.plan import Candidate
from workbench.simulation.autoscaler import Autoscaler
from workbench.simulation.data_locality import Input
from workbench.simulation.errors import PolicyError
from workbench.simulation.events import RETRY, RUN_ENDED, EventQueue
from workbench.simulation.functions import Container
from workbench.simulation.grant_cache import ContainerGrant, GrantOffers
from workbench.simulation.policy import Policy, SchedulingRequest
from workbench.simulation.result import Span
from workbench.simulation.setup import SimulationState
from workbench.simulation.workflow_state import StageJob, StageQueue

Run = tuple[StageQueue, Container, list[StageJob]]


class Dispatcher:
    """Looks at queues when a job joins them, when room comes, and when they asked for it.

    Attributes:
        runs, jobs, cold_starts, forced, misses: counted as `Result` tells them.
        planning_calls, planning_s: of the policy.
        reserved_cost: dollars for what was held by runs that had not begun to execute.
        begun_ms: when the last run began.
    """

    def __init__(  # noqa: PLR0913 - what a look needs, each by name
        self,
        *,
        assembled: SimulationState,
        policy: Policy,
        agenda: EventQueue,
        keeper: Autoscaler | None,
        on_drop: Callable[[StageJob, float], None],
        on_span: Callable[[Span], None] | None,
    ) -> None:
        self._policy = policy
        self._cluster = assembled.cluster
        self._book = assembled.book
        self._agenda = agenda
        self._keeper = keeper
        self._on_drop = on_drop
        self._on_span = on_span
        self._interference_ratio = assembled.scenario.interference_ratio
        self._percent_max = assembled.scenario.limits.percent_max
        self._waiting: dict[StageQueue, None] = {}
        self._question = SchedulingRequest(("", "", ""), 0.0, 0, 0.0, 0.0, 0, (), 1.0)
        self.runs = self.jobs = self.cold_starts = self.forced = self.misses = 0
        self.planning_calls = 0
        self.planning_s = 0.0
        self.reserved_cost = 0.0
        self.begun_ms = 0.0

    def room_came(self, touched: Sequence[StageQueue], now_ms: float) -> None:
        """Look at the queues that jobs have joined and at those that wait for room."""
        if self._waiting:
            queues = {**self._waiting, **dict.fromkeys(touched)}
            for queue in most_urgent_first(each for each in queues if each.jobs):
                self.look(queue, now_ms)
        else:
            for queue in touched:
                self.look(queue, now_ms)

    def look(self, queue: StageQueue, now_ms: float) -> None:
        """Let jobs of the queue run while the policy wants it and there is room."""
        jobs = queue.jobs
        while jobs:
            oldest = jobs[0]
            if now_ms > oldest.deadline_ms + queue.late_max_ms:
                self._on_drop(jobs.popleft(), now_ms)
                continue
            where = queue.inputs.of(oldest.request.ran_on)
            candidates = self._candidates(queue, oldest, where, now_ms)
            if not candidates:
                self._waiting.pop(queue, None)
                return
            if not (
                self._begin(queue, candidates, where, now_ms)
                if self._keeper is None
                else self._begin_kept(self._keeper, queue, candidates, now_ms)
            ):
                if self._keeper is not None:
                    self._ask_when_due(queue, now_ms)
                self.misses += 1
                queue.patience.miss(now_ms)
                self._waiting[queue] = None
                return
            if queue.patience.missed:
                queue.patience.hit()
        if self._waiting:
            self._waiting.pop(queue, None)

    # -- the question --------------------------------------------------------------------------

    def _candidates(
        self, queue: StageQueue, oldest: StageJob, where: Input, now_ms: float
    ) -> Sequence[Candidate]:
        question = self._question
        question.key = queue.key
        question.now_ms = now_ms
        question.queued = len(queue.jobs)
        question.slack_ms = oldest.deadline_ms - now_ms
        question.waited_ms = now_ms - oldest.since_ms
        question.missed = queue.patience.missed
        # A container that is warm counts while the function has containers at all: those that are
        # busy now are idle soon.
        question.starts_ms = where.starts_ms[queue.function.containers > 0]
        question.noise = queue.noise.next_factor
        self.planning_calls += 1
        began = perf_counter()
        try:
            candidates = self._policy.candidates(question)
            if not candidates:
                self._ask_again(queue, self._policy.retry_at_ms(question), now_ms)
        except Exception as error:
            raise PolicyError.of(self._policy.name, queue.key, now_ms, error) from error
        self.planning_s += perf_counter() - began
        return candidates

    def _ask_when_due(self, queue: StageQueue, now_ms: float) -> None:
        """Where all that the policy named is busy: another kind of container may be due before."""
        try:
            when_ms = self._policy.retry_at_ms(self._question)
        except Exception as error:
            raise PolicyError.of(self._policy.name, queue.key, now_ms, error) from error
        if when_ms > now_ms:
            self._ask_again(queue, when_ms, now_ms)

    def _ask_again(self, queue: StageQueue, when_ms: float, now_ms: float) -> None:
        if not when_ms > now_ms:
            raise ValueError(f"it wants to be asked again at {when_ms} ms, which is not to come")
        if when_ms < queue.ask_ms:
            queue.ask_ms = when_ms
            self._agenda.push(when_ms, RETRY, queue)

    # -- the place -----------------------------------------------------------------------------

    def _begin(
        self, queue: StageQueue, candidates: Sequence[Candidate], where: Input, now_ms: float
    ) -> bool:
        """Run the oldest jobs under the first candidate that any node holds."""
        offers = self._book.of(candidates)
        queue.wanted = offers.grants[0]
        found = self._place(queue, offers, where, now_ms)
        if found is None:
            if not queue.patience.forced:
                return False
            found = self._place(queue, queue.minimum, where, now_ms)
            if found is None:
                return False
            self.forced += 1
        grant, gpu = found
        slowdown = 1.0
        if self._interference_ratio:
            slowdown += self._interference_ratio * self._held_ratio(gpu)
        container, is_new = self._cluster.begin(queue.function, grant, gpu, now_ms)
        self.cold_starts += is_new
        self._run(queue, container, slowdown, now_ms)
        return True

    def _place(
        self, queue: StageQueue, offers: GrantOffers, where: Input, now_ms: float
    ) -> tuple[ContainerGrant, int] | None:
        """The grant that decides, and the GPU for it."""
        function = queue.function
        placer, way_ms, nodes = queue.placer, where.node_transfer_ms, where.nodes
        if function.shared is not None:
            found = placer.best_gpu(offers.table, way_ms, function.shared.ready_ms, now_ms, nodes)
            return None if found is None else (offers.grants[found[0]], found[1])
        # A container is warm for its own grant alone: each has its own places.
        for grant, table in zip(offers.grants, offers.single_tables, strict=True):
            ready_ms = function.pool(grant).ready_ms
            found = placer.best_gpu(table, way_ms, ready_ms, now_ms, nodes)
            if found is not None:
                return grant, found[1]
        return None

    def _begin_kept(
        self, keeper: Autoscaler, queue: StageQueue, candidates: Sequence[Candidate], now_ms: float
    ) -> bool:
        """Run the oldest jobs in a kept container of the first candidate that has an idle one."""
        container = keeper.claim(queue, candidates)
        if container is None:
            return False
        slowdown = 1.0
        if self._interference_ratio:
            others = self._held_ratio(container.gpu) - container.grant.percent / self._percent_max
            slowdown += self._interference_ratio * others
        self._run(queue, container, slowdown, now_ms)
        return True

    def _held_ratio(self, gpu: int) -> float:
        """The part of a GPU's share that is held."""
        return (
            1.0 - int(self._cluster.ledger.fleet.arrays.gpu_free_percent[gpu]) / self._percent_max
        )

    # -- the run -------------------------------------------------------------------------------

    def _run(self, queue: StageQueue, container: Container, slowdown: float, now_ms: float) -> None:
        """The oldest jobs leave the queue for a container under its grant."""
        grant = container.grant
        jobs = queue.take(grant.batch)
        ready_ms = container.ready_ms
        start_ms = ready_ms - now_ms if ready_ms > now_ms else 0.0
        transfer_ms = 0.0
        if queue.inputs.before:  # what all jobs read comes over the node's one network
            for job in jobs:
                transfer_ms += queue.inputs.sent_ms(job.request.ran_on, container.node)
        execute_ms = grant.latency_ms * queue.noise.take_factor() * slowdown
        executes_ms = now_ms + start_ms + transfer_ms
        end_ms = executes_ms + execute_ms
        cost = execute_ms * grant.dollars_per_ms
        part = cost / len(jobs)
        for job in jobs:
            job.queue_ms += now_ms - job.since_ms
            job.start_ms += start_ms
            job.transfer_ms += transfer_ms
            job.execute_ms += execute_ms
            job.request.cost += part
        queue.tally.cost_dollars += cost
        self.reserved_cost += (start_ms + transfer_ms) * grant.dollars_per_ms
        self.runs += 1
        self.jobs += len(jobs)
        self.begun_ms = now_ms
        self._agenda.push(end_ms, RUN_ENDED, (queue, container, jobs))
        if self._on_span is not None:
            self._on_span(
                Span(
                    workflow=queue.flow.index,
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
                    cost_dollars=cost,
                )
            )
