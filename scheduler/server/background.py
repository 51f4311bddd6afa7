"""Background tasks of a process: they run while its servers run, and end with them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable


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
