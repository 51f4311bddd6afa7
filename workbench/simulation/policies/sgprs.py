"""SGPRS: real-time stages on a pool of contexts between which a task moves at no cost.

Source: Fakhim Babaei and Chantem, "SGPRS: Seamless GPU Partitioning Real-Time Scheduler for
Periodic Deep Learning Workloads", DATE 2024, and its public code. Contexts of fixed shares exist
from the start. A stage has a part of the deadline by its worst-case time. It goes to the first
empty context that keeps that deadline, else to the empty one with the earliest end, else to the one
whose queue ends first; a stage that is urgent in none of these ways waits until twice its part of
the deadline is left.

Ours: worst-case times are the profile's at the share that a stage has while all contexts are full.
A stage whose predecessor was late has the high priority of a last stage; the public code's middle
priority is not modelled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import ClassVar

from scheduler.dispatch.stage_graph import StageGraph
from workbench.simulation.policy import PolicyContext, QueueKey
from workbench.simulation.stations.policy import StationPolicy, StationSize
from workbench.simulation.stations.station import StageTask, Station

DEADLINE_RATIO = 0.99  # of the SLO, for all stages together
_FEW_CONTEXTS = 2
_SLOTS_FEW, _SLOTS_MANY = 3, 2  # stages at a time in a context


@dataclass(frozen=True, slots=True)
class StageDeadline:
    """Part of the deadline of one stage.

    Attributes:
        worst_ms: time of the stage on a busy GPU.
        relative_ms: part of the deadline that the stage may use.
        end_ms: time from the request's arrival to the end of that part.
        is_last: true if no stage follows.
    """

    worst_ms: float
    relative_ms: float
    end_ms: float
    is_last: bool


Queued = tuple[bool, float, int, StageTask]  # not urgent, deadline, order, task


def context_sizes(context: PolicyContext) -> Sequence[StationSize]:
    """Return the pool of contexts of a GPU: few of them run more stages at a time."""
    count = context.contexts
    slots = _SLOTS_FEW if count <= _FEW_CONTEXTS else _SLOTS_MANY
    return (StationSize(context.contexts_percent / count, slots),) * count


class Sgprs(StationPolicy):
    """Chooses a context for each stage when it becomes ready."""

    name: ClassVar[str] = "sgprs"

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._deadlines: dict[QueueKey, StageDeadline] = {}
        self._queues: dict[int, list[Queued]] = {}
        self._queued_ms: dict[int, float] = {}  # worst-case times in each queue
        self._delayed: list[Queued] = []
        self._order = 0

    def sizes(self) -> Sequence[StationSize]:
        """Return contexts of equal size."""
        return context_sizes(self.context)

    def ready(self, task: StageTask, now_ms: float) -> None:
        """Assign a context, or wait."""
        deadline = self.deadline(task.key)
        end_ms = task.arrival_ms + deadline.end_ms
        late = task.ready_ms > end_ms - deadline.relative_ms
        urgent = deadline.is_last or late
        self._order += 1
        queued = (not urgent, end_ms, self._order, task)
        empty = [station for station in self.stations if self._is_empty(station)]
        if not empty and not urgent and end_ms - 2 * deadline.relative_ms > now_ms:
            heappush(self._delayed, queued)
            return
        self._assign(queued, empty, now_ms)

    def next_task(self, station: Station, now_ms: float) -> StageTask | None:
        """Return the first of the context's queue, or a waiting stage where it is empty."""
        self._assign_due(now_ms)
        queue = self._queues.get(station.number)
        if queue:
            task = heappop(queue)[-1]
            self._queued_ms[station.number] -= self.deadline(task.key).worst_ms
            return task
        if self._delayed and not station.running:
            return heappop(self._delayed)[-1]
        return None

    def wake_ms(self, now_ms: float) -> float:  # noqa: ARG002 - its contract
        """Return when the first of the waiting stages is assigned at the latest."""
        return min((self._due_ms(queued) for queued in self._delayed), default=inf)

    def deadline(self, key: QueueKey) -> StageDeadline:
        """Return the part of the deadline of a stage."""
        if key not in self._deadlines:
            self._divide(key)
        return self._deadlines[key]

    # -- contexts ------------------------------------------------------------------------------

    def _assign(self, queued: Queued, empty: Sequence[Station], now_ms: float) -> None:
        task = queued[-1]
        end_ms = task.arrival_ms + self.deadline(task.key).end_ms
        alone = [(now_ms + self.time_ms(task.key, station), station.number) for station in empty]
        in_time = [number for finish_ms, number in alone if finish_ms <= end_ms]
        if in_time:
            number = in_time[0]
        elif alone:
            number = min(alone)[1]
        else:
            number = min((self._backlog_ms(station), station.number) for station in self.stations)[
                1
            ]
        heappush(self._queues.setdefault(number, []), queued)
        worst_ms = self.deadline(task.key).worst_ms
        self._queued_ms[number] = self._queued_ms.get(number, 0.0) + worst_ms

    def _assign_due(self, now_ms: float) -> None:
        due = [queued for queued in self._delayed if self._due_ms(queued) <= now_ms]
        if not due:
            return
        self._delayed = [queued for queued in self._delayed if self._due_ms(queued) > now_ms]
        heapify(self._delayed)
        for queued in sorted(due):
            empty = [station for station in self.stations if self._is_empty(station)]
            self._assign(queued, empty, now_ms)

    def _due_ms(self, queued: Queued) -> float:
        deadline = self.deadline(queued[-1].key)
        return queued[1] - 2 * deadline.relative_ms

    def _is_empty(self, station: Station) -> bool:
        return not station.running and not self._queues.get(station.number)

    def _backlog_ms(self, station: Station) -> float:
        running_ms = sum(self.deadline(task.key).worst_ms for task in station.running)
        return running_ms + self._queued_ms.get(station.number, 0.0)

    # -- deadlines -----------------------------------------------------------------------------

    def _divide(self, key: QueueKey) -> None:
        """Divide the SLO of a workflow in proportion to worst-case times on the longest path."""
        namespace, name, _ = key
        spec = self.context.catalogue.workflow(namespace, name).spec
        graph = StageGraph(spec.stages)
        station = self.stations[0]
        crowd = max(sum(s.percent for s in self.stations if s.gpu == station.gpu) / 100.0, 1.0)
        share = station.percent / station.slots / crowd
        keys = [(namespace, name, stage.name) for stage in spec.stages]
        worst_ms = [self.time_ms(stage_key, station, share) for stage_key in keys]
        ends_ms = [0.0] * len(keys)
        pending = list(graph.entries)
        while pending:  # a stage comes up once for each path to it, the last time with its end
            stage = pending.pop()
            before_ms = max((ends_ms[i] for i in graph.predecessors[stage]), default=0.0)
            ends_ms[stage] = before_ms + worst_ms[stage]
            pending.extend(graph.successors[stage])
        part_ratio = DEADLINE_RATIO * spec.slo.latency_ms / max(ends_ms)
        for stage, stage_key in enumerate(keys):
            self._deadlines[stage_key] = StageDeadline(
                worst_ms[stage],
                part_ratio * worst_ms[stage],
                part_ratio * ends_ms[stage],
                not graph.successors[stage],
            )
