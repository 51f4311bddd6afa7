"""An API server in this process over HTTP, with injected faults and a record of its requests.

It answers as the one of the workbench. The tests create its objects, and what its watches report is
theirs too: bookmarks, any event, any bytes, and their end.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from scheduler.cluster.resource import Resource
from workbench.cluster import api_requests
from workbench.cluster.api_requests import EVENTS, KINDS, PODS, ApiRequests, ApiTarget, selected
from workbench.cluster.object_store import Matches, ObjectChange, ObjectStore, Raw, StatusError

Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
"""Answers instead of the server, or returns None to let the server answer."""


@dataclass
class Seen:
    """A received request."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass(eq=False)
class OpenWatch:
    """A watch: the objects that it selects, and its lines; None ends it."""

    matches: Matches
    lines: asyncio.Queue[bytes | None]


class ApiServer:
    """An API server: call `start`, connect a client to `url`, and call `stop` at the end.

    Attributes:
        watches: open watches, by the path of their resource.
    """

    def __init__(self) -> None:
        self.store = ObjectStore(KINDS)
        self.store.on_change = self._report
        self.watches: defaultdict[str, list[OpenWatch]] = defaultdict(list)
        self.requests: list[Seen] = []
        self.port = 0
        self._answers = ApiRequests(self.store)
        self._faults: list[tuple[str, str, Fault]] = []
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def events(self) -> list[Raw]:
        """All Events."""
        return self.store.list(EVENTS)

    @property
    def pods(self) -> list[Raw]:
        """All pods."""
        return self.store.list(PODS)

    def pod(self, name: str) -> Raw:
        """Return a pod of the namespace default."""
        return self.store.get(PODS, ("default", name))

    async def start(self) -> None:
        """Listen on a free port, or again on the previous one."""
        app = web.Application(client_max_size=8 * 2**20)
        app.router.add_route("*", "/{rest:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close all connections; objects stay for the next `start`."""
        self.end_watches()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    def put(self, resource: Resource, item: Raw) -> Raw:
        """Create or update an object and report it to watches; return the stored object."""
        metadata = {"uid": f"uid-{self.store.version}"} | item["metadata"]
        return self.store.put(resource.path, item | {"metadata": metadata})

    def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Delete an object and report it to watches."""
        self.store.delete(resource.path, (namespace, name))

    def bookmark(self, resource: Resource) -> str:
        """Send the open watches a newer version without a change of this resource."""
        self.store.version += 1
        self.say(resource, self._answers.bookmark(resource.path))
        return str(self.store.version)

    def say(self, resource: Resource, event: Raw) -> None:
        """Send any event to the open watches."""
        self.say_bytes(resource, _line(event))

    def say_bytes(self, resource: Resource, line: bytes) -> None:
        """Send any bytes to the open watches."""
        for watch in self.watches[resource.path]:
            watch.lines.put_nowait(line)

    def end_watches(self) -> None:
        """End all watches, like the server at their time-out."""
        for watches in self.watches.values():
            for watch in watches:
                watch.lines.put_nowait(None)

    def compact(self) -> None:
        """Answer watches from before now, and further pages of lists, with 410."""
        self.store.version += 1
        self._answers.compact()

    def fault(self, method: str, path_end: str, fault: Fault, *, times: int = 1) -> None:
        """Inject ``fault`` into the next requests with this method and end of path."""
        self._faults.extend([(method, path_end, fault)] * times)

    def forgive(self) -> None:
        """Remove all injected faults."""
        self._faults.clear()

    def seen(self, method: str, path_end: str) -> list[Seen]:
        """List the requests so far with this method and end of path."""
        return [s for s in self.requests if s.method == method and s.path.endswith(path_end)]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a change of the server's state makes ``condition`` true."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(condition)

    async def watched(self, resource: Resource, *, times: int = 1) -> None:
        """Wait until the resource has had that many watch requests."""
        await self.until(lambda: len(self.watch_requests(resource)) >= times)

    def watch_requests(self, resource: Resource) -> list[Seen]:
        """List the watch requests for the resource."""
        return [s for s in self.seen("GET", resource.path) if "watch" in s.query]

    def list_requests(self, resource: Resource) -> list[Seen]:
        """List the list requests (and those of further pages) for the resource."""
        return [s for s in self.seen("GET", resource.path) if "watch" not in s.query]

    def bind(self, namespace: str, name: str, binding: Raw) -> web.Response:
        """Process a Binding, whatever faults there are."""
        path = f"{api_requests.CORE}/namespaces/{namespace}/pods/{name}/binding"
        return self.process("POST", path, binding)

    def process(self, method: str, path: str, body: Raw) -> web.Response:
        """Process a request for an object, whatever faults there are."""
        try:
            return web.json_response(self._answers.object(method, ApiTarget.parse(path), body))
        except StatusError as error:
            return status(error.status, error.reason, str(error))

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        path = unquote(request.rel_url.raw_path)
        body = json.loads(text) if text else {}
        query = dict(request.query)
        self.requests.append(Seen(request.method, path, query, body, dict(request.headers)))
        await self._notify()
        fault = self._fault_for(request.method, path)
        if fault is not None and (answer := await fault(request)) is not None:
            return answer
        target = ApiTarget.parse(path)
        if request.method != "GET" or target.name:
            return self.process(request.method, path, body)
        try:
            if "watch" in query:
                return await self._watch(request, target)
            return web.json_response(self._answers.list(target, query))
        except StatusError as error:
            return status(error.status, error.reason, str(error))

    def _fault_for(self, method: str, path: str) -> Fault | None:
        for index, (fault_method, path_end, fault) in enumerate(self._faults):
            if fault_method == method and path.endswith(path_end):
                del self._faults[index]
                return fault
        return None

    async def _watch(self, request: web.Request, target: ApiTarget) -> web.StreamResponse:
        watch = OpenWatch(selected(target.namespace, request.query), asyncio.Queue())
        watches = self.watches[target.resource]
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        with self._answers.watching(target, request.query) as past:
            await answer.prepare(request)
            for event in past.events_so_far():
                watch.lines.put_nowait(_line(event))
        watches.append(watch)
        await self._notify()
        try:
            while (line := await watch.lines.get()) is not None:
                await answer.write(line)
        except ConnectionError:
            return answer
        finally:
            with suppress(ValueError):  # a test has removed it
                watches.remove(watch)
            await self._notify()
        return answer

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _report(self, path: str, change: ObjectChange) -> None:
        for watch in self.watches[path]:
            if (event := change.event(watch.matches)) is not None:
                watch.lines.put_nowait(_line(event))


def _line(event: Raw) -> bytes:
    return json.dumps(event).encode() + b"\n"


def status(
    code: int, reason: str, message: str, *, headers: dict[str, str] | None = None
) -> web.Response:
    """Create an error answer in the server's format."""
    body = api_requests.status(StatusError(code, reason, message))
    return web.json_response(body, status=code, headers=headers)


def refuse(code: int, reason: str, message: str, **headers: str) -> Fault:
    """Create a fault that answers with an error."""

    async def fault(_request: web.Request) -> web.Response:
        dashed = {key.replace("_", "-"): value for key, value in headers.items()}
        return status(code, reason, message, headers=dashed)

    return fault


async def cut(request: web.Request) -> web.StreamResponse:
    """Close the connection without an answer; change nothing."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def hang(_request: web.Request) -> web.StreamResponse:
    """Never answer; change nothing."""
    await asyncio.Event().wait()
    raise AssertionError
