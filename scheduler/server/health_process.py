"""Process that answers probes and scrapes for the service that started it.

    python -m scheduler.server.health_process [OPTION…] LISTENER CHANNEL [PATH…]

LISTENER and CHANNEL are inherited files. PATH is the path of a JSON document of the service, such
as ``/v1/queues``. With a slash at its end, as ``/v1/requests/``, it is that of documents that the
service finds by the text behind it. With ``--page`` the process serves the live page, too. It reads
`UPSTREAM_PATHS` from the health port of another service, if it has the URL (``--upstream``). With
``--open-metrics`` scrapers that accept OpenMetrics get it, with exemplars.

Every pod of the cluster may reach the health port. So the service's event loop never sees its
connections and requests: they are those of this process, whose priority is lower. It reads the
answers from the service through a channel, each at most so often that all of them together take
`LOAD_RATIO_MAX` of the service's time. It ends when the channel does.

The import of this module is light: it has neither FastAPI nor structlog.
"""

import asyncio
import gzip
import json
import os
import signal
import socket
import sys
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote

import uvicorn
import uvloop

from scheduler.server.bounded import BoundedServer, ClientLimits
from scheduler.server.page_files import HEADERS, PageFile, read_page

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
HEALTH_LIMITS = ClientLimits(connections_max=64, keep_alive_s=10)
"""Limits of a health server, whose clients are one kubelet and a few Prometheuses."""
OPEN_METRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# Questions: one byte; the answer is that byte, a length, and a text.
STATE, METRICS, OPEN_METRICS = b"s", b"m", b"o"
LENGTH_BYTES = 4
LOOKUP = b"l"  # the byte of a document, a length of two bytes, and a text follow
NAME_BYTES_MAX: Final = 512
NOTHING: Final = b"null"  # the answer to a lookup of an unknown name
LOAD_RATIO_MAX = 0.02
AGE_MAX_S: Final = {
    STATE: 1.0,
    METRICS: 15.0,
    OPEN_METRICS: 15.0,
}  # of an answer, before the next request to the service
DOCUMENT_LOAD_RATIO_MAX = 0.01
DOCUMENT_AGE_MAX_S: Final = 10.0
UPSTREAM_PATHS: Final = ("/v1/gpus", "/v1/pending", "/v1/plans")
_NO_UPSTREAM: Final = (
    "GPUs, pending pods and plans are the extender's, and this gateway does not know it: set "
    "ESG_GATEWAY_EXTENDER_URL to the URL of the extender's health port, as the chart does; "
    "`esg plan` computes a plan from files"
)
_UNKNOWN: Final = {  # by folder; others have no more to say
    "/v1/requests/": "no request {} is known: it was in time and is not of the sample, or later "
    "ones have taken its place (ESG_GATEWAY_TRACE_MAX_MIB)"
}
_GZIP_BYTES_MIN: Final = 4096
ANSWER_S = 4.0  # the kubelet waits 5 s
_UPSTREAM_S: Final = DOCUMENT_AGE_MAX_S + ANSWER_S  # a lookup waits for its turn there
_NICE = 10
_JSON: Final = "application/json"
_OPEN_METRICS_NAME: Final = b"application/openmetrics-text"
_OPEN_METRICS_KEY: Final = "openmetrics"  # which is no path of a client

Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class Answer(NamedTuple):
    """Answer to a request; that of a file of the page has its headers."""

    status: int
    content_type: str
    body: bytes
    is_page: bool = False


class ServiceSilentError(Exception):
    """The service does not answer, perhaps because its event loop hangs."""


