"""First come, first served: all layers of a request before those of a later one."""

from typing import ClassVar

from workbench.simulation.policies.layer_queue import LayerQueue, RequestLayers
from workbench.simulation.stations.station import StageTask


class Fcfs(LayerQueue):
    """Runs the request that arrived first."""

    name: ClassVar[str] = "fcfs"

    def score(self, task: StageTask, layers: RequestLayers, now_ms: float) -> float:  # noqa: ARG002
        """Return the time of arrival."""
        return task.arrival_ms
