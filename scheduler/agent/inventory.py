"""The node's GPUs as they are published: what was read of them over time, judged."""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from scheduler.agent.health import Illness, illness
from scheduler.agent.reading import DeviceReading, Reading
from scheduler.agent.settings import AgentSettings
from scheduler.model.node import Gpu

_SILENT = "NVML does not answer: one of its calls hangs"


@dataclass(frozen=True, slots=True)
class Judged:
    """A GPU, why it is ill if it is, and the newest that was read of it."""

    gpu: Gpu
    illness: Illness | None
    device: DeviceReading


@dataclass(slots=True)
class _Seen:
    device: DeviceReading
    at: float
    lost: str = ""  # why it is not in the newest reading


class Inventory:
    """What is known of the node's GPUs.

    A GPU that can no longer be read is ill, and forgotten after a while; one in whose place there
    is another is forgotten at once. Its errors count until it was away: then it was reset.

    Attributes:
        problem: why NVML tells nothing; empty while it does.
        known: whether anything was heard yet, or waited for long enough.

    Args:
        settings: what counts as illness, and how long what is counted.
        clock: monotonic seconds.
    """

    def __init__(
        self, settings: AgentSettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.problem = ""
        self._settings = settings
        self._clock = clock
        self._heard = clock()
        self._ever_heard = False
        self._seen: dict[str, _Seen] = {}
        self._xids: defaultdict[str, set[int]] = defaultdict(set)

    @property
    def known(self) -> bool:
        """Whether there is something to publish, be it that there is nothing."""
        return self._ever_heard or self._is_silent()

    def take(self, reading: Reading) -> None:
        """Note a reading."""
        now = self._heard = self._clock()
        self._ever_heard = True
        self.problem = reading.problem
        here = {device.uuid for device in reading.devices}
        places = {device.index for device in reading.devices}
        for xid in reading.xids:
            for uuid in [xid.uuid] if xid.uuid else here:
                self._xids[uuid].add(xid.code)
        for uuid, seen in list(self._seen.items()):
            if uuid in here:
                continue
            if seen.device.index in places:
                del self._seen[uuid]
                continue
            seen.lost = reading.unreadable.get(seen.device.index, "NVML no longer lists it")
            if not reading.problem:
                self._xids.pop(uuid, None)
        for device in reading.devices:
            self._seen[device.uuid] = _Seen(device, now)

    def judged(self, mps_trouble: Callable[[str], str]) -> tuple[Judged, ...]:
        """The GPUs to publish, by index; ``mps_trouble`` says what is wrong with one's daemon."""
        now = self._clock()
        if self._is_silent():
            self.problem = _SILENT
        for uuid, seen in list(self._seen.items()):
            away = self.problem or seen.lost
            if away and now - seen.at > self._settings.forget_after_s:
                del self._seen[uuid]
        return tuple(
            Judged(_gpu(seen.device, ill), ill, seen.device)
            for uuid, seen in sorted(self._seen.items(), key=lambda item: item[1].device.index)
            for ill in [self._illness(uuid, seen, mps_trouble)]
        )

    def _illness(self, uuid: str, seen: _Seen, mps_trouble: Callable[[str], str]) -> Illness | None:
        if self.problem:
            return Illness("nvml", self.problem)
        if seen.lost:
            return Illness("lost", f"it cannot be read any more: {seen.lost}")
        trouble = mps_trouble(uuid) if self._settings.require_mps else ""
        return illness(seen.device, self._xids.get(uuid, ()), trouble, self._settings)

    def _is_silent(self) -> bool:
        return self._clock() - self._heard > self._settings.nvml_silent_after_s


def _gpu(device: DeviceReading, ill: Illness | None) -> Gpu:
    return Gpu(
        index=device.index,
        uuid=device.uuid,
        model=device.model,
        memory_mib=device.memory_mib,
        multiprocessors=device.multiprocessors or 1,  # NVML does not tell, and it is ill for that
        healthy=ill is None,
    )
