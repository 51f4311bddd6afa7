"""Running services, waiting for conditions."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any


async def until(condition: Callable[[], bool]) -> None:
    """Yield to other tasks until the condition holds: for states without an event."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)


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
