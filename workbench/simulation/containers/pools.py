"""Pools of warm containers: which one is claimed, awaited or evicted first.

Claims are last in, first out, so that surplus containers age and expire. To free memory, and after
too long an idle time, the least recently used end first.
"""

from math import inf
from typing import Generic, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray


class Warm(Protocol):
    """An unclaimed container: idle or starting."""

    gpu: int  # row of the fleet
    ready_ms: float  # end of its start
    idle_since_ms: float


WarmT = TypeVar("WarmT", bound=Warm)


class WarmPool(Generic[WarmT]):
    """Containers that can run one function: idle, starting or busy.

    Attributes:
        ready_ms: (GPUs,) time at which a container on each GPU can run the function: -inf if one
            is idle, inf without any. Placement reads it.
        ready_at_ms: view of `ready_ms`, which reads and writes an element in half the time.
        unclaimed: number of idle and starting containers.
    """

    __slots__ = ("_busy_until_ms", "_idle", "_starting", "ready_at_ms", "ready_ms", "unclaimed")

    def __init__(self, gpus: int) -> None:
        self.ready_ms: NDArray[np.float64] = np.full(gpus, inf)
        self.ready_at_ms = cast("memoryview[float]", self.ready_ms.data)
        self.unclaimed = 0
        self._idle: list[list[WarmT]] = [[] for _ in range(gpus)]
        self._starting: list[WarmT] = []
        self._busy_until_ms: dict[WarmT, float] = {}

    def add_idle(self, container: WarmT) -> None:
        """Add a container that has started, or whose run has ended."""
        self._busy_until_ms.pop(container, None)
        gpu = container.gpu
        idle = self._idle[gpu]
        if not idle:
            self.ready_at_ms[gpu] = -inf
        idle.append(container)
        self.unclaimed += 1

    def add_starting(self, container: WarmT) -> None:
        """Add a container that starts without a claim."""
        self._starting.append(container)
        self.unclaimed += 1
        ready_at_ms = self.ready_at_ms
        ready_at_ms[container.gpu] = min(ready_at_ms[container.gpu], container.ready_ms)

    def started(self, container: WarmT) -> bool:
        """Make a started container idle; return false if it was claimed during its start."""
        if container not in self._starting:
            return False
        self._starting.remove(container)
        self.unclaimed -= 1
        self.add_idle(container)
        return True

    def claim(self, gpu: int) -> WarmT | None:
        """Claim a container on that GPU: the last used, else the soonest ready, else None."""
        idle = self._idle[gpu]
        if idle:
            container = idle.pop()
            if not idle:
                self.ready_at_ms[gpu] = self._soonest_ms(gpu)
        else:
            soonest = self._soonest(gpu)
            if soonest is None:
                return None
            container = soonest
            self._starting.remove(container)
            self.ready_at_ms[gpu] = self._soonest_ms(gpu)
        self.unclaimed -= 1
        return container

    def add_busy(self, container: WarmT, until_ms: float) -> None:
        """Add a claimed or new container with the predicted end of its run."""
        self._busy_until_ms[container] = until_ms

    def soonest_free_ms(self) -> float:
        """Return the soonest predicted end of a run, past where one is overdue; inf: none."""
        return min(self._busy_until_ms.values(), default=inf)

    def remove(self, container: WarmT) -> None:
        """Remove an unclaimed container that ends."""
        gpu = container.gpu
        idle = self._idle[gpu]
        (idle if container in idle else self._starting).remove(container)
        self.unclaimed -= 1
        if not idle:
            self.ready_at_ms[gpu] = self._soonest_ms(gpu)

    def _soonest(self, gpu: int) -> WarmT | None:
        starting = (container for container in self._starting if container.gpu == gpu)
        return min(starting, key=lambda container: container.ready_ms, default=None)

    def _soonest_ms(self, gpu: int) -> float:
        soonest = self._soonest(gpu) if self._starting else None
        return inf if soonest is None else soonest.ready_ms


class LeastRecentlyUsed(dict[WarmT, None]):
    """Unclaimed containers of all functions on one GPU, ordered by their last use.

    The key of a container that becomes idle is set to None; that of a claimed one is popped.
    """

    __slots__ = ()

    def oldest(self) -> WarmT:
        """Return the least recently used; there must be one."""
        return next(iter(self))

    def idle_since_ms(self) -> float:
        """Return the start of the longest idle time; inf without containers."""
        return min((container.idle_since_ms for container in self), default=inf)
