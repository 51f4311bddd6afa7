"""Secondary servers: ports that any pods of the cluster reach, on the event loop of a service."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI

from scheduler.server.bounded import BoundedServer, ClientLimits
from scheduler.server.sockets import ListenError, listen

log = structlog.get_logger(__name__)


class SecondaryServer:
    """A port of an application; it listens once constructed and answers while `running`.

    Attributes:
        port: port on which it listens.

    Args:
        app: application; its own lifespan is not run.
        label: name in messages, as ``the webhook``.
        address: host and port; port 0 takes a free one.
        variables: settings of that address, for error messages.
        limits: limits of the connections: clients may be any pods of the cluster.
        on_exit: function that is called with the server's task when it has ended, for any reason.
        options: further options of `uvicorn.Config`.

    Raises:
        ListenError: the address is in use, or is not one of this machine's.
    """

    def __init__(  # noqa: PLR0913
        self,
        app: FastAPI,
        *,
        label: str,
        address: tuple[str, int],
        variables: str,
        limits: ClientLimits,
        on_exit: "Callable[[asyncio.Task[None]], None]",
        **options: Any,
    ) -> None:
        self._label = label
        self._on_exit = on_exit
        try:
            self._socket = listen(address, variables, backlog=1024)
        except ListenError as error:
            raise ListenError(f"{label} {error}") from None
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            app,
            http="httptools",
            lifespan="off",
            log_level="warning",
            access_log=False,
            # s; an answer takes milliseconds. The wait is for clients that do not read.
            timeout_graceful_shutdown=2,
            **options,
        )
        self._server = BoundedServer(config, limits)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer while inside."""
        log.info("secondary server listens", server=self._label, port=self.port)
        async with self._server.running(self._socket, self._on_exit):
            yield
