"""A run of a policy for stations: the loop's events, requests and speeds."""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from time import perf_counter
from typing import Any

import numpy as np

from workbench.simulation.containers.functions import Container
from workbench.simulation.errors import PolicyError
from workbench.simulation.events import CONTAINER_READY, RETRY, RUN_ENDED
from workbench.simulation.loop import Job, Observers, SimulationLoop
from workbench.simulation.result import Result, Span
from workbench.simulation.rng import REQUEST_NOISE_STREAM, Noise
from workbench.simulation.scenario import ScenarioError
from workbench.simulation.setup import SimulationState
from workbench.simulation.stage_jobs import StageJob
from workbench.simulation.stations.model_cache import ModelCache
from workbench.simulation.stations.policy import StationPolicy
from workbench.simulation.stations.queued_task import QueuedTask
from workbench.simulation.stations.shared_gpu import SharedGpu, StageExecution
from workbench.simulation.stations.station import StageTask, Station
from workbench.simulation.windows import DollarsOverTime
from workbench.simulation.workflow_state import SimulatedRequest, StageQueue, WorkflowState

_REFUSED = {  # keys of the scenario without which stations would run as if they were not there
    "failures": "which do not fail",
    "interference": "whose neighbours slow all functions alike (`interference_ratio`)",
    "profiled_noise": "where `noise_ratio` is the noise of all configurations",
}


