"""Baseline of Compass: a stage runs on the worker that its function's name hashes to."""

from collections import deque
from typing import ClassVar
from zlib import crc32

from workbench.simulation.policy import PolicyContext
from workbench.simulation.stations.policy import StationPolicy
from workbench.simulation.stations.station import StageTask, Station


class HomeNode(StationPolicy):
    """Binds each function to one worker, whatever waits there."""

    name: ClassVar[str] = "home-node"
    loads_models: ClassVar[bool] = True

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._queues: dict[int, deque[StageTask]] = {}

    def ready(self, task: StageTask, now_ms: float) -> None:  # noqa: ARG002 - its contract
        """Join the queue of the function's worker."""
        function = self.context.profile(task.key).metadata.name
        number = crc32(function.encode()) % len(self.stations)
        self._queues.setdefault(number, deque()).append(task)

    def next_task(self, station: Station, now_ms: float) -> StageTask | None:  # noqa: ARG002
        """Return the oldest of the worker's queue."""
        queue = self._queues.get(station.number)
        return queue.popleft() if queue else None
