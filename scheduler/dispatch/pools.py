"""Warm containers: which one is claimed, which one is ended first.

A container is claimed last in, first out, so that those which are not needed age and expire. Where
memory is wanted, and when they have been idle for too long, the least recently used end first.
"""

from math import inf
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray


class Warm(Protocol):
    """A container that no run is in: it is idle, or still starts."""

    gpu: int  # row of the fleet
    ready_ms: float  # when its start is over
    idle_since_ms: float


WarmT = TypeVar("WarmT", bound=Warm)


class WarmPool(Generic[WarmT]):
    """The unclaimed containers that one function can run in.

    Attributes:
        ready_ms: (GPUs,) when a container on each GPU can run it: -inf where one is idle, inf where
            there is none. What placement reads.
    """

    __slots__ = ("_idle", "_starting", "ready_ms")

    def __init__(self, gpus: int) -> None:
        self.ready_ms: NDArray[np.float64] = np.full(gpus, inf)
        self._idle: list[list[WarmT]] = [[] for _ in range(gpus)]
        self._starting: list[WarmT] = []

    def add_idle(self, container: WarmT) -> None:
        """A container's run has ended."""
        gpu = container.gpu
        idle = self._idle[gpu]
        if not idle:
            self.ready_ms[gpu] = -inf
        idle.append(container)

    def add_starting(self, container: WarmT) -> None:
        """A container was started for whoever comes."""
        self._starting.append(container)
        self.ready_ms[container.gpu] = min(self.ready_ms[container.gpu], container.ready_ms)

    def started(self, container: WarmT) -> bool:
        """The start of a container is over; whether it was still unclaimed, and so is idle now."""
        if container not in self._starting:
            return False
        self._starting.remove(container)
        self.add_idle(container)
        return True

    def claim(self, gpu: int) -> WarmT | None:
        """A container on that GPU: the last used, or the soonest ready; None: there is none."""
        idle = self._idle[gpu]
        if idle:
            container = idle.pop()
            if not idle:
                self.ready_ms[gpu] = self._soonest_ms(gpu)
        else:
            soonest = self._soonest(gpu)
            if soonest is None:
                return None
            container = soonest
            self._starting.remove(container)
            self.ready_ms[gpu] = self._soonest_ms(gpu)
        return container

    def remove(self, container: WarmT) -> None:
        """An unclaimed container ends."""
        gpu = container.gpu
        idle = self._idle[gpu]
        (idle if container in idle else self._starting).remove(container)
        if not idle:
            self.ready_ms[gpu] = self._soonest_ms(gpu)

    def _soonest(self, gpu: int) -> WarmT | None:
        here = (each for each in self._starting if each.gpu == gpu)
        return min(here, key=lambda each: each.ready_ms, default=None)

    def _soonest_ms(self, gpu: int) -> float:
        soonest = self._soonest(gpu) if self._starting else None
        return inf if soonest is None else soonest.ready_ms


class LeastRecentlyUsed(dict[WarmT, None]):
    """The unclaimed containers of all functions on one GPU, in a row by their last use.

    Who becomes idle is set to None at the end of the row; who is claimed is popped.
    """

    __slots__ = ()

    def oldest(self) -> WarmT:
        """The first in the row; there must be one."""
        return next(iter(self))

    def idle_since_ms(self) -> float:
        """Since when the longest idle one is; inf where there is none."""
        return min((each.idle_since_ms for each in self), default=inf)
