"""The simulation: events popped in order of time, each one's handler pushing what follows."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop
from math import inf
from time import perf_counter
from typing import Any

from scheduler.model.catalogue import Catalogue
from scheduler.model.reading import DocumentError
from workbench.simulation import recording
from workbench.simulation.arrival_stream import expected_rates_rps, stream
from workbench.simulation.autoscaler import Autoscaler
from workbench.simulation.dispatcher import Dispatcher, Run
from workbench.simulation.errors import RunError
from workbench.simulation.events import (
    CONTAINER_READY,
    KEEP_ALIVE_ENDED,
    PREWARM_DUE,
    RESCALE,
    RETRY,
    RUN_ENDED,
    EventQueue,
)
from workbench.simulation.functions import Container
from workbench.simulation.policy import Policy
from workbench.simulation.result import RequestRecord, Result, Span
from workbench.simulation.scenario import Scenario
from workbench.simulation.setup import SimulationState, assemble, policy_for, warm_up
from workbench.simulation.warming import Prewarmer
from workbench.simulation.workflow_state import (
    SimulatedRequest,
    StageJob,
    StageQueue,
    WorkflowState,
)
from workbench.simulation.workload import Arrivals

STALLED_MS = 600_000.0  # so long after the last arrival and the last run it is hopeless
PROGRESS_EVERY = 10_000  # requests

OnRequest = Callable[[RequestRecord], None]
OnSpan = Callable[[Span], None]
Progress = Callable[[int, float], None]
Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Observers:
    """Callbacks of a run.

    Attributes:
        on_request: receives every request at its end.
        on_span: receives every run of a container when it begins.
        progress: is called after every 10,000 requests with the requests that have ended and the
            virtual clock, ms.
    """

    on_request: OnRequest | None = None
    on_span: OnSpan | None = None
    progress: Progress | None = None


def simulate(  # noqa: PLR0913 - what a run depends on, each by name
    scenario: Scenario,
    catalogue: Catalogue,
    arrivals: Arrivals,
    policy: str | type[Policy],
    *,
    seed: int = 0,
    requests: int | None = None,
    rates_rps: Mapping[tuple[str, str], float] | None = None,
    observers: Observers = Observers(),
    stop: Stop = lambda: False,
) -> Result:
    """Run the first ``requests`` of the arrivals to their end under one policy.

    Args:
        scenario: the cluster and its mechanisms.
        catalogue: workflows, whose SLO the scenario scales, and profiles.
        arrivals: times and workflows of the requests.
        policy: a name in the registry, or a class.
        seed: of everything random but the arrivals.
        requests: how many; fewer where the arrivals end before; None: all.
        rates_rps: expected requests a second of each workflow; None: those of the first chunk.
        observers: callbacks.
        stop: returns true when no more requests shall arrive; those that have arrived still end.

    Raises:
        UnknownPolicyError: the registry has no such policy.
        UnknownDocumentError: a workflow that arrives, or a profile for it, does not exist.
        ScenarioError: catalogue and cluster do not fit together.
        RunError: the run failed half-way; ``result`` has the requests that had ended. A
            `PolicyError` where the policy failed, a `WorkloadError` where the arrivals go back in
            time or name no workflow.
    """
    state = assemble(scenario, catalogue, arrivals.workflows, seed)
    began = perf_counter()
    rates_rps = expected_rates_rps(arrivals) if rates_rps is None else rates_rps
    simulation = Simulation(state, policy_for(state, policy, rates_rps), seed, observers)
    simulation.setup_s = perf_counter() - began
    try:
        simulation.run(stream(arrivals, state.flows, requests or sys.maxsize, stop))
    except RunError as error:
        error.result = simulation.result()
        raise
    except (DocumentError, OSError) as error:
        raise RunError(str(error), simulation.result()) from error
    return simulation.result()


class Simulation:
    """One run: the loop, and a handler for each kind of event."""

    def __init__(
        self, assembled: SimulationState, policy: Policy, seed: int, observers: Observers
    ) -> None:
        self._flows = assembled.flows
        self._cluster = assembled.cluster
        self._keep_alive_ms = assembled.scenario.keep_alive_ms
        self._policy = policy
        self._seed = seed
        self._observers = observers
        self._agenda = agenda = EventQueue()
        self._keeper: Autoscaler | None = None
        self._prewarmer: Prewarmer | None = None
        if policy.autoscales:
            self._keeper = Autoscaler(policy, assembled, agenda)
            agenda.push(0.0, RESCALE, self._keeper)
        else:
            warm_up(assembled)
            if assembled.scenario.prewarm and policy.prewarms:
                self._prewarmer = Prewarmer(policy, assembled.cluster, agenda)
        self._dispatcher = Dispatcher(
            assembled=assembled,
            policy=policy,
            agenda=agenda,
            keeper=self._keeper,
            on_drop=self._drop,
            on_span=observers.on_span,
        )
        self._expiry_pending = not policy.autoscales
        if self._expiry_pending:
            agenda.push(self._keep_alive_ms, KEEP_ALIVE_ENDED, None)
        self.setup_s = 0.0
        self._now_ms = 0.0
        self._next_ms = 0.0  # of the next arrival; inf after the last
        self._arrived_ms = 0.0  # the last one that did
        self._events = 0
        self._open = 0  # requests that have arrived and not ended
        self._ended = 0

    def run(self, arriving: Iterator[tuple[float, WorkflowState | None]]) -> None:
        """Until nothing is left to happen that could help whoever still waits."""
        heap = self._agenda.heap
        handlers = self._handlers()
        self._next_ms, flow = next(arriving)
        while self._open or flow is not None:
            if heap and heap[0][0] <= self._next_ms:
                self._now_ms, kind, _, subject = heappop(heap)
                handlers[kind](subject, self._now_ms)
            elif flow is not None:
                self._now_ms = self._next_ms
                self._arrive(flow, self._now_ms)
                self._next_ms, flow = next(arriving)
            else:
                break
            self._events += 1
        self._give_up()

    def result(self) -> Result:
        """What it has come to so far."""
        dispatcher, keeper, cluster = self._dispatcher, self._keeper, self._cluster
        totals = recording.counts([flow.tally for flow in self._flows])
        reserved_dollars = dispatcher.reserved_cost
        if keeper is not None:
            reserved_dollars = max(keeper.held_cost(self._now_ms) - totals["cost_dollars"], 0.0)
        return Result(
            **totals,
            policy=self._policy.name,
            seed=self._seed,
            simulated_ms=self._now_ms,
            workflows=tuple(
                recording.workflow_result(flow.key, flow.tally) for flow in self._flows
            ),
            reserved_dollars=reserved_dollars,
            gpu_utilisation=cluster.fill.until(self._now_ms),
            gpu_utilisation_bucket_ms=cluster.fill.bucket_ms,
            runs=dispatcher.runs,
            mean_batch_size=dispatcher.jobs / dispatcher.runs if dispatcher.runs else 0.0,
            cold_starts=dispatcher.cold_starts,
            prewarmed=self._prewarmer.started if self._prewarmer else 0,
            evictions=cluster.evictions,
            forced=dispatcher.forced,
            placement_failures=dispatcher.misses,
            events=self._events,
            planning_calls=dispatcher.planning_calls,
            planning_s=dispatcher.planning_s,
            setup_s=self.setup_s,
        )

    # -- what happens --------------------------------------------------------------------------

    def _handlers(self) -> dict[int, Callable[[Any, float], None]]:
        handlers: dict[int, Callable[[Any, float], None]] = {
            RUN_ENDED: self._end_run,
            CONTAINER_READY: self._container_ready,
            RETRY: self._ask_again,
            KEEP_ALIVE_ENDED: self._expire,
        }
        if self._keeper is not None:
            handlers[RESCALE] = self._rescale
        if self._prewarmer is not None:
            handlers[PREWARM_DUE] = self._prewarmer.due
        return handlers

    def _arrive(self, flow: WorkflowState, now_ms: float) -> None:
        request = SimulatedRequest(self._ended + self._open, flow, now_ms)
        self._open += 1
        self._arrived_ms = now_ms
        job = StageJob(request, now_ms + flow.slo_ms)
        for queue in flow.entries:
            queue.add(job if queue is flow.entries[0] else job.forked())
            queue.joined += 1
        for queue in flow.entries:
            self._dispatcher.look(queue, now_ms)
        if self._prewarmer is not None:
            self._prewarmer.arrived(flow, now_ms)

    def _end_run(self, run: Run, now_ms: float) -> None:
        queue, container, jobs = run
        kept = container.kept
        if kept is not None:
            kept.keeper.became_idle(container, kept, now_ms)
        else:
            self._cluster.end(container, now_ms)
            self._became_idle(now_ms)
        touched = self._advance(queue, container.node, jobs, now_ms)
        self._dispatcher.room_came(touched if kept is None else [*touched, queue], now_ms)

    def _advance(
        self, queue: StageQueue, node: int, jobs: Iterable[StageJob], now_ms: float
    ) -> list[StageQueue]:
        """Let the jobs join the queues that come next; which queues those are."""
        touched: dict[StageQueue, None] = {}
        for job in jobs:
            request = job.request
            if request.ended:
                continue
            request.ran_on[queue.index] = node
            request.left -= 1
            if request.left == 0:
                self._end_request(job, now_ms)
                continue
            passed_on = False
            for successor in queue.successors:
                if successor.joins:
                    request.pending[successor.index] -= 1
                    if request.pending[successor.index]:
                        continue
                passing = job.forked() if passed_on else job
                passed_on = True
                passing.since_ms = now_ms
                successor.add(passing)
                successor.joined += 1
                touched[successor] = None
        return list(touched)

    def _container_ready(self, container: Container, now_ms: float) -> None:
        kept = container.kept
        if kept is not None:
            kept.keeper.became_idle(container, kept, now_ms)
            self._dispatcher.room_came([kept.queue], now_ms)
        elif self._cluster.started(container):
            self._became_idle(now_ms)
            self._dispatcher.room_came([], now_ms)

    def _ask_again(self, queue: StageQueue, now_ms: float) -> None:
        if queue.ask_ms <= now_ms and not self._is_stalled(now_ms):
            queue.ask_ms = inf
            self._dispatcher.look(queue, now_ms)

    def _rescale(self, keeper: Autoscaler, now_ms: float) -> None:
        if not self._is_stalled(now_ms):
            keeper.rescale(now_ms)
            self._agenda.push(now_ms + self._policy.rescale_ms, RESCALE, keeper)

    def _became_idle(self, now_ms: float) -> None:
        """A container that nobody keeps: it is to end after the keep-alive."""
        if not self._expiry_pending:
            self._expiry_pending = True
            self._agenda.push(now_ms + self._keep_alive_ms, KEEP_ALIVE_ENDED, None)

    def _expire(self, _: None, now_ms: float) -> None:
        next_ms = self._cluster.expire(now_ms)
        self._expiry_pending = next_ms < inf
        if self._expiry_pending:
            self._agenda.push(next_ms, KEEP_ALIVE_ENDED, None)

    def _is_stalled(self, now_ms: float) -> bool:
        last_ms = max(self._dispatcher.begun_ms, self._arrived_ms)
        return self._next_ms == inf and now_ms - last_ms > STALLED_MS

    # -- how requests end ----------------------------------------------------------------------

    def _end_request(self, job: StageJob, now_ms: float) -> None:
        request = job.request
        hit = request.flow.tally.end(job, now_ms - request.arrival_ms)
        self._close(job, now_ms, "hit" if hit else "miss")

    def _drop(self, job: StageJob, now_ms: float) -> None:
        if not job.request.ended:
            job.queue_ms += now_ms - job.since_ms
            job.request.flow.tally.dropped += 1
            self._close(job, now_ms, "dropped")

    def _close(self, job: StageJob, now_ms: float, outcome: str) -> None:
        request = job.request
        request.ended = True
        self._open -= 1
        self._ended += 1
        if self._observers.on_request is not None:
            self._observers.on_request(
                RequestRecord(
                    request.number,
                    request.flow.index,
                    request.arrival_ms,
                    now_ms,
                    request.flow.slo_ms,
                    outcome,
                    job.queue_ms,
                    job.start_ms,
                    job.transfer_ms,
                    job.execute_ms,
                    request.cost,
                )
            )
        if self._observers.progress is not None and self._ended % PROGRESS_EVERY == 0:
            self._observers.progress(self._ended, now_ms)

    def _give_up(self) -> None:
        """Drop whoever still waits: nothing is left to happen that could help."""
        for flow in self._flows:
            for queue in flow.stages:
                while queue.jobs:
                    self._drop(queue.jobs.popleft(), self._now_ms)
