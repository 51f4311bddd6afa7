"""Process that answers probes and scrapes for the service that started it.

    python -m scheduler.server.health_process LISTENER CHANNEL [PATH…]    # inherited files

PATH is the path of a JSON document of the service, such as ``/v1/queues``. With a slash at its end,
as ``/v1/requests/``, it is that of documents that the service finds by the text behind it.

Every pod of the cluster may reach the health port. So the service's event loop never sees its
connections and requests: they are those of this process, whose priority is lower. It reads the
answers from the service through a channel, each at most so often that all of them together take
`LOAD_RATIO_MAX` of the service's time. It ends when the channel does.

The import of this module is light: without FastAPI the process takes 34 MiB.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Final

import uvicorn
import uvloop

from scheduler.server.bounded import BoundedServer, ClientLimits

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
HEALTH_LIMITS = ClientLimits(connections_max=64, keep_alive_s=10)
"""Limits of a health server, whose clients are one kubelet and a few Prometheuses."""
STATE, METRICS = b"s", b"m"  # questions: one byte; the answer is that byte, a length, and a text
LENGTH_BYTES = 4
LOOKUP = b"l"  # the byte of a document, a length of two bytes, and a text follow
NAME_BYTES_MAX: Final = 512
NOTHING: Final = b"null"  # the answer to a lookup of an unknown name
LOAD_RATIO_MAX = 0.02
AGE_MAX_S: Final = {
    STATE: 1.0,
    METRICS: 15.0,
}  # of an answer, before the next request to the service
DOCUMENT_AGE_MAX_S: Final = 1.0
ANSWER_S = 4.0  # the kubelet waits 5 s
_NICE = 10
_JSON: Final = "application/json"

Send = Callable[[Mapping[str, Any]], Awaitable[None]]


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
                for known in (self._answers, self._asked_s, self._next_s):
                    known.pop(question, None)

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
            age_max_s = AGE_MAX_S.get(question, DOCUMENT_AGE_MAX_S)
            age_s = min(cost_s / LOAD_RATIO_MAX, age_max_s)
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
    """The routes /healthz, /readyz, /metrics and those of documents as an ASGI application."""

    def __init__(self, channel: Channel, document_paths: Sequence[str] = ()) -> None:
        self._channel = channel
        questions = document_questions(document_paths)
        self._lookups = {path: q for path, q in questions.items() if path.endswith("/")}
        self._texts = {
            "/metrics": (METRICS, CONTENT_TYPE),
            **{p: (q, _JSON) for p, q in questions.items() if p not in self._lookups},
        }

    async def __call__(self, scope: Mapping[str, Any], _receive: object, send: Send) -> None:
        path = scope["path"]
        folder, slash, name = path.rpartition("/")
        if folder + slash in self._lookups and name and scope["method"] == "GET":
            await self._look_up(folder + slash, name, send)
        elif path not in {"/healthz", "/readyz", *self._texts}:
            await _respond_json(send, 404, {"detail": "Not Found"})
        elif scope["method"] != "GET":
            await _respond_json(send, 405, {"detail": "Method Not Allowed"})
        elif path in self._texts:
            await self._text(path, send)
        else:
            await self._state(path, send)

    async def _text(self, path: str, send: Send) -> None:
        question, content_type = self._texts[path]
        try:
            text = await self._channel.answer(question)
        except ServiceSilentError as error:
            await _respond_json(send, 503, {"detail": str(error)})
            return
        if text:
            await _respond(send, 200, content_type, text)
        else:
            detail = f"{path} cannot be rendered; the log has the reason"
            await _respond_json(send, 500, {"detail": detail})

    async def _look_up(self, folder: str, name: str, send: Send) -> None:
        try:
            question = lookup_question(self._lookups[folder], name)
            text = await self._channel.look_up(question)
        except ValueError as error:
            await _respond_json(send, 400, {"detail": str(error)})
        except ServiceSilentError as error:
            await _respond_json(send, 503, {"detail": str(error)})
        else:
            if not text:
                detail = f"{folder}{name} cannot be rendered; the log has the reason"
                await _respond_json(send, 500, {"detail": detail})
            elif text == NOTHING:
                await _respond_json(send, 404, {"detail": f"{folder} has no {name}"})
            else:
                await _respond(send, 200, _JSON, text)

    async def _state(self, path: str, send: Send) -> None:
        try:
            state = json.loads(await self._channel.answer(STATE))
        except ServiceSilentError as error:
            state = {"/healthz": str(error), "/readyz": str(error)}
        if reason := state[path]:
            await _respond_json(send, 503, {"detail": reason})
        else:
            await _respond_json(send, 200, {"status": "ok"})


async def _respond_json(send: Send, status: int, content: Mapping[str, str]) -> None:
    await _respond(send, status, _JSON, json.dumps(content).encode())


async def _respond(send: Send, status: int, content_type: str, body: bytes) -> None:
    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def serve(
    listener: socket.socket, channel: socket.socket, document_paths: Sequence[str]
) -> None:
    """Answer until the service closes the channel."""
    reader, writer = await asyncio.open_unix_connection(sock=channel)
    questions = Channel(reader, writer)
    config = uvicorn.Config(
        HealthApp(questions, document_paths),
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


def main(listener: int, channel: int, document_paths: Sequence[str]) -> None:
    """Serve on inherited files. The service alone ends this process, whatever a terminal sends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    sockets = socket.socket(fileno=listener), socket.socket(fileno=channel)
    uvloop.run(serve(*sockets, document_paths))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
