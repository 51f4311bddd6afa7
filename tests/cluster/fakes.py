"""Fakes of the cluster room's tests: virtual time and a recording handler."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from scheduler.cluster.api import Raw


class VirtualTime:
    """A clock that advances only in `sleep`."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    def clock_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        """Yield to other tasks, and advance the clock."""
        self.slept.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)


class Listener:
    """A handler that records its calls in `reports`."""

    def __init__(self) -> None:
        self.reports: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.objects: dict[str, Raw] = {}
        self.fail_on: Callable[[str, str], bool] = lambda _verb, _name: False

    def replace(self, items: Iterable[Raw]) -> None:
        if self.fail_on("replace", ""):
            raise RuntimeError("the handler failed on the list")
        self.objects = {item["metadata"]["name"]: item for item in items}
        self.reports.put_nowait(("replace", sorted(self.objects)))

    def upsert(self, item: Raw) -> None:
        name = item["metadata"]["name"]
        if self.fail_on("upsert", name):
            raise RuntimeError(f"the handler failed on {name}")
        self.objects[name] = item
        self.reports.put_nowait(("upsert", name))

    def delete(self, item: Raw) -> None:
        name = item["metadata"]["name"]
        self.objects.pop(name, None)
        self.reports.put_nowait(("delete", name))

    async def next(self) -> tuple[str, Any]:
        """Wait for the next call."""
        async with asyncio.timeout(60):
            return await self.reports.get()
