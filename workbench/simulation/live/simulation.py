"""A run of the live dispatcher over simulated pods with fixed shares."""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from time import perf_counter
from typing import Any

from scheduler.dispatch.dispatcher import Dispatcher
from scheduler.dispatch.pods import Pod, PodStart, Run
from scheduler.dispatch.requests import Job, PlainPart, Request
from scheduler.dispatch.scaling.pod_counts import PERIOD_MS
from scheduler.dispatch.scaling.scaler import PodChanges, PodLimits, Scaler
from scheduler.dispatch.scaling.sizing import PodPrices, least_memory_mib
from scheduler.dispatch.slices import Slice, SliceStart
from scheduler.dispatch.workflow_queues import ServerSettings
from workbench.simulation.containers.functions import Container
from workbench.simulation.events import CONTAINER_READY, RESCALE, RETRY, RUN_ENDED
from workbench.simulation.execution import Executions
from workbench.simulation.live.pods import WarmPods
from workbench.simulation.live.slices import CrowdedGpus, SimulatedSlices
from workbench.simulation.loop import Observers, SimulationLoop
from workbench.simulation.policy import Policy
from workbench.simulation.result import Result, Span
from workbench.simulation.scenario import Scenario, ScenarioError
from workbench.simulation.setup import SimulationState
from workbench.simulation.stage_jobs import StageJob
from workbench.simulation.workflow_state import SimulatedRequest, StageQueue, WorkflowState

_ONE_ROW = (PlainPart(),)


