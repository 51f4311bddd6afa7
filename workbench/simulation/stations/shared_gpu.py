"""Progress of stages that share a GPU: who runs at the same time, and how fast."""

from collections import Counter
from dataclasses import dataclass, field

from workbench.simulation.stations.share_times import ShareTimes
from workbench.simulation.stations.station import StageTask, Station

WHOLE_PERCENT = 100.0


@dataclass(slots=True, eq=False)
class StageExecution:
    """A stage that executes.

    Attributes:
        task, station: stage that runs, and the station that runs it.
        times: profiled times of the stage.
        factor: ratio of this run's time to the profiled time.
        begun_ms: begin of the execution.
        remaining_ratio: part of the work that remains.
        share_percent: current share of the GPU.
        percent_ms: sum of share times time so far.
    """

    task: StageTask
    station: Station
    times: ShareTimes
    factor: float
    begun_ms: float
    remaining_ratio: float = 1.0
    share_percent: float = field(default=0.0)
    percent_ms: float = 0.0
    time_ms: float = 1.0  # of the whole work at the current share


class SharedGpu:
    """Stages that execute on one GPU.

    The share of a station is divided among its stages. Where the stations that execute anything
    have more than the GPU together, all shares shrink in proportion. Neighbours slow a stage by
    ``interference_ratio`` times the share that they have.

    Attributes:
        executions: executions in the order of their begin.
        version: number that grows with each change of the executions; an event with an older
            number is void.
    """

    def __init__(self, interference_ratio: float) -> None:
        self.executions: list[StageExecution] = []
        self.version = 0
        self._interference_ratio = interference_ratio
        self._last_ms = 0.0

    @property
    def held_percent(self) -> int:
        """Share of the GPU that executes something."""
        return round(sum(execution.share_percent for execution in self.executions))

    def add(self, execution: StageExecution, now_ms: float) -> None:
        """Begin an execution."""
        self._advance(now_ms)
        self.executions.append(execution)
        self._divide()

    def end(self, execution: StageExecution, now_ms: float) -> None:
        """End an execution that `soonest` has returned."""
        self._advance(now_ms)
        self.executions.remove(execution)
        self._divide()

    def soonest(self) -> tuple[float, StageExecution]:
        """Return the next end, and what ends; there must be an execution."""
        ends = [(e.remaining_ratio * e.time_ms, i) for i, e in enumerate(self.executions)]
        remaining_ms, place = min(ends)
        return self._last_ms + max(remaining_ms, 0.0), self.executions[place]

    def _advance(self, now_ms: float) -> None:
        passed_ms = now_ms - self._last_ms
        for execution in self.executions:
            execution.remaining_ratio -= passed_ms / execution.time_ms
            execution.percent_ms += passed_ms * execution.share_percent
        self._last_ms = now_ms

    def _divide(self) -> None:
        self.version += 1
        counts = Counter(execution.station.number for execution in self.executions)
        percents = {e.station.number: e.station.percent for e in self.executions}
        total_percent = sum(percents.values())
        scale_ratio = min(1.0, WHOLE_PERCENT / total_percent) if total_percent else 1.0
        used_percent = total_percent * scale_ratio
        for execution in self.executions:
            station = execution.station
            share = station.percent / counts[station.number] * scale_ratio
            others_ratio = (used_percent - share) / WHOLE_PERCENT
            slowdown = 1.0 + self._interference_ratio * others_ratio
            execution.share_percent = share
            execution.time_ms = execution.times.time_ms(share) * execution.factor * slowdown
