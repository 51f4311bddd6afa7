"""The loop that keeps as many pods as the scaler decides."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Protocol

import structlog

from scheduler.dispatch.scaling.scaler import PodChanges
from scheduler.gateway.scaling.pod_pools import PodPools
from scheduler.gateway.scaling.slice_holders import SliceHolders
from scheduler.gateway.serving.runtime import Runtime

log = structlog.get_logger(__name__)
INTERVAL_S = 1.0
WINDOW_MS = 60_000.0
CALL_INTERVAL_S = 0.1  # between decisions, where calls find no free pod


class PodScaler(Protocol):
    """Decides how many pods of which share a function needs."""

    async def choose_shares(self, now_ms: float) -> None:
        """Choose shares, where rates or documents require it."""

    def pod_changes(self, now_ms: float) -> PodChanges:
        """Return pods to start and to stop."""


class ScalingLoop:
    """Asks the scaler every second, and soon after a call that finds no free pod.

    Args:
        runtime: runtime whose calls and clock the loop follows.
        pools: pools that start and end pods.
        holders: holders that start and end slices.
        scaler: scaler that decides on pods and shares.
        is_synced: returns true if the first lists of servers and pods are complete; nothing is
            decided before.
    """

    def __init__(
        self,
        runtime: Runtime,
        pools: PodPools,
        holders: SliceHolders,
        scaler: PodScaler,
        *,
        is_synced: Callable[[], bool],
    ) -> None:
        self._is_synced = is_synced
        self._began_ms = inf
        self._runtime = runtime
        self._pools = pools
        self._holders = holders
        self._scaler = scaler
        self._called = asyncio.Event()
        runtime.on_waiting = self._called.set

    async def run(self) -> None:
        """Decide until cancelled."""
        while True:
            try:
                if not self._runtime.is_draining and self._is_synced():
                    await self._scaler.choose_shares(self._runtime.now_ms())
                self.step()
            except Exception:
                log.exception("scaling failed; it is tried again")
            await asyncio.sleep(CALL_INTERVAL_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._called.wait(), INTERVAL_S - CALL_INTERVAL_S)

    def step(self) -> None:
        """Decide once."""
        self._called.clear()
        if self._runtime.is_draining or not self._is_synced():
            return
        self._holders.check()
        self._pools.check()
        now_ms = self._runtime.now_ms()
        self._began_ms = min(self._began_ms, now_ms)
        changes = self._scaler.pod_changes(now_ms)
        # Before the first window is full, a restarted gateway would end pods whose load it has not
        # seen yet.
        is_full = now_ms - self._began_ms >= WINDOW_MS
        for pod in changes.stops:
            if is_full or self._pools.has_created(pod):
                self._pools.stop(pod)
        for gpu_slice in changes.slice_stops:
            if is_full or self._holders.has_created(gpu_slice):
                self._holders.stop(gpu_slice)
        self._holders.start(changes.slice_starts)
        for start in changes.starts:
            self._pools.start(start)
        self._pools.check()
