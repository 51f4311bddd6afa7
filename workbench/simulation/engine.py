"""The simulation: requests that arrive are run to their end under one policy."""

import sys
from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import perf_counter
from typing import Any

from scheduler.model.catalogue import Catalogue
from scheduler.model.document_reader import DocumentError
from workbench.simulation.arrival_stream import expected_rates_rps, stream
from workbench.simulation.containers.functions import Container
from workbench.simulation.errors import RunError
from workbench.simulation.events import (
    CONTAINER_READY,
    KEEP_ALIVE_ENDED,
    PREWARM_DUE,
    RESCALE,
    RETRY,
    RUN_ENDED,
)
from workbench.simulation.live.simulation import WarmSimulation
from workbench.simulation.loop import NO_OBSERVERS, Job, Observers, SimulationLoop
from workbench.simulation.policy import Policy
from workbench.simulation.queues.autoscaler import Autoscaler
from workbench.simulation.queues.batch_runs import BatchRuns, Run
from workbench.simulation.queues.dispatcher import QueueDispatcher
from workbench.simulation.queues.policy_calls import PolicyCalls
from workbench.simulation.queues.pool_dispatcher import PoolDispatcher
from workbench.simulation.queues.prewarmer import Prewarmer
from workbench.simulation.queues.warm_start import warm_up
from workbench.simulation.result import Result
from workbench.simulation.scenario import Scenario
from workbench.simulation.setup import SimulationState, assemble, policy_for
from workbench.simulation.stage_jobs import StageJob
from workbench.simulation.stations.policy import StationPolicy
from workbench.simulation.stations.simulation import StationSimulation
from workbench.simulation.workflow_state import StageQueue, WorkflowState
from workbench.simulation.workload import Arrivals

Stop = Callable[[], bool]