class StationSimulation(SimulationLoop):
    """Requests whose stages run on stations; whole nodes are paid from begin to end."""

    _policy: StationPolicy

    def __init__(
        self, state: SimulationState, policy: StationPolicy, seed: int, observers: Observers
    ) -> None:
        super().__init__(state, policy, seed, observers)
        scenario = state.scenario
        for key, problem in _REFUSED.items():
            if getattr(scenario, key):
                message = f"policy {policy.name} runs on stations, {problem}: remove `{key}`"
                raise ScenarioError(message)
        self._prices = scenario.rules.prices
        self._give_up_factor = scenario.give_up_factor
        self._stations = stations_of(state, policy)
        policy.stations = self._stations
        self._gpus = [SharedGpu(scenario.interference_ratio) for _ in self._cluster.gpu_uuids]
        self._held_percents = [0] * len(self._gpus)
        stream = np.random.SeedSequence(seed, spawn_key=(REQUEST_NOISE_STREAM,))
        self._noise = Noise(np.random.default_rng(stream), scenario.request_noise_ratio)
        self._request_factors: dict[int, float] = {}
        self._skips_overruns = scenario.skip_overruns
        self._unfinished = [0] * len(state.workflows)
        power = scenario.power
        self._gpu_watts = (power.gpu_max_watts - power.gpu_idle_watts) / 100
        self._cpu_watts = power.vcpu_watts
        self._tasks: dict[int, list[QueuedTask]] = {}  # of the open requests, by number
        self._runs = self._loads = self._calls = 0
        self._planning_s = self._last_begun_ms = 0.0
        self._woken_ms = inf
        for model in self._cluster.gpu_models:
            self._cluster.held_cost.change(0.0, self._dollars(1.0, 0, 100.0, model))
        cpus = sum(shape.cpus for shape in scenario.node_shapes)
        self._cluster.held_cost.change(0.0, self._dollars(1.0, cpus, 0.0, ""))
        if policy.loads_models and scenario.warm_containers:
            self._load_in_turn(state)

    @property
    def _begun_ms(self) -> float:
        return self._last_begun_ms

    def _handlers(self) -> dict[int, Callable[[Any, float], None]]:
        return {RUN_ENDED: self._end_run, CONTAINER_READY: self._execute, RETRY: self._wake}

    # -- events --------------------------------------------------------------------------------

    def _arrive(self, workflow: WorkflowState, now_ms: float) -> None:
        request = self._new_request(workflow, now_ms)
        job = StageJob(request, now_ms + workflow.slo_ms)
        if self._skips_overruns and self._unfinished[workflow.index]:
            self._drop(job, now_ms)
            return
        self._unfinished[workflow.index] += 1
        self._request_factors[request.number] = self._noise.take_factor()
        self._join(workflow, workflow.graph.entries, job, now_ms)
        self._offer(now_ms)

    def _execute(self, execution: StageExecution, now_ms: float) -> None:
        """Begin to execute a stage whose model and input are there."""
        execution.begun_ms = now_ms
        gpu = execution.station.gpu
        self._gpus[gpu].add(execution, now_ms)
        self._retime(gpu, now_ms)

    def _end_run(self, due: tuple[int, int], now_ms: float) -> None:
        gpu, version = due
        shared = self._gpus[gpu]
        if version != shared.version:
            return
        _, execution = shared.soonest()
        shared.end(execution, now_ms)
        self._retime(gpu, now_ms)
        station, task = execution.station, execution.task
        station.running.remove(task)
        self._finish(task, execution, now_ms)
        self._offer(now_ms)

    def _wake(self, wake_ms: float, now_ms: float) -> None:
        if wake_ms == self._woken_ms and not self._is_stalled(now_ms):
            self._woken_ms = inf
            self._offer(now_ms)

    def _lose(self, container: Container, now_ms: float) -> None:
        """Do nothing: there are no containers."""

    def _capacity_changed(self, now_ms: float) -> None:
        """Do nothing: stations do not fail."""

    # -- stages --------------------------------------------------------------------------------

    def _join(
        self, workflow: WorkflowState, stages: Sequence[int], job: Job, now_ms: float
    ) -> None:
        for stage, branch in zip(stages, job.branches(len(stages), now_ms), strict=True):
            queue = workflow.queues[stage]
            request = job.request
            task = QueuedTask(
                key=queue.key,
                stage=stage,
                request=request.number,
                workflow=workflow.index,
                arrival_ms=request.arrival_ms,
                deadline_ms=request.arrival_ms + workflow.slo_ms,
                ready_ms=now_ms,
                queue=queue,
                job=branch,
            )
            self._tasks.setdefault(request.number, []).append(task)
            self._called(task, now_ms, self._policy.ready, task, now_ms)

    def _offer(self, now_ms: float) -> None:
        """Offer free slots to the policy until it takes none."""
        for station in self._stations:
            while len(station.running) < station.slots:
                task = self._called(None, now_ms, self._policy.next_task, station, now_ms)
                if task is None:
                    break
                if not (isinstance(task, QueuedTask) and task.is_waiting):
                    problem = ValueError(f"stage {task.key[2]} was returned, and does not wait")
                    raise PolicyError.of(self._policy.name, task.key, now_ms, problem)
                task.is_waiting = False
                request = task.job.request
                slo_ms = task.deadline_ms - task.arrival_ms
                if not request.ended and (now_ms - task.arrival_ms > self._give_up_factor * slo_ms):
                    self._drop(task.job, now_ms)
                    self._forget(request)
                if not request.ended:
                    self._begin(task, station, now_ms)
        wake_ms = self._policy.wake_ms(now_ms)
        if now_ms < wake_ms < inf and wake_ms != self._woken_ms:
            self._woken_ms = wake_ms
            self._queue.push(wake_ms, RETRY, wake_ms)

    def _begin(self, task: QueuedTask, station: Station, now_ms: float) -> None:
        queue, job = task.queue, task.job
        start_ms = 0.0
        times = self._policy.share_times(task.key, station)
        if self._policy.loads_models:
            start_ms = self._load_ms(task, station, times.memory_mib)
        transfer_ms = queue.inputs.transfer_ms(job.request.ran_on, station.node)
        station.running.append(task)
        self._runs += 1
        self._last_begun_ms = now_ms
        job.queue_ms += now_ms - job.since_ms
        job.start_ms += start_ms
        job.transfer_ms += transfer_ms
        factor = queue.noise.take_factor() * self._request_factors[task.request]
        execution = StageExecution(task, station, times, factor, now_ms)
        if start_ms + transfer_ms > 0.0:
            self._queue.push(now_ms + start_ms + transfer_ms, CONTAINER_READY, execution)
        else:
            self._execute(execution, now_ms)

    def _load_ms(self, task: QueuedTask, station: Station, memory_mib: int) -> float:
        """Use the model of a stage's function; return the time that loading takes."""
        function = task.queue.function
        pinned = {
            self._policy.context.profile(running.key).metadata.name
            for neighbour in self._stations
            if neighbour.gpu == station.gpu
            for running in neighbour.running
        }
        if not station.cache.use(
            function.name,
            memory_mib,
            pinned=pinned,
            victim=lambda functions: self._policy.victim(station, functions),
        ):
            return 0.0
        self._loads += 1
        return function.cold_ms

    def _retime(self, gpu: int, now_ms: float) -> None:
        shared = self._gpus[gpu]
        held_percent = shared.held_percent
        self._cluster.utilisation.add(now_ms, held_percent - self._held_percents[gpu])
        self._held_percents[gpu] = held_percent
        if shared.executions:
            self._queue.push(shared.soonest()[0], RUN_ENDED, (gpu, shared.version))

    def _finish(self, task: StageTask, execution: StageExecution, now_ms: float) -> None:
        if not isinstance(task, QueuedTask):
            raise TypeError(f"stage {task.key} is not of this run")
        job, station, queue = task.job, execution.station, task.queue
        execute_ms = now_ms - execution.begun_ms
        job.execute_ms += execute_ms
        request = job.request
        mean_percent = execution.percent_ms / execute_ms if execute_ms else 0.0
        dollars = self._dollars(execute_ms, station.cpus, mean_percent, station.gpu_model)
        request.cost_dollars += dollars
        tally = self._tallies.at(task.workflow, request.arrival_ms)
        tally.ran_dollars += dollars
        watts = self._gpu_watts * mean_percent + self._cpu_watts * station.cpus
        tally.ran_joules += watts * execute_ms / 1000
        self._called(task, now_ms, self._policy.ended, task, station, execute_ms)
        if self._observers.on_span is not None:
            self._observers.on_span(self._span(task, execution, now_ms, dollars))
        if request.ended:
            return
        request.ran_on[task.stage] = station.node
        ready = request.finish(queue.index)
        if not request.unfinished:
            self._end_request(job, now_ms)
            self._forget(request)
        elif ready:
            self._join(request.workflow, ready, job, now_ms)

    def _forget(self, request: SimulatedRequest) -> None:
        del self._request_factors[request.number]
        del self._tasks[request.number]
        self._unfinished[request.workflow.index] -= 1
        self._policy.closed(request.number)

    def _span(
        self, task: QueuedTask, execution: StageExecution, now_ms: float, dollars: float
    ) -> Span:
        station = execution.station
        return Span(
            workflow=task.workflow,
            stage=task.key[2],
            function=task.queue.function.name,
            node=self._cluster.node_names[station.node],
            gpu=self._cluster.gpu_uuids[station.gpu],
            container=station.number,
            begin_ms=execution.begun_ms,
            start_ms=0.0,
            transfer_ms=0.0,
            execute_ms=execution.begun_ms,
            end_ms=now_ms,
            batch=1,
            requests=((task.request, task.stage),),
            cpu=station.cpus,
            gpu_percent=round(station.percent),
            memory_mib=execution.times.memory_mib,
            cost_dollars=dollars,
        )

    def _called(self, task: StageTask | None, now_ms: float, call: Any, *arguments: Any) -> Any:
        """Call the policy, with its wall time counted and its errors named."""
        began = perf_counter()
        try:
            return call(*arguments)
        except Exception as error:
            key = None if task is None else task.key
            raise PolicyError.of(self._policy.name, key, now_ms, error) from error
        finally:
            self._planning_s += perf_counter() - began
            self._calls += 1

    def _dollars(self, time_ms: float, cpus: int, percent: float, gpu_model: str) -> float:
        prices = self._prices
        gpu_dollars = prices.request_cost_dollars(time_ms, 0, 100, 1, gpu_model)
        return percent / 100 * gpu_dollars + prices.request_cost_dollars(time_ms, cpus, 0, 1)

    def _drop_queued(self) -> None:
        for tasks in self._tasks.values():
            for task in tasks:
                if task.is_waiting:
                    self._drop(task.job, self._now_ms)

    def _load_in_turn(self, state: SimulationState) -> None:
        """Load models into the caches, function by function, as far as there is room."""
        tasks = _first_queues(state)
        stations = {station.cache: station for station in self._stations}
        for turn, (cache, station) in enumerate(stations.items()):
            for offset in range(len(tasks)):
                queue = tasks[(turn + offset) % len(tasks)]
                times = self._policy.share_times(queue.key, station)
                if times.memory_mib <= cache.free_mib:
                    cache.use(queue.function.name, times.memory_mib)

    def _caches(self) -> list[ModelCache]:
        return list(dict.fromkeys(station.cache for station in self._stations))

    # -- result --------------------------------------------------------------------------------

    def _rented(self, edges_ms: list[float], end_ms: float) -> DollarsOverTime | None:  # noqa: ARG002 - its contract
        return None

    def result(self) -> Result:
        """Return the result of all events so far."""
        return Result(
            **self._measured(),
            runs=self._runs,
            mean_batch_size=1.0 if self._runs else 0.0,
            cold_starts=self._loads,
            prewarmed=0,
            evictions=sum(cache.evictions for cache in self._caches()),
            forced=0,
            placement_failures=0,
            planning_calls=self._calls,
            planning_s=self._planning_s,
        )


def _first_queues(state: SimulationState) -> list[StageQueue]:
    """Return one queue of each function."""
    return list({queue.function.name: queue for queue in state.queues}.values())


def stations_of(state: SimulationState, policy: StationPolicy) -> list[Station]:
    """Build the stations that a policy requires on each GPU."""
    scenario, cluster = state.scenario, state.cluster
    sizes = policy.sizes()
    slots = sum(size.slots for size in sizes)
    of_nodes = scenario.node_shapes
    shapes = [of_nodes[node] for node in cluster.node_of]
    context_mib = scenario.limits.server_context_mib
    caches = [ModelCache(shape.memory_mib - context_mib) for shape in shapes]
    pairs: Iterator[tuple[int, Any]] = ((gpu, size) for gpu in range(len(caches)) for size in sizes)
    return [
        Station(
            number=number,
            gpu=gpu,
            node=cluster.node_of[gpu],
            gpu_model=cluster.gpu_models[gpu],
            percent=size.percent,
            slots=size.slots,
            cpus=max(shapes[gpu].cpus // (slots * shapes[gpu].gpus), 1),
            cache=caches[gpu],
        )
        for number, (gpu, size) in enumerate(pairs)
    ]
