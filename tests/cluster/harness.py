"""Running services, waiting for conditions."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any

from scheduler.cluster.resource import FUNCTION_PROFILES, WORKFLOWS
from tests.testbed.api import ApiError, wait_until
from tests.testbed.control_plane import ControlPlane

DOCUMENTS = (WORKFLOWS, FUNCTION_PROFILES)


async def until(condition: Callable[[], bool]) -> None:
    """Yield to other tasks until the condition holds: for states without an event."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)


@asynccontextmanager
async def running(service: Any) -> AsyncIterator[None]:
    """Run ``service.run()`` during the block."""
    task = asyncio.create_task(service.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def wait_for_storage(plane: ControlPlane) -> None:
    """Wait until documents of installed CRDs can be listed: 429 for about a second."""

    def answers() -> bool:
        try:
            return all(plane.api.items(kind.path) is not None for kind in DOCUMENTS)
        except ApiError as error:
            return error.status == HTTPStatus.NOT_FOUND

    wait_until(answers, what="the documents' storage")
