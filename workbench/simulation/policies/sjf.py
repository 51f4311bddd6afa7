"""Shortest job first: the request with the least profiled time left, chosen after each layer."""

from typing import ClassVar

from workbench.simulation.policies.layer_queue import LayerQueue, RequestLayers
from workbench.simulation.stations.station import StageTask


class ShortestJobFirst(LayerQueue):
    """Runs the request that ends soonest by its profile."""

    name: ClassVar[str] = "sjf"

    def score(self, task: StageTask, layers: RequestLayers, now_ms: float) -> float:  # noqa: ARG002
        """Return the profiled time of the remaining layers."""
        return layers.remaining_ms
