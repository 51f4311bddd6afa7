"""Ports beside the extender's own, in its process and on its event loop.

Each is answered inside the lifespan of the extender's application, whose server alone minds the
signals. At the end they stop before the service that they ask.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI

from scheduler.server.sockets import ListenError, SignallessServer, listening

log = structlog.get_logger(__name__)


class SecondaryServer:
    """A port of an application; it listens from the moment it is made, and answers in `running`.

    Attributes:
        port: where it listens.

    Args:
        app: what answers there; its own lifespan is not run.
        what: its name in messages, as ``the webhook``.
        address: host and port; port 0 takes a free one.
        variables: the settings that say the address, for whoever must change them.
        died: told of the server's task when that has ended, however it did.
        options: more of `uvicorn.Config`'s.

    Raises:
        ListenError: the address is taken, or not this machine's.
    """

    def __init__(
        self,
        app: FastAPI,
        *,
        what: str,
        address: tuple[str, int],
        variables: str,
        died: "Callable[[asyncio.Task[None]], None]",
        **options: Any,
    ) -> None:
        self._what = what
        self._died = died
        try:
            self._socket = listening(address, variables, backlog=1024)
        except ListenError as error:
            raise ListenError(f"{what} {error}") from None
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            app,
            http="httptools",
            lifespan="off",
            log_level="warning",
            access_log=False,
            # s; an answer takes milliseconds. What is waited for is clients that do not read.
            timeout_graceful_shutdown=2,
            **options,
        )
        self._server = SignallessServer(config)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer while inside."""
        serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        serving.add_done_callback(self._died)
        log.info("listening beside", what=self._what, port=self.port)
        try:
            yield
        finally:
            self._server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)
            self._socket.close()


def beside(app: FastAPI, running: Callable[[], AbstractAsyncContextManager[None]]) -> None:
    """Let something run while ``app`` does, inside its lifespan."""
    own = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def both(app: FastAPI) -> AsyncIterator[None]:
        async with own(app), running():
            yield

    app.router.lifespan_context = both
