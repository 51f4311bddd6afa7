"""The published inventory: readings of the node's GPUs over time, with their health."""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from scheduler.agent.gpus.health import HealthProblem, health_problem
from scheduler.agent.gpus.reading import DeviceReading, Reading
from scheduler.agent.settings import AgentSettings
from scheduler.model.node import Gpu

_SILENT = "NVML does not answer: one of its calls hangs"


@dataclass(frozen=True, slots=True)
class AssessedGpu:
    """A GPU, its health problem if any, and its newest reading."""

    gpu: Gpu
    problem: HealthProblem | None
    device: DeviceReading

    @property
    def is_outdated(self) -> bool:
        """Return true if the newest reading is from before the GPU became unreadable."""
        return self.problem is not None and self.problem.reason in {"nvml", "lost"}


@dataclass(slots=True)
class _LastReading:
    device: DeviceReading
    at_s: float
    lost: str = ""  # why the newest reading lacks it


class Inventory:
    """The node's known GPUs.

    A GPU that can no longer be read is unhealthy, and after a while it is removed; if another GPU
    has its index, it is removed at once. Its XIDs count as long as NVML lists it, readable or not:
    no GPU can be reset while a client of NVML, such as this process, has it open.

    Attributes:
        problem: reason why NVML cannot be read; empty if it can.
        is_known: true if there was a reading, or the wait for one took too long.
        unavailable_s: duration of the current series of readings with a problem, in seconds.

    Args:
        settings: settings with limits and time limits.
        clock: monotonic clock, in seconds.
    """

    def __init__(
        self, settings: AgentSettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.problem = ""
        self._settings = settings
        self._clock = clock
        self._last_reading_s = clock()
        self._any_reading = False
        self._unavailable_since_s: float | None = None
        self._gpus: dict[str, _LastReading] = {}
        self._xids: defaultdict[str, set[int]] = defaultdict(set)

    @property
    def is_known(self) -> bool:
        """Return true if there is something to publish, even an empty inventory."""
        return self._any_reading or self._is_unresponsive()

    @property
    def unavailable_s(self) -> float:
        """Seconds until the newest reading; a call that hangs gives no reading and adds nothing."""
        since_s = self._unavailable_since_s
        return 0.0 if since_s is None else self._last_reading_s - since_s

    def update(self, reading: Reading) -> None:
        """Apply a reading."""
        now_s = self._last_reading_s = self._clock()
        self._any_reading = True
        self.problem = reading.problem
        if not reading.problem:
            self._unavailable_since_s = None
        elif self._unavailable_since_s is None:
            self._unavailable_since_s = now_s
        uuids = {device.uuid for device in reading.devices}
        indices = {device.index for device in reading.devices}
        for xid in reading.xids:
            for uuid in [xid.uuid] if xid.uuid else uuids | self._gpus.keys():
                self._xids[uuid].add(xid.code)
        for uuid, last in list(self._gpus.items()):
            index = last.device.index
            if uuid in uuids:
                continue
            if index not in reading.unreadable and not reading.problem:
                self._xids.pop(uuid, None)
            if index in indices:
                del self._gpus[uuid]
            last.lost = reading.unreadable.get(index, "NVML no longer lists it")
        for device in reading.devices:
            self._gpus[device.uuid] = _LastReading(device, now_s)

    @property
    def devices(self) -> tuple[DeviceReading, ...]:
        """The newest reading of each known GPU."""
        return tuple(last.device for last in self._gpus.values())

    def assessed(
        self, mps_trouble: Callable[[str], str], claim: Callable[[str], str] = lambda _: ""
    ) -> tuple[AssessedGpu, ...]:
        """Assess the GPUs to publish, by index.

        Args:
            mps_trouble: function that returns the trouble of a GPU's daemon, by UUID.
            claim: function that returns who else claims a GPU, by UUID.
        """
        now_s = self._clock()
        if self._is_unresponsive():
            self.problem = _SILENT
        return tuple(
            AssessedGpu(_gpu(last.device, problem), problem, last.device)
            for uuid, last in sorted(self._gpus.items(), key=lambda item: item[1].device.index)
            if not (self.problem or last.lost) or now_s - last.at_s <= self._settings.forget_after_s
            for problem in [self._health_problem(uuid, last, mps_trouble, claim)]
        )

    def _health_problem(
        self,
        uuid: str,
        last: _LastReading,
        mps_trouble: Callable[[str], str],
        claim: Callable[[str], str],
    ) -> HealthProblem | None:
        if self.problem:
            return HealthProblem("nvml", self.problem)
        if last.lost:
            return HealthProblem("lost", f"it can no longer be read: {last.lost}")
        if claimant := claim(uuid):
            return HealthProblem("claimed", claimant)
        trouble = mps_trouble(uuid) if self._settings.require_mps else ""
        return health_problem(last.device, self._xids.get(uuid, ()), trouble, self._settings)

    def _is_unresponsive(self) -> bool:
        return self._clock() - self._last_reading_s > self._settings.nvml_silent_after_s


def _gpu(device: DeviceReading, problem: HealthProblem | None) -> Gpu:
    return Gpu(
        index=device.index,
        uuid=device.uuid,
        model=device.model,
        memory_mib=device.memory_mib,
        multiprocessors=device.multiprocessors or 1,  # unknown makes it unhealthy
        healthy=problem is None,
    )
