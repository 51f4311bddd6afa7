"""A simulated API server: its objects, its network, and the faults of single requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from itertools import count
from typing import Any
from zlib import crc32

from scheduler.cluster.errors import ApiError, ApiTimeoutError, ApiUnreachableError
from tests.campaign.watch_feed import WatchFeed
from workbench.cluster.api_requests import KINDS, PODS, ApiRequests, ApiTarget
from workbench.cluster.object_store import ObjectStore, Raw, StatusError

EPOCH_S = 1_800_000_000.0
CONNECT_TIMEOUT_S = 2.0  # as `scheduler.cluster.api.connect`
TIMEOUT_S = 30.0
REASONS = {
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(slots=True)
class RequestFault:
    """A fault of the next requests of one client and one kind.

    Attributes:
        client: name of the client.
        verb: see `verb_of`.
        effect: see `SimulatedServer._serve`.
        seconds: how late, where the effect has a time.
        status: of an error answer.
        times: number of requests that it still affects.
    """

    client: str
    verb: str
    effect: str
    seconds: float = 0.0
    status: int = 0
    times: int = 1


def verb_of(method: str, target: ApiTarget, query: Mapping[str, Any] | None) -> str:
    """Return the kind of a request: bind, read, list, watch or write."""
    if target.subresource == "binding":
        return "bind"
    if method != "GET":
        return "write"
    if target.name:
        return "read"
    return "watch" if query and query.get("watch") else "list"


class SimulatedServer:
    """The API server of one run.

    A request that has left its client is a task of the server: the client's time-out or death does
    not end it.

    Attributes:
        store: the objects.
        faults: of the next requests.
        feeds: open watches by client.
        unreachable_until_s: when the network of a client works again, by client.
        admit: returns a pod as its webhook changes it; raises `StatusError`.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # on no machine that a run pauses
        uids = count(1)
        self.store = ObjectStore(KINDS, clock=self.wall_s, new_uid=lambda: f"uid-{next(uids)}")
        self.requests = ApiRequests(self.store)
        self.faults: list[RequestFault] = []
        self.feeds: dict[str, list[WatchFeed]] = {}
        self.unreachable_until_s: dict[str, float] = {}
        self.admit: Callable[[Raw], Awaitable[Raw]] | None = None
        self._requests_on_path: dict[str, int] = {}
        self._tasks: set[asyncio.Task[Raw]] = set()

    def wall_s(self) -> float:
        """Return the server's time, seconds since the epoch."""
        return EPOCH_S + self._loop.time()

    def latency_s(self, path: str) -> float:
        """Return the one-way time of the next message of a path: some milliseconds.

        Other paths do not change it, so that a run without one of its faults is much the same.
        """
        number = self._requests_on_path[path] = self._requests_on_path.get(path, 0) + 1
        return 0.0005 + crc32(f"{path} {number}".encode()) % 4000 / 1e6

    def fault_of(self, client: str, verb: str) -> RequestFault | None:
        """Return the fault of a request, and count it."""
        for fault in self.faults:
            if fault.client == client and fault.verb == verb:
                fault.times -= 1
                if fault.times <= 0:
                    self.faults.remove(fault)
                return fault
        return None

    def is_unreachable(self, client: str) -> bool:
        return self._loop.time() < self.unreachable_until_s.get(client, 0.0)

    def heal(self) -> None:
        """End all faults; requests under way remain as late as they are."""
        self.faults.clear()
        self.unreachable_until_s.clear()

    @property
    def is_busy(self) -> bool:
        """True while requests are under way."""
        return bool(self._tasks)

    async def request(
        self,
        client: str,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Raw | None,
        timeout_s: float,
    ) -> Raw:
        """Send a request; raises like `scheduler.cluster.api.Api`."""
        if timeout_s <= 0:
            raise ApiTimeoutError("no time left", sent=False)
        target = ApiTarget.parse(path)
        if self.is_unreachable(client):
            await asyncio.sleep(min(CONNECT_TIMEOUT_S, 0.8 * timeout_s))
            raise ApiTimeoutError("cannot connect", sent=False)
        fault = self.fault_of(client, verb_of(method, target, query))
        if fault is not None and fault.effect == "unsent":
            raise ApiUnreachableError("connection refused", sent=False)
        serve = self._serve(method, target, path, query, body, fault)
        task = self._loop.create_task(serve, context=self._context)
        self._tasks.add(task)
        task.add_done_callback(self._end, context=self._context)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(task)
        except TimeoutError:
            raise ApiTimeoutError("no answer in time", sent=True) from None

    def _end(self, task: "asyncio.Task[Raw]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # its client may have given up

    async def _serve(  # noqa: C901 - one branch for each effect
        self,
        method: str,
        target: ApiTarget,
        path: str,
        query: Mapping[str, Any] | None,
        body: Raw | None,
        fault: RequestFault | None,
    ) -> Raw:
        latency_s = self.latency_s(path)
        effect = "" if fault is None else fault.effect
        seconds = 0.0 if fault is None else fault.seconds
        if effect == "lost":
            await asyncio.sleep(60.0)
            raise ApiTimeoutError("lost", sent=True)
        if effect == "late":
            await asyncio.sleep(seconds)
        await asyncio.sleep(latency_s)
        if effect == "refused" and fault is not None:
            raise _error(fault.status)
        if effect == "foreign_404":
            raise ApiError(404, "Not Found", "no route")
        refusal = answer = None
        for _ in range(2 if effect == "duplicated" else 1):
            if answer is not None:
                await asyncio.sleep(seconds)
            try:
                if self.admit is not None and target.is_new(PODS) and method == "POST":
                    body = await self.admit(_pending(body or {}, target.namespace))
                answer, refusal = self._answer(method, target, query, body), None
            except StatusError as error:
                refusal = ApiError(error.status, error.reason, str(error))
        if effect == "failed" and fault is not None:
            raise _error(fault.status)
        if effect == "cut":
            raise ApiUnreachableError("connection reset", sent=True)
        if effect == "slow":
            await asyncio.sleep(seconds)
        await asyncio.sleep(latency_s)
        if refusal is not None:
            raise refusal
        assert answer is not None
        return answer

    def _answer(
        self, method: str, target: ApiTarget, query: Mapping[str, Any] | None, body: Raw | None
    ) -> Raw:
        if method == "GET" and not target.name:
            return self.requests.list(target, query or {})
        return self.requests.object(method, target, body or {})

    @asynccontextmanager
    async def stream(
        self, client: str, path: str, query: Mapping[str, Any], silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch; raises like `scheduler.cluster.api.Api.stream`."""
        target = ApiTarget.parse(path)
        await asyncio.sleep(self.latency_s(path))
        if self.is_unreachable(client):
            await asyncio.sleep(CONNECT_TIMEOUT_S)
            raise ApiTimeoutError("cannot connect", sent=False)
        fault = self.fault_of(client, "watch")
        if fault is not None:
            if fault.effect in ("refused", "failed"):
                raise _error(fault.status)
            raise ApiUnreachableError("connection reset", sent=True)
        try:
            with self.requests.watching(target, query) as events:
                feed = WatchFeed(
                    events,
                    lambda: self.requests.bookmark(target.resource),
                    plural=target.resource.rpartition("/")[2],
                    duration_s=float(query["timeoutSeconds"]),
                    silence_s=silence_s,
                    latency_s=self.latency_s(path),
                )
                self.feeds.setdefault(client, []).append(feed)
                try:
                    yield feed.lines()
                finally:
                    self.feeds[client].remove(feed)
        except StatusError as error:
            raise ApiError(error.status, error.reason, str(error)) from None

    def delete_pod(self, name: str, *, grace_s: int | None = None) -> None:
        """Delete a pod, with its grace period if it is on a node; a grace of 0 s: by force."""
        options = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        with suppress(StatusError):
            self.requests.object("DELETE", ApiTarget(PODS, "default", name), options)

    def feeds_of(self, client: str, plural: str) -> Iterator[WatchFeed]:
        """Yield the open watches of a client on one resource."""
        return (feed for feed in self.feeds.get(client, ()) if feed.plural == plural)


class SimulatedApi:
    """Connection of one process to the simulated server, with the interface of `Api`.

    After `kill` the process is dead: nothing that it still awaits ever ends.
    """

    host = "https://simulated"

    def __init__(self, server: SimulatedServer, client: str) -> None:
        self._server = server
        self._client = client
        self._is_alive = True

    def kill(self) -> None:
        self._is_alive = False

    async def get(self, path, *, query=None, timeout_s=None):
        return await self._request("GET", path, query, None, timeout_s)

    async def read(self, path, *, query=None, timeout_s=None):
        return json.dumps(await self._request("GET", path, query, None, timeout_s)).encode()

    async def post(self, path, body, *, query=None, timeout_s=None):
        return await self._request("POST", path, query, body, timeout_s)

    async def patch(self, path, body, *, form="", timeout_s=None):
        return await self._request("PATCH", path, None, body, timeout_s)

    async def delete(self, path, body=None, *, timeout_s=None):
        return await self._request("DELETE", path, None, body, timeout_s)

    @asynccontextmanager
    async def stream(self, path, *, query, silence_s):
        await self._check_alive()
        async with self._server.stream(self._client, path, query, silence_s) as lines:
            yield lines

    async def _request(self, method, path, query, body, timeout_s):
        await self._check_alive()
        limit_s = TIMEOUT_S if timeout_s is None else timeout_s
        try:
            return await self._server.request(self._client, method, path, query, body, limit_s)
        finally:
            await self._check_alive()

    async def _check_alive(self) -> None:
        if not self._is_alive:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            raise asyncio.CancelledError


def _pending(pod: Raw, namespace: str) -> Raw:
    metadata = pod["metadata"] | {"namespace": namespace}
    return pod | {"metadata": metadata, "status": {"phase": "Pending"}}


def _error(status: int) -> ApiError:
    return ApiError(status, REASONS[status], "drawn")