def simulate(  # noqa: PLR0913 - what a run depends on, each by name
    scenario: Scenario,
    catalogue: Catalogue,
    arrivals: Arrivals,
    policy: str | type[Policy],
    *,
    seed: int = 0,
    requests: int | None = None,
    rates_rps: Mapping[tuple[str, str], float] | None = None,
    observers: Observers = NO_OBSERVERS,
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
    chosen = policy_for(state, policy, rates_rps)
    simulation = _loop_of(state, chosen, seed, observers)
    simulation.setup_s = perf_counter() - began
    try:
        simulation.run(stream(arrivals, state.workflows, requests or sys.maxsize, stop))
    except RunError as error:
        error.result = simulation.result()
        raise
    except (DocumentError, OSError) as error:
        raise RunError(str(error), simulation.result()) from error
    return simulation.result()


def _loop_of(
    state: SimulationState, policy: Policy, seed: int, observers: Observers
) -> SimulationLoop:
    """Return the loop that a policy's kind needs."""
    if isinstance(policy, StationPolicy):
        return StationSimulation(state, policy, seed, observers)
    kind = WarmSimulation if policy.dispatches else Simulation
    return kind(state, policy, seed, observers)


class Simulation(SimulationLoop):
    """A run in which a policy schedules each queue, with a handler for each kind of event."""

    def __init__(
        self, state: SimulationState, policy: Policy, seed: int, observers: Observers
    ) -> None:
        super().__init__(state, policy, seed, observers)
        self._lost_queues: dict[StageQueue, None] = {}  # whose jobs wait again
        self._keep_alive_ms = state.scenario.keep_alive_ms
        self._calls = PolicyCalls(policy, self._queue)
        self._runs = BatchRuns(state, self._tallies, self._queue, observers.on_span)
        self._prewarmer: Prewarmer | None = None
        self._autoscaler: Autoscaler | None = None
        if policy.autoscales:
            self._autoscaler = Autoscaler(
                policy,
                state.queues,
                state.cluster,
                state.grants,
                self._queue,
                warm_at_start=state.scenario.warm_containers > 0,
            )
            self._pools = PoolDispatcher(self._calls, self._runs, self._autoscaler, self._drop)
            self._schedule = self._pools.schedule
            self._queue.push(0.0, RESCALE, self._autoscaler)
        else:
            warm_up(state, self._calls, policy.context.rate_rps)
            if state.scenario.prewarm and policy.prewarms:
                self._prewarmer = Prewarmer(policy, state.cluster, self._queue)
            self._dispatcher = QueueDispatcher(state, self._calls, self._runs, self._drop)
            self._schedule = self._dispatcher.schedule
        self._expiry_pending = not policy.autoscales
        if self._expiry_pending:
            self._queue.push(self._keep_alive_ms, KEEP_ALIVE_ENDED, None)

    def result(self) -> Result:
        """Return the result of all events so far."""
        runs = self._runs
        if self._autoscaler is not None:
            cold_starts, forced = self._autoscaler.cold_starts, 0
            placement_failures = self._pools.placement_failures
        else:
            cold_starts, forced = self._dispatcher.cold_starts, self._dispatcher.forced
            placement_failures = self._dispatcher.placement_failures
        return Result(
            **self._measured(),
            runs=runs.runs,
            mean_batch_size=runs.jobs / runs.runs if runs.runs else 0.0,
            cold_starts=cold_starts,
            prewarmed=self._prewarmer.started if self._prewarmer else 0,
            evictions=self._cluster.evictions,
            forced=forced,
            placement_failures=placement_failures,
            planning_calls=self._calls.number,
            planning_s=self._calls.wall_s,
        )

    # -- events --------------------------------------------------------------------------------

    def _handlers(self) -> dict[int, Callable[[Any, float], None]]:
        handlers: dict[int, Callable[[Any, float], None]] = {
            RUN_ENDED: self._run_ended,
            CONTAINER_READY: self._container_ready,
            RETRY: self._retry,
            KEEP_ALIVE_ENDED: self._expire,
        }
        if self._autoscaler is not None:
            handlers[RESCALE] = self._rescale
        if self._prewarmer is not None:
            handlers[PREWARM_DUE] = self._prewarmer.due
        return handlers

    def _arrive(self, workflow: WorkflowState, now_ms: float) -> None:
        job = StageJob(self._new_request(workflow, now_ms), now_ms + workflow.slo_ms)
        for queue in self._join(workflow, workflow.graph.entries, job, now_ms):
            self._schedule(queue, now_ms)
        if self._prewarmer is not None:
            self._prewarmer.arrived(workflow, now_ms)

    def _run_ended(self, run: Run, now_ms: float) -> None:
        if not run[0].lost:
            self._end_run(run, now_ms)

    def _end_run(self, run: Run, now_ms: float) -> None:
        container, parts = run
        self._runs.end(container)
        if self._autoscaler is not None:
            self._autoscaler.release(container, now_ms)
        else:
            self._cluster.end(container, now_ms)
            self._schedule_expiry(now_ms)
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
        if self._autoscaler is None:
            self._dispatcher.capacity_freed(list(joined), now_ms)
            return
        joined[parts[0][0]] = None
        for queue in joined:
            self._schedule(queue, now_ms)

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
        if self._autoscaler is not None:
            self._lost_queues[self._autoscaler.lose(container, now_ms)] = None
        else:
            self._cluster.lose(container, now_ms, is_running=bool(queues))
        self._lost_queues.update(dict.fromkeys(queues))

    def _capacity_changed(self, now_ms: float) -> None:
        queues, self._lost_queues = list(self._lost_queues), {}
        if self._autoscaler is None:
            self._dispatcher.capacity_freed(queues, now_ms)
            return
        for queue in queues:
            self._schedule(queue, now_ms)

    def _container_ready(self, container: Container, now_ms: float) -> None:
        if container.lost:
            return
        if self._autoscaler is not None:
            self._schedule(self._autoscaler.release(container, now_ms), now_ms)
        elif self._cluster.started(container, now_ms):
            self._schedule_expiry(now_ms)
            self._dispatcher.capacity_freed([], now_ms)

    def _retry(self, queue: StageQueue, now_ms: float) -> None:
        if queue.retry_at_ms <= now_ms and not self._is_stalled(now_ms):
            queue.retry_at_ms = inf
            self._schedule(queue, now_ms)

    def _rescale(self, autoscaler: Autoscaler, now_ms: float) -> None:
        if not self._is_stalled(now_ms):
            autoscaler.rescale(now_ms)
            self._queue.push(now_ms + self._policy.rescale_ms, RESCALE, autoscaler)

    def _schedule_expiry(self, now_ms: float) -> None:
        if not self._expiry_pending:
            self._expiry_pending = True
            self._queue.push(now_ms + self._keep_alive_ms, KEEP_ALIVE_ENDED, None)

    def _expire(self, _: None, now_ms: float) -> None:
        next_ms = self._cluster.expire_ms(now_ms)
        self._expiry_pending = next_ms < inf
        if self._expiry_pending:
            self._queue.push(next_ms, KEEP_ALIVE_ENDED, None)

    @property
    def _begun_ms(self) -> float:
        return self._runs.begun_ms

    def _drop_queued(self) -> None:
        for workflow in self._workflows:
            for queue in workflow.queues:
                while queue.jobs:
                    self._drop(queue.jobs.popleft(), self._now_ms)
