"""Interface of policies that run stages on stations, without containers and batches."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, NoReturn

from workbench.simulation.policy import Policy, PolicyContext, QueueKey, SchedulingRequest
from workbench.simulation.stations.share_times import ShareTimes
from workbench.simulation.stations.station import StageTask, Station


@dataclass(frozen=True, slots=True)
class StationSize:
    """Share of a GPU, and the stages that may run in it at a time."""

    percent: float
    slots: int = 1


class StationPolicy(Policy):
    """Queues the stages that are ready, and chooses one whenever a station has a free slot.

    Attributes:
        loads_models: true if a stage waits for its function's model; otherwise all are loaded.
        stations: stations of all GPUs, from the first event on.
    """

    loads_models: ClassVar[bool] = False

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self.stations: Sequence[Station] = ()
        self._times: dict[tuple[QueueKey, str, int], ShareTimes] = {}

    def sizes(self) -> Sequence[StationSize]:
        """Return the stations of each GPU; the default is one, which runs one stage at a time."""
        return (StationSize(100.0),)

    @abstractmethod
    def ready(self, task: StageTask, now_ms: float) -> None:
        """Queue a stage whose predecessors have ended."""

    @abstractmethod
    def next_task(self, station: Station, now_ms: float) -> StageTask | None:
        """Remove and return the stage that a free slot runs now; None: none."""

    def ended(self, task: StageTask, station: Station, execute_ms: float) -> None:
        """Take note of a stage's end and of its measured time."""

    def closed(self, request: int) -> None:
        """Take note of the end of a request; its waiting stages are never run."""

    def wake_ms(self, now_ms: float) -> float:  # noqa: ARG002 - for overrides
        """Return when free slots are to be offered again although nothing happens; inf: never."""
        return inf

    def victim(self, station: Station, functions: list[str]) -> str:  # noqa: ARG002 - same
        """Return the function whose model is evicted, of those that may go, oldest first."""
        return functions[0]

    def candidates(self, request: SchedulingRequest) -> NoReturn:
        """Never called: there are no containers to choose."""
        raise NotImplementedError

    def time_ms(self, key: QueueKey, station: Station, percent: float | None = None) -> float:
        """Return the profiled time of a stage at a station, alone or with another share."""
        times = self.share_times(key, station)
        return times.time_ms(station.percent if percent is None else percent)

    def share_times(self, key: QueueKey, station: Station) -> ShareTimes:
        """Return the profiled times of a stage on a station's GPU model."""
        place = key, station.gpu_model, station.cpus
        times = self._times.get(place)
        if times is None:
            profile = self.context.profile(key)
            times = self._times[place] = ShareTimes(profile, station.gpu_model, station.cpus)
        return times