class WarmSimulation(SimulationLoop):
    """The owner of a dispatcher, in virtual time."""

    def __init__(
        self, state: SimulationState, policy: Policy, seed: int, observers: Observers
    ) -> None:
        super().__init__(state, policy, seed, observers)
        scenario = state.scenario
        if scenario.give_up_factor < inf:
            raise ScenarioError(
                f"policy {policy.name} drops no request that is late: remove `give_up_factor`"
            )
        rules = scenario.rules
        self._slices = SimulatedSlices(state)
        self._pods = WarmPods(state, self._slices)
        self._crowded = None if scenario.arbiter else CrowdedGpus(len(state.cluster.gpu_uuids))
        self._crowded_spans: dict[Container, Span] = {}  # whose ends are open
        self._by_key = {workflow.key: workflow for workflow in state.workflows}
        self._executions = Executions(state, self._tallies)
        self._dispatcher = Dispatcher(self, rules)
        catalogue = state.catalogue
        for profile in catalogue.profiles.values():
            self._dispatcher.set_profile(profile)
        on_late = rules.on_lost_slo
        for document in catalogue.workflows.values():
            self._dispatcher.set_workflow(document, on_late=on_late, now_ms=0.0)
        for queue in state.queues:
            key = (queue.key[0], queue.function.name)
            self._dispatcher.set_server(key, ServerSettings(overhead_ms=queue.inputs.longest_ms))
        shapes = scenario.node_shapes
        cpus_per_gpu = sum(shape.cpus for shape in shapes) / sum(shape.gpus for shape in shapes)
        self._scaler = Scaler(
            self._dispatcher,
            PodPrices(rules.prices, cpus_per_gpu, _pod_memory_mib(scenario)),
            headroom_ratio=scenario.headroom_ratio,
            slices_min=scenario.pool_gpus,
        )
        limits = PodLimits(keep_alive_ms=scenario.keep_alive_ms, pooled=scenario.pool)
        for key in self._dispatcher.functions:
            self._scaler.set_limits(key, limits)
        for workflow, rate_rps in policy.context.rate_rps.items():
            self._scaler.expect(workflow, rate_rps)
        self._warm_at_start = scenario.warm_containers > 0
        self._runs = self._jobs = self._cold_starts = 0
        self._last_begun_ms = 0.0
        self._woken_ms = inf
        self._calls, self._planning_s = 0, 0.0
        self._queue.push(0.0, RESCALE, None)

    @property
    def _begun_ms(self) -> float:
        return self._last_begun_ms

    def _handlers(self) -> dict[int, Callable[[Any, float], None]]:
        return {
            RUN_ENDED: self._end_run,
            CONTAINER_READY: self._pod_ready,
            RETRY: self._wake,
            RESCALE: self._rescale,
        }

    # -- events --------------------------------------------------------------------------------

    def _timed(self, call: Callable[[], Any]) -> None:
        began_s = perf_counter()
        call()
        self._decided(began_s)

    def _decided(self, began_s: float) -> None:
        """Count a call of the dispatcher, and wake it when it needs it."""
        self._planning_s += perf_counter() - began_s
        self._calls += 1
        wake_ms = self._dispatcher.wake_at_ms
        if wake_ms < inf and wake_ms != self._woken_ms:
            self._woken_ms = wake_ms
            self._queue.push(max(wake_ms, self._now_ms), RETRY, wake_ms)

    def _arrive(self, workflow: WorkflowState, now_ms: float) -> None:
        request = self._new_request(workflow, now_ms)
        began_s = perf_counter()
        self._dispatcher.arrive(workflow.key, request, now_ms=now_ms)
        self._decided(began_s)

    def _end_run(self, run: Run, now_ms: float) -> None:
        if run.ended:  # its GPU has failed
            return
        container = self._pods.containers[run.pod.name]
        if self._crowded is not None:
            ends = self._crowded.end(container.gpu, run, now_ms)
            if ends is None:
                return
            self._push_ends(ends)
            self._show_crowded(container, now_ms)
        execution = self._executions.end(container)
        for request, _ in execution.served:
            request.ran_on[run.stage] = container.node
            transfers_ms = request.transfers_ms
            transfers_ms[run.stage] += execution.begin_ms - run.begin_ms
            for successor in request.graph.successors[run.stage]:  # the last end before it counts
                transfers_ms[successor] = transfers_ms[run.stage]
        began_s = perf_counter()
        self._dispatcher.run_ended(run, now_ms)
        self._decided(began_s)

    def _push_ends(self, ends: Iterable[tuple[float, Run]]) -> None:
        for end_ms, run in ends:
            self._queue.push(end_ms, RUN_ENDED, run)

    def _lose(self, container: Container, now_ms: float) -> None:
        self._executions.lose(container, now_ms)
        if self._crowded is not None:
            self._crowded.lose(container.gpu)
            self._show_crowded(container, now_ms)
        pod = self._pods.stop_lost(container, now_ms)
        self._timed(lambda: self._dispatcher.remove_pod(pod, now_ms))

    def _capacity_changed(self, now_ms: float) -> None:
        """End lost slices, and wait for the scaler, which starts others within its period."""
        for known in self._slices.lost():
            self._end_slice(known, now_ms)

    def _pod_ready(self, pod: Pod, now_ms: float) -> None:
        if pod.name not in self._pods.containers:  # its GPU has failed
            return
        self._timed(lambda: self._dispatcher.pod_ready(pod, now_ms))

    def _wake(self, wake_ms: float, now_ms: float) -> None:
        if wake_ms == self._woken_ms and not self._is_stalled(now_ms):
            self._woken_ms = inf
            self._timed(lambda: self._dispatcher.wake(now_ms))

    def _rescale(self, _: None, now_ms: float) -> None:
        if self._is_stalled(now_ms):
            return
        changes = self._scaler.changes(now_ms)
        for start in changes.satisfied:  # in the simulated cluster a pod with room always starts
            self._scaler.backoffs.proved(start)
        for pod in changes.stops:  # first, for a pod that goes may give its batch to the next one
            self._dispatcher.drain_pod(pod)
        for pod in changes.stops:
            self._dispatcher.remove_pod(pod, now_ms)
            self._pods.stop(pod, now_ms)
        self._change_slices(changes, now_ms)
        starts = [*changes.starts]
        if changes.slice_starts:  # their pods begin at once
            starts += (s for s in self._scaler.pod_changes(now_ms).starts if s.pooled)
        for start in starts:
            self._start(start, now_ms)
        self._queue.push(now_ms + PERIOD_MS, RESCALE, None)

    def _change_slices(self, changes: PodChanges, now_ms: float) -> None:
        for known in changes.slice_stops:
            self._dispatcher.close_slice(known.namespace, known.gpu, now_ms)
        for known in self._slices.ended():
            self._end_slice(known, now_ms)
        for start in changes.slice_starts:
            self._start_slice(start, now_ms)

    def _start_slice(self, start: SliceStart, now_ms: float) -> None:
        known = self._slices.start(start, now_ms)
        if known is None:
            self._scaler.slice_failed(start, now_ms)
            return
        self._scaler.slice_proved(start)
        self._timed(lambda: self._dispatcher.set_slice(known, now_ms))

    def _end_slice(self, known: Slice, now_ms: float) -> None:
        for pod in [pod for pod in self._dispatcher.pods if pod.slice is known]:
            self._dispatcher.remove_pod(pod, now_ms)
            self._pods.stop(pod, now_ms)
        self._dispatcher.remove_slice(known.namespace, known.gpu, now_ms)
        self._slices.stop(known, now_ms)

    def _start(self, start: PodStart, now_ms: float) -> None:
        warm = self._warm_at_start and now_ms <= 0.0
        pod = self._pods.start(start, now_ms, warm=warm)
        if pod is None:
            self._scaler.start_failed(start, now_ms)
            return
        self._timed(lambda: self._dispatcher.add_pod(pod, now_ms))
        if not warm:
            self._cold_starts += 1
            self._queue.push(pod.ready_ms, CONTAINER_READY, pod)

    # -- actions of the dispatcher's owner -----------------------------------------------------

    def enter(self, request: Request, stage: int, rows_max: int) -> Sequence[PlainPart]:  # noqa: ARG002 - its contract
        """Enter a stage with one row."""
        return _ONE_ROW

    def begin(self, run: Run) -> None:
        """Run a batch, for its profiled time with noise."""
        container = self._pods.containers[run.pod.name]
        grant = container.grant
        queue = self._by_key[run.workflow].queues[run.stage]
        transfer_ms = 0.0
        served: list[tuple[SimulatedRequest, StageQueue]] = []
        for job in run.jobs:
            request: SimulatedRequest = job.request.payload
            transfer_ms += queue.inputs.transfer_ms(request.ran_on, container.node)
            served.append((request, queue))
        executes_ms = run.begin_ms + transfer_ms
        execution = self._executions.begin(
            container, run.profiled_ms, run.batch, executes_ms, served
        )
        self._runs += 1
        self._jobs += len(run.jobs)
        self._last_begun_ms = run.begin_ms
        if self._crowded is None:
            self._queue.push(execution.end_ms, RUN_ENDED, run)
        else:
            run_ms = execution.end_ms - run.begin_ms
            self._push_ends(self._crowded.begin(container.gpu, run, run_ms, run.begin_ms))
        if self._observers.on_span is not None:
            span = Span(
                workflow=queue.workflow_index,
                stage=queue.key[2],
                function=queue.function.name,
                node=self._cluster.node_names[container.node],
                gpu=self._cluster.gpu_uuids[container.gpu],
                container=container.number,
                begin_ms=run.begin_ms,
                start_ms=0.0,
                transfer_ms=transfer_ms,
                execute_ms=executes_ms,
                end_ms=execution.end_ms,
                batch=run.batch,
                requests=tuple((request.number, run.stage) for request, _ in served),
                cpu=grant.configuration.cpu,
                gpu_percent=grant.percent,
                memory_mib=grant.memory_mib,
                cost_dollars=execution.dollars,
            )
            if self._crowded is None:
                self._observers.on_span(span)
            else:
                self._crowded_spans[container] = span

    def _show_crowded(self, container: Container, now_ms: float) -> None:
        """Show the run of a container that ends now, however long it was to take alone."""
        span = self._crowded_spans.pop(container, None)
        if span is not None and self._observers.on_span is not None:
            self._observers.on_span(span._replace(end_ms=max(now_ms, span.execute_ms)))

    def end(self, request: Request, job: Job, now_ms: float) -> None:
        """Count a request that has ended."""
        self._end_request(_last_job(request, job), now_ms)

    def drop(self, request: Request, job: Job, reason: str, now_ms: float) -> None:  # noqa: ARG002 - its contract
        """Count a request that was dropped."""
        self._drop(_last_job(request, job), now_ms)

    def _drop_queued(self) -> None:
        for workflow in self._workflows:
            self._dispatcher.remove_workflow(workflow.key, self._now_ms)

    # -- result --------------------------------------------------------------------------------

    def result(self) -> Result:
        """Return the result of all events so far."""
        return Result(
            **self._measured(),
            runs=self._runs,
            mean_batch_size=self._jobs / self._runs if self._runs else 0.0,
            cold_starts=self._cold_starts,
            prewarmed=0,
            evictions=0,
            forced=0,
            placement_failures=self._scaler.failures,
            planning_calls=self._calls,
            planning_s=self._planning_s,
        )


def _pod_memory_mib(scenario: Scenario) -> dict[str, int]:
    """Return the memory of one GPU for pods, by model; the least where nodes differ."""
    context_mib = scenario.limits.server_context_mib
    return least_memory_mib(
        (shape.gpu_model, shape.memory_mib - context_mib) for shape in scenario.node_shapes
    )


def _last_job(request: Request, job: Job) -> StageJob[SimulatedRequest]:
    """Return the job in the form of the other policies' runs.

    The dispatcher knows no transfers: they are part of its time of execution.
    """
    last: StageJob[SimulatedRequest] = StageJob(request.payload, request.deadline_ms)
    last.since_ms = job.since_ms
    last.queue_ms, last.start_ms = job.queue_ms, job.start_ms
    last.transfer_ms = last.request.transfers_ms[job.stage]
    last.execute_ms = job.execute_ms - last.transfer_ms
    return last
