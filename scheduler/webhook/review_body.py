"""Bodies of AdmissionReviews, within bounds of size, number, time and content.

Every pod of the cluster may reach the webhook's port, so nothing here may grow with what a client
sends: bodies are small, few large ones are in memory at once, and one that costs seconds to parse
is refused unparsed.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect

from scheduler.server.messages import hung_up

BODY_MAX_BYTES = 4 * 2**20  # the API server takes objects of 3 MiB; the review adds little
# A pod has some hundred objects and lists. Each costs 0.4 microseconds and 60 bytes: a body of
# nothing else would occupy the event loop for most of a second.
NESTED_MAX = 100_000
SMALL_BYTES = 64 * 2**10  # more than most pods; always read
LARGE_AT_ONCE = 8
BODY_S = 10.0  # an API server sends a body at once


class ReviewBodies:
    """Reads bodies; at most `LARGE_AT_ONCE` of more than `SMALL_BYTES` are in memory at a time."""

    def __init__(self) -> None:
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Read the body of a request, which may be kept while inside.

        Raises:
            HTTPException: FastAPI's, with 400, 408 or 413.
        """
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > BODY_MAX_BYTES:
            raise _too_large()
        async with AsyncExitStack() as slot:
            try:
                async with asyncio.timeout(BODY_S):
                    body = await self._read(request, slot)
            except TimeoutError:
                raise HTTPException(408, f"the body did not arrive within {BODY_S:g} s") from None
            except ClientDisconnect:
                raise hung_up(request) from None
            if body.count(b"{") + body.count(b"[") > NESTED_MAX:
                raise HTTPException(
                    413, f"the body has more than {NESTED_MAX:,} objects and lists; no pod does"
                )
            yield body

    async def _read(self, request: Request, slot: AsyncExitStack) -> bytes:
        parts, size, is_large = [], 0, False
        async for part in request.stream():
            size += len(part)
            if size > BODY_MAX_BYTES:
                raise _too_large()
            if size > SMALL_BYTES and not is_large:
                # The client waits meanwhile: nothing more is read from its connection.
                is_large = True
                await slot.enter_async_context(self._large)
            parts.append(part)
        return b"".join(parts)


def _too_large() -> HTTPException:
    return HTTPException(413, f"the body is larger than {BODY_MAX_BYTES:,} bytes")
