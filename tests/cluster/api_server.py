"""A fake API server in this process: list, watch, get, binding and events, and injected faults.

It behaves like the real one where the tests need it: growing resource versions, pages with a
continue token, watches from a version on with bookmarks, 410 for an expired version, 409 for a
second Binding and for a wrong UID. The tests create its objects.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from scheduler.cluster.resource import (
    FUNCTION_PROFILES,
    FUNCTION_SERVERS,
    NODES,
    PODS,
    WORKFLOWS,
    Resource,
)

Raw = dict[str, Any]
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


@dataclass
class Collection:
    """The objects of one resource, and their history."""

    objects: dict[tuple[str, str], Raw] = field(default_factory=dict)
    history: list[tuple[int, bytes]] = field(default_factory=list)
    expired: int = 0  # the last version that watches cannot start from
    watches: list[asyncio.Queue[bytes | None]] = field(default_factory=list)


class ApiServer:
    """A fake API server: call `start`, connect a client to `url`, and call `stop` at the end."""

    def __init__(self) -> None:
        self.collections = {
            resource.path: Collection()
            for resource in (NODES, PODS, WORKFLOWS, FUNCTION_PROFILES, FUNCTION_SERVERS)
        }
        self.events: dict[str, Raw] = {}
        self.leases: dict[str, Raw] = {}
        self.requests: list[Seen] = []
        self.version = 100
        self.port = 0
        self._faults: list[tuple[str, str, Fault]] = []
        self._continues: dict[str, list[Raw]] = {}
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

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
        collection = self.collections[resource.path]
        self.version += 1
        key = _key(item)
        stored = json.loads(json.dumps(item))
        stored["metadata"]["resourceVersion"] = str(self.version)
        stored["metadata"].setdefault("uid", f"uid-{self.version}")
        kind = "MODIFIED" if key in collection.objects else "ADDED"
        collection.objects[key] = stored
        self._report(collection, kind, stored)
        return stored

    def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Delete an object and report it to watches."""
        collection = self.collections[resource.path]
        self.version += 1
        deleted = collection.objects.pop((namespace, name))
        deleted["metadata"]["resourceVersion"] = str(self.version)
        self._report(collection, "DELETED", deleted)

    def bookmark(self, resource: Resource) -> str:
        """Send the open watches a newer version without a change of this resource."""
        self.version += 1
        mark = {"metadata": {"resourceVersion": str(self.version)}}
        self.say(resource, {"type": "BOOKMARK", "object": mark})
        return str(self.version)

    def say(self, resource: Resource, event: Raw) -> None:
        """Send any event to the open watches."""
        self.say_bytes(resource, json.dumps(event).encode() + b"\n")

    def say_bytes(self, resource: Resource, line: bytes) -> None:
        """Send any bytes to the open watches."""
        for watch in self.collections[resource.path].watches:
            watch.put_nowait(line)

    def end_watches(self) -> None:
        """End all watches, like the server at their time-out."""
        for collection in self.collections.values():
            for watch in collection.watches:
                watch.put_nowait(None)

    def forget(self) -> None:
        """Answer watches from before now with 410, like after etcd's compaction."""
        self.version += 1
        for collection in self.collections.values():
            collection.history.clear()
            collection.expired = self.version

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

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        path = unquote(request.rel_url.raw_path)
        body = json.loads(text) if text else None
        query = dict(request.query)
        self.requests.append(Seen(request.method, path, query, body, dict(request.headers)))
        await self._notify()
        fault = self._fault_for(request.method, path)
        if fault is not None and (answer := await fault(request)) is not None:
            return answer
        collection = self.collections.get(path)
        if collection is None:
            return self._single(request.method, path.strip("/").split("/"), body)
        if "watch" in query:
            return await self._watch(request, collection)
        return self._list(collection, query)

    def _fault_for(self, method: str, path: str) -> Fault | None:
        for index, (fault_method, path_end, fault) in enumerate(self._faults):
            if fault_method == method and path.endswith(path_end):
                del self._faults[index]
                return fault
        return None

    def _single(  # noqa: PLR0911 - one for each request
        self, method: str, parts: list[str], body: Raw
    ) -> web.Response:
        if parts[-1] == "leases" or parts[-2] == "leases":
            return self._lease(method, parts[6] if len(parts) > 6 else "", body)
        match method, parts[4:]:
            case "GET", ["pods", name]:
                pod = self.collections[PODS.path].objects.get((parts[3], name))
                return web.json_response(pod) if pod else status(404, "NotFound", f"no {name}")
            case "POST", ["pods"]:
                return self._create_pod(parts[3], body)
            case "PATCH", ["pods", name, "status"]:
                return self._patch_status(parts[3], name, body)
            case "DELETE", ["pods", name]:
                return self._delete_pod(parts[3], name, body)
            case "POST", ["pods", name, "binding"]:
                return self.bind(parts[3], name, body)
            case "POST", ["events"]:
                self.events[body["metadata"]["name"]] = body
                return web.json_response(body, status=201)
            case "PATCH", ["events", name] if name in self.events:
                self.events[name].update(body)
                return web.json_response(self.events[name])
        return status(404, "NotFound", "the server could not find the requested resource")

    def _lease(self, method: str, name: str, body: Raw) -> web.Response:
        """Process a request for a Lease of any namespace; a write replaces the version it names."""
        metadata = (body or {}).get("metadata", {})
        stored = self.leases.get(name)
        if method == "POST":
            name = metadata["name"]
            if name in self.leases:
                return status(409, "AlreadyExists", f'leases "{name}" already exists')
        elif stored is None:
            return status(404, "NotFound", f'leases "{name}" not found')
        elif (
            method == "PATCH"
            and metadata["resourceVersion"] != stored["metadata"]["resourceVersion"]
        ):
            return status(409, "Conflict", "the object has been modified")
        if method != "GET":
            self.version += 1
            written = {**(stored or {}).get("metadata", {}), **metadata}
            self.leases[name] = {
                "metadata": written | {"name": name, "resourceVersion": str(self.version)},
                "spec": body["spec"],
            }
        return web.json_response(self.leases[name])

    def _create_pod(self, namespace: str, pod: Raw) -> web.Response:
        name = pod["metadata"]["name"]
        if (namespace, name) in self.collections[PODS.path].objects:
            return status(409, "AlreadyExists", f'pods "{name}" already exists')
        stored = {**pod, "metadata": {**pod["metadata"], "namespace": namespace}}
        return web.json_response(self.put(PODS, stored), status=201)

    def _patch_status(self, namespace: str, name: str, change: Raw) -> web.Response:
        pod = self.collections[PODS.path].objects.get((namespace, name))
        if pod is None:
            return status(404, "NotFound", f'pods "{name}" not found')
        if conflict := _precondition(pod["metadata"], change["metadata"]):
            return status(409, "Conflict", conflict)
        return web.json_response(
            self.put(PODS, {**pod, "status": {**pod["status"], **change["status"]}})
        )

    def _delete_pod(self, namespace: str, name: str, options: Raw | None) -> web.Response:
        pod = self.collections[PODS.path].objects.get((namespace, name))
        if pod is None:
            return status(404, "NotFound", f'pods "{name}" not found')
        uid = ((options or {}).get("preconditions") or {}).get("uid")
        if uid is not None and uid != pod["metadata"]["uid"]:
            return status(409, "Conflict", f"the UID in the precondition ({uid}) does not match")
        self.remove(PODS, name, namespace)
        return web.json_response(pod)

    def bind(self, namespace: str, name: str, binding: Raw) -> web.Response:
        """Process a Binding like the real server."""
        pod = self.collections[PODS.path].objects.get((namespace, name))
        if pod is None:
            return status(404, "NotFound", f'pods "{name}" not found')
        if binding["metadata"].get("name") != name:
            return status(400, "BadRequest", "name in URL does not match name in Binding object")
        if conflict := _precondition(pod["metadata"], binding["metadata"]):
            return status(409, "Conflict", conflict)
        if node := pod["spec"].get("nodeName"):
            return status(409, "Conflict", f'pod {name} is already assigned to node "{node}"')
        bound = json.loads(json.dumps(pod))
        bound["spec"]["nodeName"] = binding["target"]["name"]
        annotations = bound["metadata"].setdefault("annotations", {})
        annotations.update(binding["metadata"]["annotations"])
        self.put(PODS, bound)
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    def _list(self, collection: Collection, query: dict[str, str]) -> web.Response:
        if "continue" in query:
            items = self._continues.pop(query["continue"], None)
            if items is None:
                return status(410, "Expired", "The provided continue parameter is too old")
        else:
            items = list(collection.objects.values())
        limit = int(query.get("limit", 0)) or len(items) or 1
        metadata = {"resourceVersion": str(self.version)}
        if len(items) > limit:
            token = f"after-{len(self.requests)}"
            self._continues[token] = items[limit:]
            metadata["continue"] = token
        return web.json_response({"metadata": metadata, "items": items[:limit]})

    def drop_continues(self) -> None:
        """Answer the next page of any list with 410."""
        self._continues.clear()

    async def _watch(self, request: web.Request, collection: Collection) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        if since < collection.expired:
            return status(410, "Expired", f"too old resource version: {since}")
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for version, line in collection.history:
            if version > since:
                queue.put_nowait(line)
        collection.watches.append(queue)
        await self._notify()
        try:
            while (line := await queue.get()) is not None:
                await answer.write(line)
        except ConnectionError:
            return answer
        finally:
            collection.watches.remove(queue)
            await self._notify()
        return answer

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _report(self, collection: Collection, kind: str, item: Raw) -> None:
        line = json.dumps({"type": kind, "object": item}).encode() + b"\n"
        collection.history.append((self.version, line))
        for watch in collection.watches:
            watch.put_nowait(line)


def _precondition(pod: Raw, binding: Raw) -> str:
    """Name the precondition of a Binding that a pod does not meet; empty: it meets them."""
    for field_name, what in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        expected = binding.get(field_name, pod[field_name])
        if expected != pod[field_name]:
            return f"Precondition failed: {what} in precondition: {expected}"
    if pod.get("deletionTimestamp"):
        return f"pod {pod['name']} is being deleted, cannot be assigned"
    return ""


def status(
    code: int, reason: str, message: str, *, headers: dict[str, str] | None = None
) -> web.Response:
    """Create an error answer in the server's format."""
    body = {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
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


def _key(item: Raw) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
