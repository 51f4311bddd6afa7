"""Ports beside the extender's own, in its process and on its event loop.

Each is answered inside the lifespan of the extender's application, so the extender's server alone
minds the signals: uvicorn sets its handlers with `signal.signal`, and of two servers the second
would take them from the first. At the end they stop before the service that they ask.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI

log = structlog.get_logger(__name__)


class ListenError(Exception):
    """An address cannot be listened on; the message says which, by which settings, and why."""


class _Server(uvicorn.Server):
    """A server that leaves the signals to the one it runs beside."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class SidePort:
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
        self._socket = _listening(what, address, variables)
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
        self._server = _Server(config)

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


def _listening(what: str, address: tuple[str, int], variables: str) -> socket.socket:
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server(address, family=family, backlog=1024)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ListenError(
            f"{what} cannot listen on {host} port {port} ({variables}): {reason}"
        ) from None