class Channel:
    """Questions to the service, each shared by all requests that wait for its answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answers: dict[bytes, asyncio.Future[bytes]] = {}
        self._next_s: defaultdict[bytes, float] = defaultdict(float)
        self._asked_s: dict[bytes, float] = {}
        self._looking_up = asyncio.Lock()

    async def answer(self, question: bytes) -> bytes:
        """Return the service's answer, or its last one if that is new enough.

        Raises:
            ServiceSilentError: there is no answer.
        """
        answer = self._answers.get(question)
        now_s = monotonic()
        if answer is None or (answer.done() and now_s >= self._next_s[question]):
            answer = self._answers[question] = asyncio.get_running_loop().create_future()
            self._asked_s[question] = now_s
            self._writer.write(question)
        try:
            return await asyncio.wait_for(asyncio.shield(answer), ANSWER_S)
        except TimeoutError:
            raise ServiceSilentError(
                f"the event loop has not answered for {monotonic() - now_s:.0f} s"
            ) from None

    async def look_up(self, question: bytes) -> bytes:
        """Return the service's answer to one of any number of questions, which are put in turn.

        Raises:
            ServiceSilentError: there is no answer.
        """
        async with self._looking_up:
            await asyncio.sleep(max(self._next_s[LOOKUP] - monotonic(), 0.0))
            try:
                return await self.answer(question)
            finally:
                for by_question in (self._answers, self._asked_s, self._next_s):
                    by_question.pop(question, None)

    async def receive(self) -> None:
        """Receive answers until the service ends."""
        while question := await self._reader.read(1):
            if question == LOOKUP:
                question += await self._reader.readexactly(3)
                question += await self._reader.readexactly(int.from_bytes(question[2:], "big"))
            length = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES), "big")
            text = await self._reader.readexactly(length)
            if question not in self._answers:
                continue  # a lookup that took too long
            cost_s = monotonic() - self._asked_s[question]
            if question in AGE_MAX_S:
                age_s = min(cost_s / LOAD_RATIO_MAX, AGE_MAX_S[question])
            else:
                age_s = min(cost_s / DOCUMENT_LOAD_RATIO_MAX, DOCUMENT_AGE_MAX_S)
            self._next_s[question if len(question) == 1 else LOOKUP] = monotonic() + age_s
            if not self._answers[question].done():
                self._answers[question].set_result(text)


def document_questions(paths: Sequence[str]) -> dict[str, bytes]:
    """Return the question for each JSON document: the byte of its index, below `STATE`."""
    return {path: bytes((index,)) for index, path in enumerate(paths)}


def lookup_question(document: bytes, name: str) -> bytes:
    """Return the question for a document of a name.

    Raises:
        ValueError: the name is too long.
    """
    text = name.encode()
    if len(text) > NAME_BYTES_MAX:
        raise ValueError(f"a name has {NAME_BYTES_MAX} bytes at most")
    return LOOKUP + document + len(text).to_bytes(2, "big") + text


class HealthApp:
    """The routes /healthz, /readyz, /metrics and those of documents as an ASGI application.

    Args:
        channel: questions to the service.
        document_paths: paths of its documents.
        page: files of the live page by path. Default: there is none.
        has_open_metrics: true if the service renders its metrics in OpenMetrics' format, too.
        upstream: URL of the health port to which `UPSTREAM_PATHS` are passed on; empty: none.
    """

    def __init__(
        self,
        channel: Channel,
        document_paths: Sequence[str] = (),
        *,
        page: Mapping[str, PageFile] | None = None,
        has_open_metrics: bool = False,
        upstream: str = "",
    ) -> None:
        self._channel = channel
        self._page = page or {}
        self._has_open_metrics = has_open_metrics
        self._upstream = upstream.rstrip("/")
        questions = document_questions(document_paths)
        self._lookups = {path: q for path, q in questions.items() if path.endswith("/")}
        self._texts = {
            "/metrics": (METRICS, CONTENT_TYPE),
            _OPEN_METRICS_KEY: (OPEN_METRICS, OPEN_METRICS_TYPE),
            **{p: (q, _JSON) for p, q in questions.items() if p not in self._lookups},
        }

    async def __call__(self, scope: Mapping[str, Any], _receive: object, send: Send) -> None:
        path = scope["path"]
        headers = dict(scope["headers"])
        accepted = headers.get(b"accept", b"")
        if path == "/metrics" and self._has_open_metrics and _OPEN_METRICS_NAME in accepted:
            path = _OPEN_METRICS_KEY
        answer = await self._answer(path, scope["method"])
        await _respond(send, answer, gzipped=b"gzip" in headers.get(b"accept-encoding", b""))

    async def _answer(self, path: str, method: str) -> Answer:
        read = self._reader(path)
        if read is None:
            return _problem(404, "Not Found")
        if method != "GET":
            return _problem(405, "Method Not Allowed")
        try:
            return await read()
        except ServiceSilentError as error:
            return _problem(503, str(error))

    def _reader(self, path: str) -> Callable[[], Awaitable[Answer]] | None:
        """Return what reads the answer of a path; None: there is no such path."""
        folder, _, name = path.rpartition("/")
        if path in {"/healthz", "/readyz"}:
            return partial(self._state, path)
        if path in self._page:
            return partial(self._file, path)
        if path in self._texts:
            return partial(self._text, path)
        for prefix in self._lookups:
            if path.startswith(prefix) and path != prefix:
                return partial(self._look_up, prefix, path.removeprefix(prefix))
        if path in UPSTREAM_PATHS or (name and folder in UPSTREAM_PATHS):
            return partial(self._of_upstream, path)
        return None

    async def _of_upstream(self, path: str) -> Answer:
        if self._upstream:
            return await asyncio.to_thread(_fetch, self._upstream + quote(path))
        return _problem(404, _NO_UPSTREAM if self._page else "Not Found")

    async def _file(self, path: str) -> Answer:
        return Answer(200, *self._page[path], is_page=True)

    async def _text(self, path: str) -> Answer:
        question, content_type = self._texts[path]
        text = await self._channel.answer(question)
        return Answer(200, content_type, text) if text else _unrendered(path)

    async def _look_up(self, folder: str, name: str) -> Answer:
        try:
            question = lookup_question(self._lookups[folder], name)
        except ValueError as error:
            return _problem(400, str(error))
        text = await self._channel.look_up(question)
        if text == NOTHING:
            return _problem(404, _UNKNOWN.get(folder, f"{folder} has no {{}}").format(name))
        return Answer(200, _JSON, text) if text else _unrendered(folder + name)

    async def _state(self, path: str) -> Answer:
        try:
            state = json.loads(await self._channel.answer(STATE))
        except ServiceSilentError as error:
            state = {"/healthz": str(error), "/readyz": str(error)}
        if reason := state[path]:
            return _problem(503, reason)
        return Answer(200, _JSON, json.dumps({"status": "ok"}).encode())


def _problem(status: int, detail: str) -> Answer:
    return Answer(status, _JSON, json.dumps({"detail": detail}).encode())


def _unrendered(path: str) -> Answer:
    return _problem(500, f"{path} cannot be rendered; the log has the reason")


def _fetch(url: str) -> Answer:
    """Read a document of another service."""
    from urllib.request import urlopen  # noqa: PLC0415 - few health processes have an upstream

    try:
        with urlopen(url, timeout=_UPSTREAM_S) as answer:  # noqa: S310 - of the settings
            return Answer(200, _JSON, answer.read())
    except HTTPError as error:
        return Answer(error.code, _JSON, error.read())
    except (OSError, ValueError) as error:
        return _problem(502, f"cannot read {url}: {error}")


async def _respond(send: Send, answer: Answer, *, gzipped: bool) -> None:
    body = answer.body
    headers = [(b"content-type", answer.content_type.encode())]
    if gzipped and len(body) >= _GZIP_BYTES_MIN:
        body = gzip.compress(body, compresslevel=1)
        headers.append((b"content-encoding", b"gzip"))
    headers.append((b"content-length", str(len(body)).encode()))
    if answer.is_page:
        headers += HEADERS
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def serve(listener: socket.socket, channel: socket.socket, options: Namespace) -> None:
    """Answer until the service closes the channel."""
    reader, writer = await asyncio.open_unix_connection(sock=channel)
    questions = Channel(reader, writer)
    app = HealthApp(
        questions,
        options.paths,
        page=read_page() if options.page else None,
        has_open_metrics=options.open_metrics,
        upstream=options.upstream,
    )
    config = uvicorn.Config(
        app,
        http="httptools",
        lifespan="off",
        log_level="error",
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = BoundedServer(config, HEALTH_LIMITS)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await questions.receive()
    except (OSError, asyncio.IncompleteReadError):
        pass  # the service was killed
    finally:
        writer.close()
        server.should_exit = True
        await serving


def main(arguments: Sequence[str]) -> None:
    """Serve on inherited files. The service alone ends this process, whatever a terminal sends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    parser = ArgumentParser()
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--open-metrics", action="store_true")
    parser.add_argument("--upstream", default="")
    parser.add_argument("listener", type=int)
    parser.add_argument("channel", type=int)
    parser.add_argument("paths", nargs="*")
    options = parser.parse_args(arguments)
    sockets = socket.socket(fileno=options.listener), socket.socket(fileno=options.channel)
    uvloop.run(serve(*sockets, options))


if __name__ == "__main__":
    main(sys.argv[1:])
