"""One queue for all layers: whenever a GPU is free, the layer with the smallest score runs next.

What FCFS, SJF, PREMA and DySta have in common: no layer is interrupted, and after each one the
choice is made again, among all requests that wait.
"""

from abc import abstractmethod
from dataclasses import dataclass, field

from workbench.simulation.policy import PolicyContext
from workbench.simulation.stations.policy import StationPolicy
from workbench.simulation.stations.station import StageTask, Station


@dataclass(slots=True)
class RequestLayers:
    """Layers of one request; profiled times are those of the first station.

    Attributes:
        isolated_ms: profiled time of all layers.
        remaining_ms: profiled time of the layers that have not ended.
        ran_ms: measured time of the layers that have ended.
        scaled_ms: the same, as long as the first station would have taken.
        waiting: layers of the request in the queue.
    """

    isolated_ms: float
    remaining_ms: float
    ran_ms: float = 0.0
    scaled_ms: float = 0.0
    waiting: list[StageTask] = field(default_factory=list)

    @property
    def sparsity_factor(self) -> float:
        """Measured over profiled time of the layers that have ended; 1 before the first."""
        profiled_ms = self.isolated_ms - self.remaining_ms
        return self.scaled_ms / profiled_ms if self.scaled_ms else 1.0


class LayerQueue(StationPolicy):
    """Runs the waiting layer with the smallest score; a subclass defines the score."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self.requests: dict[int, RequestLayers] = {}
        self._isolated_ms: dict[tuple[str, str], float] = {}

    @abstractmethod
    def score(self, task: StageTask, layers: RequestLayers, now_ms: float) -> float:
        """Return the score of a waiting layer; equal scores: the oldest request."""

    def choose(self, waiting: list[StageTask], now_ms: float) -> StageTask:
        """Return the waiting layer to run."""
        return min(
            waiting,
            key=lambda task: (
                self.score(task, self.requests[task.request], now_ms),
                task.request,
                task.stage,
            ),
        )

    def ready(self, task: StageTask, now_ms: float) -> None:  # noqa: ARG002 - its contract
        """Join the queue."""
        layers = self.requests.get(task.request)
        if layers is None:
            isolated_ms = self._time_of_all_ms(task)
            layers = RequestLayers(isolated_ms, isolated_ms)
            self.requests[task.request] = layers
        layers.waiting.append(task)

    def next_task(self, station: Station, now_ms: float) -> StageTask | None:  # noqa: ARG002
        """Return the layer with the smallest score."""
        waiting = [task for layers in self.requests.values() for task in layers.waiting]
        if not waiting:
            return None
        task = self.choose(waiting, now_ms)
        self.requests[task.request].waiting.remove(task)
        return task

    def ended(self, task: StageTask, station: Station, execute_ms: float) -> None:
        """Count a layer's measured time."""
        layers = self.requests.get(task.request)
        if layers is not None:
            profiled_ms = self.time_ms(task.key, self.stations[0])
            layers.ran_ms += execute_ms
            layers.scaled_ms += execute_ms * (profiled_ms / self.time_ms(task.key, station))
            layers.remaining_ms -= profiled_ms

    def closed(self, request: int) -> None:
        """Forget a request that has ended."""
        del self.requests[request]

    def _time_of_all_ms(self, task: StageTask) -> float:
        namespace, name, _ = task.key
        isolated_ms = self._isolated_ms.get((namespace, name))
        if isolated_ms is None:
            stages = self.context.catalogue.workflow(namespace, name).spec.stages
            keys = [(namespace, name, stage.name) for stage in stages]
            isolated_ms = sum(self.time_ms(key, self.stations[0]) for key in keys)
            self._isolated_ms[namespace, name] = isolated_ms
        return isolated_ms
