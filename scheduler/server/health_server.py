"""Health server of a service: a child process that has the port and reads answers from here.

It keeps the connections of other pods away from an event loop that serves kube-scheduler or the API
server alone, for 34 MiB of memory.
"""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

import structlog
from pydantic_core import to_json

from scheduler.server import health_process
from scheduler.server.health_process import LENGTH_BYTES, LOOKUP, METRICS, OPEN_METRICS, STATE
from scheduler.server.sockets import ListenError, listen

log = structlog.get_logger(__name__)
_RESTART_PAUSE_S = 1.0
_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class HealthSource:
    """Answers of a service.

    Attributes:
        fatal_error: function that returns why the container must be restarted; empty while it need
            not be.
        not_ready_reason: function that returns why the container cannot serve now; empty when it
            can.
        exposition: function that yields all metrics in Prometheus' text format, in parts.
        documents: functions that return a document for JSON, by path.
        lookups: functions that return a document by the text behind a path with a slash at its end,
            or None; or an awaitable of one, for what takes long.
        reports: functions that yield a large document, in parts, by path.
        has_page: true to serve the live page.
        upstream: URL of the health port that has what the page shows of GPUs; empty: this one.
        open_metrics: function that yields all metrics in OpenMetrics' format, for scrapers that
            accept it. Default: they get Prometheus' format.
    """

    fatal_error: Callable[[], str]
    not_ready_reason: Callable[[], str]
    exposition: Callable[[], AsyncIterator[bytes]]
    documents: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    lookups: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    reports: Mapping[str, Callable[[], AsyncIterator[bytes]]] = field(default_factory=dict)
    has_page: bool = False
    upstream: str = ""
    open_metrics: Callable[[], AsyncIterator[bytes]] | None = None


class HealthServer:
    """A port for probes and scrapes; it listens once constructed and answers while `running`.

    Attributes:
        port: port on which it listens.

    Args:
        source: answers of the service.
        address: host and port; port 0 takes a free one.
        variables: names of the settings of that address, for error messages.
        on_exit: function that is called with the supervising task when it has ended, for any
            reason.

    Raises:
        ListenError: the address is in use, or is not one of this machine's.
    """

    def __init__(
        self,
        source: HealthSource,
        address: tuple[str, int],
        on_exit: "Callable[[asyncio.Task[None]], None]",
        *,
        variables: str = "ESG_HEALTH_HOST, ESG_HEALTH_PORT",
    ) -> None:
        self._source = source
        self._paths = [*source.documents, *source.lookups, *source.reports]
        questions = health_process.document_questions(self._paths)
        self._documents = {questions[path]: read for path, read in source.documents.items()}
        self._lookups = {questions[path]: find for path, find in source.lookups.items()}
        self._reports = {questions[path]: parts for path, parts in source.reports.items()}
        self._reports[METRICS] = source.exposition
        if source.open_metrics is not None:
            self._reports[OPEN_METRICS] = source.open_metrics
        self._on_exit = on_exit
        try:
            self._listener = listen(address, variables, backlog=128)
        except ListenError as error:
            raise ListenError(f"the health server {error}") from None
        self.port: int = self._listener.getsockname()[1]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer while inside."""
        supervising = asyncio.create_task(self._supervise())
        supervising.add_done_callback(self._on_exit)
        log.info("health server listens", port=self.port)
        try:
            yield
        finally:
            supervising.cancel()
            await asyncio.gather(supervising, return_exceptions=True)
            self._listener.close()

    async def _supervise(self) -> None:
        """Run the process, and start it again when it has ended."""
        while True:
            try:
                status = await self._run_process()
                log.error("health process ended; it is started again", status=status)
            except OSError as error:
                log.error("health process cannot be started; retrying", error=str(error))
            await asyncio.sleep(_RESTART_PAUSE_S)

    async def _run_process(self) -> int:
        channel, channel_of_process = socket.socketpair()
        with channel, channel_of_process:
            inherited = self._listener.fileno(), channel_of_process.fileno()
            options = ["--page"] if self._source.has_page else []
            options += ["--open-metrics"] if OPEN_METRICS in self._reports else []
            options.append(f"--upstream={self._source.upstream}")
            arguments = [*options, *map(str, inherited), *self._paths]
            process = subprocess.Popen(  # noqa: ASYNC220, S603 - it only starts this module
                [sys.executable, "-P", "-m", health_process.__name__, *arguments],
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the service, which then stops it
            )
            channel_of_process.close()
            try:
                await self._answer(channel)
            finally:
                channel.close()  # which ends the process
                status = await asyncio.to_thread(_wait_for, process)
        return status

    async def _answer(self, channel: socket.socket) -> None:
        """Answer the questions of the process until it ends."""
        reader, writer = await asyncio.open_unix_connection(sock=channel)
        rendering: set[asyncio.Task[None]] = set()
        try:
            while question := await reader.read(1):
                if question == STATE:
                    _write(writer, STATE, [self._state()])
                elif question in self._reports:
                    # A scrape takes longer, and no probe waits for it.
                    rendering.add(asyncio.create_task(self._render(question, writer)))
                elif question == LOOKUP:
                    head = await reader.readexactly(3)
                    name = await reader.readexactly(int.from_bytes(head[1:], "big"))
                    rendering.add(asyncio.create_task(self._look_up(head, name, writer)))
                else:
                    _write(writer, question, [_json(self._documents[question])])
                rendering = {task for task in rendering if not task.done()}
        except (OSError, asyncio.IncompleteReadError):
            pass  # the process was killed
        finally:
            for task in rendering:
                task.cancel()
            writer.close()

    def _state(self) -> bytes:
        source = self._source
        state = {"/healthz": source.fatal_error(), "/readyz": source.not_ready_reason()}
        return json.dumps(state).encode()

    async def _render(self, question: bytes, writer: asyncio.StreamWriter) -> None:
        try:
            parts = [part async for part in self._reports[question]()]
        except Exception:
            log.exception("metrics or a report cannot be rendered")
            parts = []
        _write(writer, question, parts)

    async def _look_up(self, head: bytes, name: bytes, writer: asyncio.StreamWriter) -> None:
        try:
            document = self._lookups[head[:1]](name.decode(errors="replace"))
            text = to_json(await document if isawaitable(document) else document)
        except Exception:
            log.exception("document cannot be rendered")
            text = b""
        _write(writer, LOOKUP + head + name, [text])


def _json(read: Callable[[], Any]) -> bytes:
    """Return a document as JSON; empty if it cannot be rendered."""
    try:
        return to_json(read())
    except Exception:
        log.exception("document cannot be rendered")
        return b""


def _write(writer: asyncio.StreamWriter, question: bytes, parts: list[bytes]) -> None:
    length = sum(map(len, parts)).to_bytes(LENGTH_BYTES, "big")
    writer.writelines([question, length, *parts])


def _wait_for(process: "subprocess.Popen[bytes]") -> int:
    """Wait until the process has ended, and kill it if that takes long."""
    try:
        return process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
