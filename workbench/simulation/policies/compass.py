"""Compass: every request is planned over workers whose GPUs keep models in memory.

Source: "Compass: A Decentralized Scheduler for Latency-Sensitive ML Workflows", 2024, from
summaries. Stages are ranked by the longest path that remains. Each goes to the worker with the
earliest finish: the end of its queue or the arrival of the inputs, then the load of the model where
it is not in memory, then the run. State of the workers is slightly stale. A stage is planned again
before it is sent, if its worker's queue has grown. The model whose next use in the queue is
furthest away is evicted.

Ours, because the paper gives no value that we know: state is published every 20 ms; a queue has
grown when it ends later than planned by more than the stage's own time. The models of a worker are
those that it will hold when its queue has ended, and a load that evicts one counts twice, because
the evicted model has to be loaded again.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar

from scheduler.dispatch.stage_graph import StageGraph
from workbench.simulation.policies.station_queues import StationQueues
from workbench.simulation.policy import PolicyContext
from workbench.simulation.stations.station import StageTask, Station

PUBLISHED_EVERY_MS = 20.0


@dataclass(frozen=True, slots=True)
class Query:
    """A workflow as the planner sees it.

    Attributes:
        graph: order of the workflow's stages.
        times_ms: run time of each stage, by worker.
        loads_ms, ways_ms: time to load each stage's model, and to transfer its output.
        memories_mib: memory of each stage's model.
        ranked: stages in descending order of the longest path that remains, by the first worker.
    """

    graph: StageGraph
    functions: list[str]
    times_ms: list[list[float]]
    loads_ms: list[float]
    ways_ms: list[float]
    memories_mib: list[int]
    ranked: list[int]


@dataclass(frozen=True, slots=True)
class StageAssignment:
    """Worker of a stage, and what its queue and the stage were expected to take there.

    Attributes:
        work_ms: expected time of the stage and of its model's load; 0 after its end.
    """

    worker: int
    queue_end_ms: float
    work_ms: float


class Compass(StationQueues):
    """Plans all stages of a request when it arrives."""

    name: ClassVar[str] = "compass"
    loads_models: ClassVar[bool] = True

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._queries: dict[tuple[str, str], Query] = {}
        self._plans: dict[int, dict[int, StageAssignment]] = {}
        self._backlogs_ms: list[float] = []  # by worker: planned work that has not ended
        self._models_mib: list[dict[str, int]] = []  # by worker: planned models, the latest last
        self._published_ms = -inf
        self._published_backlogs_ms: list[float] = []
        self._published_mib: list[dict[str, int]] = []  # by worker: models after its queue

    def ready(self, task: StageTask, now_ms: float) -> None:
        """Send a stage to its worker, after planning where that is needed."""
        self._publish(now_ms)
        query = self._query(task)
        plan = self._plans.get(task.request)
        if plan is None:
            plan = self._plans[task.request] = {}
            self._plan(query, plan, query.ranked, now_ms)
        planned = plan[task.stage]
        own_ms = query.times_ms[planned.worker][task.stage]
        queue_end_ms = now_ms + self._published_backlogs_ms[planned.worker]
        if queue_end_ms > max(planned.queue_end_ms, now_ms) + planned.work_ms + own_ms:
            self._backlogs_ms[planned.worker] -= planned.work_ms
            self._plan(query, plan, [task.stage], now_ms)
        super().ready(task, now_ms)

    def station_number(self, task: StageTask) -> int:
        """Return the planned worker."""
        return self._plans[task.request][task.stage].worker

    def ended(self, task: StageTask, station: Station, execute_ms: float) -> None:  # noqa: ARG002
        """Take the stage off its worker's backlog."""
        plan = self._plans.get(task.request)
        if plan is not None:
            planned = plan[task.stage]
            self._backlogs_ms[planned.worker] -= planned.work_ms
            plan[task.stage] = replace(planned, work_ms=0.0)  # later stages read its output there

    def closed(self, request: int) -> None:
        """Take what a request will not run off the backlogs."""
        for planned in self._plans.pop(request, {}).values():
            self._backlogs_ms[planned.worker] -= planned.work_ms

    def victim(self, station: Station, functions: list[str]) -> str:
        """Return the function whose next use in the worker's queue is furthest away."""
        queue = self._queues.get(station.number, ())
        coming = [self.context.profile(task.key).metadata.name for task in queue]
        uses = {name: coming.index(name) if name in coming else len(coming) for name in functions}
        return max(functions, key=uses.__getitem__)  # of several, the least recently used

    # -- planning ------------------------------------------------------------------------------

    def _publish(self, now_ms: float) -> None:
        if not self._backlogs_ms:
            self._backlogs_ms = [0.0] * len(self.stations)
            self._models_mib = [station.cache.memories_mib for station in self.stations]
        if now_ms - self._published_ms >= PUBLISHED_EVERY_MS:
            self._published_ms = now_ms
            self._published_backlogs_ms = self._backlogs_ms.copy()
            self._published_mib = [self._remaining_mib(station) for station in self.stations]

    def _remaining_mib(self, station: Station) -> dict[str, int]:
        """Return the models of a worker after its queue: the latest planned ones that fit."""
        models_mib: dict[str, int] = {}
        free_mib = station.cache.capacity_mib
        for name, memory_mib in reversed(self._models_mib[station.number].items()):
            if memory_mib > free_mib:
                break
            models_mib[name] = memory_mib
            free_mib -= memory_mib
        return models_mib

    def _plan(
        self, query: Query, plan: dict[int, StageAssignment], stages: list[int], now_ms: float
    ) -> None:
        """Choose the worker of each stage, in this order."""
        ends_ms = [now_ms + backlog_ms for backlog_ms in self._published_backlogs_ms]
        finishes_ms: dict[int, float] = {}
        for stage in stages:
            choices = [
                (*self._finish_ms(query, plan, stage, worker, ends_ms, finishes_ms, now_ms), worker)
                for worker in range(len(self.stations))
            ]
            _, finish_ms, work_ms, worker = min(choices)
            plan[stage] = StageAssignment(worker, ends_ms[worker], work_ms)
            self._backlogs_ms[worker] += work_ms
            ends_ms[worker] = finishes_ms[stage] = finish_ms
            models_mib = self._models_mib[worker]
            models_mib.pop(query.functions[stage], None)
            models_mib[query.functions[stage]] = query.memories_mib[stage]

    def _finish_ms(  # noqa: PLR0913, PLR0917 - state of a plan under construction
        self,
        query: Query,
        plan: dict[int, StageAssignment],
        stage: int,
        worker: int,
        ends_ms: list[float],
        finishes_ms: dict[int, float],
        now_ms: float,
    ) -> tuple[float, float, float]:
        """Return the rank of a worker for a stage, its finish there, and the worker's time."""
        inputs_ms = now_ms
        for before in query.graph.predecessors[stage]:
            planned = plan.get(before)
            is_there = planned is not None and planned.worker == worker
            way_ms = 0.0 if is_there else query.ways_ms[before]
            inputs_ms = max(inputs_ms, finishes_ms.get(before, now_ms) + way_ms)
        models_mib = self._published_mib[worker]
        load_ms = 0.0 if query.functions[stage] in models_mib else query.loads_ms[stage]
        free_mib = self.stations[worker].cache.capacity_mib - sum(models_mib.values())
        again_ms = load_ms if free_mib < query.memories_mib[stage] else 0.0
        work_ms = query.times_ms[worker][stage] + load_ms
        finish_ms = max(ends_ms[worker], inputs_ms) + work_ms
        return finish_ms + again_ms, finish_ms, work_ms

    def _query(self, task: StageTask) -> Query:
        namespace, name, _ = task.key
        query = self._queries.get((namespace, name))
        if query is None:
            query = self._queries[namespace, name] = self._described(namespace, name)
        return query

    def _described(self, namespace: str, name: str) -> Query:
        spec = self.context.catalogue.workflow(namespace, name).spec
        keys = [(namespace, name, stage.name) for stage in spec.stages]
        profiles = [self.context.profile(key) for key in keys]
        times_ms = [[self.time_ms(key, station) for key in keys] for station in self.stations]
        ways_ms = [1000.0 * p.spec.output_mib / self.context.bandwidth_mib_s for p in profiles]
        graph = StageGraph(spec.stages)
        paths_ms: dict[int, float] = {}

        def path_ms(stage: int) -> float:
            if stage not in paths_ms:
                following = max((path_ms(after) for after in graph.successors[stage]), default=0.0)
                paths_ms[stage] = times_ms[0][stage] + ways_ms[stage] + following
            return paths_ms[stage]

        return Query(
            graph,
            [profile.metadata.name for profile in profiles],
            times_ms,
            [profile.spec.cold_start_ms for profile in profiles],
            ways_ms,
            [self.share_times(key, self.stations[0]).memory_mib for key in keys],
            sorted(range(len(keys)), key=lambda stage: (-path_ms(stage), stage)),
        )
