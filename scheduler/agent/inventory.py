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

    A GPU that can no longer be read is ill, and not shown after a while; one in whose place there
    is another is forgotten at once. Its critical errors count for as long as NVML lists it, be it
    read or not: no GPU is reset while a client of NVML, as this process is one, has it open.

    Attributes:
        problem: why NVML tells nothing; empty while it does.
        known: whether anything was heard yet, or waited for long enough.
        told_nothing_s: for how long NVML has said that it can tell nothing, without a break, up to
            the last time that it said so.

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
        self._told_nothing_since: float | None = None
        self._seen: dict[str, _Seen] = {}
        self._xids: defaultdict[str, set[int]] = defaultdict(set)

    @property
    def known(self) -> bool:
        """Whether there is something to publish, be it that there is nothing."""
        return self._ever_heard or self._is_silent()

    @property
    def told_nothing_s(self) -> float:
        """Seconds; a call that hangs says nothing, and so does not add to them."""
        since = self._told_nothing_since
        return 0.0 if since is None else self._heard - since

    def take(self, reading: Reading) -> None:
        """Note a reading."""
        now = self._heard = self._clock()
        self._ever_heard = True
        self.problem = reading.problem
        if not reading.problem:
            self._told_nothing_since = None
        elif self._told_nothing_since is None:
            self._told_nothing_since = now
        here = {device.uuid for device in reading.devices}
        places = {device.index for device in reading.devices}
        for xid in reading.xids:
            for uuid in [xid.uuid] if xid.uuid else here | self._seen.keys():
                self._xids[uuid].add(xid.code)
        for uuid, seen in list(self._seen.items()):
            index = seen.device.index
            if uuid in here:
                continue
            if index not in reading.unreadable and not reading.problem:
                self._xids.pop(uuid, None)
            if index in places:
                del self._seen[uuid]
            seen.lost = reading.unreadable.get(index, "NVML no longer lists it")
        for device in reading.devices:
            self._seen[device.uuid] = _Seen(device, now)

    def judged(self, mps_trouble: Callable[[str], str]) -> tuple[Judged, ...]:
        """The GPUs to publish, by index; ``mps_trouble`` says what is wrong with one's daemon."""
        now = self._clock()
        if self._is_silent():
            self.problem = _SILENT
        return tuple(
            Judged(_gpu(seen.device, ill), ill, seen.device)
            for uuid, seen in sorted(self._seen.items(), key=lambda item: item[1].device.index)
            if not (self.problem or seen.lost) or now - seen.at <= self._settings.forget_after_s
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
