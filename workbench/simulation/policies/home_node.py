"""Baseline of Compass: a stage runs on the worker that its function's name hashes to."""

from typing import ClassVar
from zlib import crc32

from workbench.simulation.policies.station_queues import StationQueues
from workbench.simulation.stations.station import StageTask


class HomeNode(StationQueues):
    """Binds each function to one worker, whatever waits there."""

    name: ClassVar[str] = "home-node"
    loads_models: ClassVar[bool] = True

    def station_number(self, task: StageTask) -> int:
        """Return the function's worker."""
        function = self.context.profile(task.key).metadata.name
        return crc32(function.encode()) % len(self.stations)
