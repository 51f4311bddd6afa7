"""Background tasks of a process: they run while its servers run, and end with them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable

import structlog

log = structlog.get_logger(__name__)


@contextlib.asynccontextmanager
async def background_tasks(
    works: Iterable[Coroutine[None, None, None]],
    on_exit: Callable[["asyncio.Task[None]"], object],
) -> AsyncIterator[None]:
    """Run coroutines while inside; cancel them at the end and wait for them.

    ``on_exit`` gets each task that ends, cancelled or not.
    """
    tasks = [asyncio.create_task(work) for work in works]
    for task in tasks:
        task.add_done_callback(on_exit)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def repeat(work: Callable[[], Awaitable[None]], every_s: float) -> None:
    """Do work after each pause; an error is logged, and the next attempt may succeed."""
    while True:
        await asyncio.sleep(every_s)
        try:
            await work()
        except Exception:
            log.exception("upkeep failed")
