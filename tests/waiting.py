"""Running services, waiting for conditions."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

TURNS = 100
"""Turns of the event loop within which what waits for nothing outside is done."""


async def until(condition: Callable[[], bool]) -> None:
    """Yield to other tasks until the condition holds: for states without an event.

    After some turns it waits for sockets or for time, and leaves the core to others.
    """
    turns = count()
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0 if next(turns) < TURNS else 0.001)


@asynccontextmanager
async def running(service: Any, *arguments: Any) -> AsyncIterator[None]:
    """Run ``service.run(*arguments)`` during the block."""
    task = asyncio.create_task(service.run(*arguments))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
