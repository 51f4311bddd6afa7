"""A queue at each station, in the order of readiness."""

from abc import abstractmethod
from collections import deque

from workbench.simulation.policy import PolicyContext
from workbench.simulation.stations.policy import StationPolicy
from workbench.simulation.stations.station import StageTask, Station


class StationQueues(StationPolicy):
    """Runs a stage at the station that a subclass chooses, and in no other."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._queues: dict[int, deque[StageTask]] = {}

    @abstractmethod
    def station_number(self, task: StageTask) -> int:
        """Return the number of the stage's station."""

    def ready(self, task: StageTask, now_ms: float) -> None:  # noqa: ARG002 - for overrides
        """Join the queue of the stage's station."""
        self._queues.setdefault(self.station_number(task), deque()).append(task)

    def next_task(self, station: Station, now_ms: float) -> StageTask | None:  # noqa: ARG002 - its contract
        """Return the oldest of the station's queue."""
        queue = self._queues.get(station.number)
        return queue.popleft() if queue else None
