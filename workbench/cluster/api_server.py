"""An API server in memory: list, watch, get, create, merge patch, delete, and binding of pods.

It answers as the real one where a client can tell the difference: versions, watches with selectors
and bookmarks, 410 for a forgotten version, 409 for a second Binding. There is no authentication,
admission or validation, so it listens on the loopback alone.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from scheduler.model.names import API_VERSION
from workbench.cluster.object_store import Key, Matches, ObjectStore, Raw, StatusError, timestamp

CORE = "/api/v1"
NODES, PODS, EVENTS = f"{CORE}/nodes", f"{CORE}/pods", f"{CORE}/events"
DOCUMENTS = f"/apis/{API_VERSION}"
WORKFLOWS, FUNCTION_PROFILES, FUNCTION_SERVERS = (
    f"{DOCUMENTS}/{plural}" for plural in ("workflows", "functionprofiles", "functionservers")
)
LEASES = "/apis/coordination.k8s.io/v1/leases"
KINDS = {
    NODES: ("Node", "v1"),
    PODS: ("Pod", "v1"),
    EVENTS: ("Event", "v1"),
    LEASES: ("Lease", "coordination.k8s.io/v1"),
    WORKFLOWS: ("Workflow", API_VERSION),
    FUNCTION_PROFILES: ("FunctionProfile", API_VERSION),
    FUNCTION_SERVERS: ("FunctionServer", API_VERSION),
}
_BOOKMARK_S = 30.0
_BODY_BYTES_MAX = 8 * 2**20
_SHUTDOWN_S = 0.1


class ApiServer:
    """Routes of the API server over a store."""

    def __init__(self, store: ObjectStore, *, bookmark_s: float = _BOOKMARK_S) -> None:
        self._store = store
        self._bookmark_s = bookmark_s

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[str]:
        """Answer on the loopback while inside; yield the URL."""
        app = web.Application(client_max_size=_BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            target = _Target.parse(request.path)
            if request.method == "GET" and not target.name:
                return await self._collection(request, target)
            body = await request.json() if request.can_read_body else {}
            return web.json_response(self._object(request.method, target, body))
        except StatusError as error:
            return web.json_response(_status(error), status=error.status)
        except ValueError as error:
            refusal = StatusError(400, "BadRequest", f"the body is not JSON: {error}")
            return web.json_response(_status(refusal), status=refusal.status)

    def _object(self, method: str, target: "_Target", body: Raw) -> Raw:
        """Process a request for one object, or the creation of one."""
        store, path, key = self._store, target.resource, target.key
        match method, target.subresource:
            case "POST", "" if not target.name:
                metadata = {**(body.get("metadata") or {})}
                if target.namespace:
                    metadata["namespace"] = target.namespace
                return store.create(path, {**body, "metadata": metadata})
            case "POST", "binding" if path == PODS:
                return self._bind(key, body)
            case "GET", "":
                return store.get(path, key)
            case "PATCH", "":
                return store.patch(path, key, body)
            case "PATCH", "status":
                return store.patch(path, key, {"status": body.get("status") or {}})
            case "DELETE", "":
                return self._delete(path, key)
        raise StatusError(405, "MethodNotAllowed", f"{method} is not supported here")

    def _bind(self, key: Key, binding: Raw) -> Raw:
        pod, metadata = self._store.get(PODS, key), binding["metadata"]
        if metadata.get("uid") not in (None, pod["metadata"]["uid"]):
            raise StatusError(409, "Conflict", f"Precondition failed: UID: {metadata['uid']}")
        if pod["metadata"].get("deletionTimestamp"):
            raise StatusError(409, "Conflict", f"pod {key[1]} is being deleted, cannot be assigned")
        if node := (pod.get("spec") or {}).get("nodeName"):
            raise StatusError(409, "Conflict", f"pod {key[1]} is already assigned to node {node}")
        change = {
            "metadata": {"annotations": metadata.get("annotations") or {}},
            "spec": {"nodeName": binding["target"]["name"]},
        }
        self._store.patch(PODS, key, change)
        return {"apiVersion": "v1", "kind": "Status", "status": "Success"}

    def _delete(self, path: str, key: Key) -> Raw:
        """Remove an object; a pod on a node terminates until its kubelet removes it."""
        item = self._store.get(path, key)
        if path != PODS or not (item.get("spec") or {}).get("nodeName"):
            return self._store.delete(path, key)
        if item["metadata"].get("deletionTimestamp"):
            return item
        return self._store.patch(path, key, {"metadata": {"deletionTimestamp": timestamp()}})

    # -- lists and watches ---------------------------------------------------------------------

    async def _collection(self, request: web.Request, target: "_Target") -> web.StreamResponse:
        query = request.query
        matches = _selected(
            target.namespace, query.get("fieldSelector", ""), query.get("labelSelector", "")
        )
        if query.get("watch") in ("true", "1"):
            return await self._watch(request, target.resource, matches)
        collection = self._store.collection(target.resource)
        return web.json_response(
            {
                "apiVersion": collection.api_version,
                "kind": f"{collection.kind}List",
                "metadata": {"resourceVersion": str(self._store.version)},
                "items": self._store.list(target.resource, matches),
            }
        )

    async def _watch(
        self, request: web.Request, resource: str, matches: Matches
    ) -> web.StreamResponse:
        query = request.query
        since = int(query["resourceVersion"]) if query.get("resourceVersion") else None
        with_bookmarks = query.get("allowWatchBookmarks") == "true"
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        with self._store.watching(resource, since) as watch:
            await answer.prepare(request)
            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(float(query.get("timeoutSeconds", 300))):
                    while True:
                        event = await self._next_event(resource, aiter(watch), matches)
                        if event["type"] != "BOOKMARK" or with_bookmarks:
                            await answer.write(json.dumps(event).encode() + b"\n")
        return answer

    async def _next_event(
        self, resource: str, changes: AsyncIterator[Any], matches: Matches
    ) -> Raw:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._bookmark_s):
                while True:
                    if event := (await anext(changes)).event(matches):
                        return event  # type: ignore[no-any-return]
        kind = self._store.collection(resource).kind
        version = {"resourceVersion": str(self._store.version)}
        return {"type": "BOOKMARK", "object": {"kind": kind, "metadata": version}}


class _Target(NamedTuple):
    """A request's resource and object; empty where its path has none."""

    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @classmethod
    def parse(cls, path: str) -> "_Target":
        parts = path.strip("/").split("/")
        depth = 2 if parts[0] == "api" else 3  # /api/VERSION or /apis/GROUP/VERSION
        root, rest = "/" + "/".join(parts[:depth]), parts[depth:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":  # noqa: PLR2004 - and then a resource
            _, namespace, *rest = rest
        plural, name, subresource, *_ = [*rest, "", "", ""]
        return cls(f"{root}/{plural}", namespace, name, subresource)


def _selected(namespace: str, fields: str, labels: str) -> Matches:
    """Return the test for a namespace and for selectors, which are equalities here."""
    pairs = [_equality(part) for part in fields.split(",") if part]
    tests = [(tuple(path.split(".")), value) for path, value in pairs]
    tests += [
        (("metadata", "labels", name), value)
        for name, value in (_equality(part) for part in labels.split(",") if part)
    ]
    if namespace:
        tests.append((("metadata", "namespace"), namespace))
    return lambda item: all(_field(item, path) == value for path, value in tests)


def _equality(text: str) -> tuple[str, str]:
    name, sign, value = text.replace("==", "=").partition("=")
    if not sign or name.endswith("!"):
        raise StatusError(400, "BadRequest", f"selector {text!r} is not of the form name=value")
    return name, value


def _field(item: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        item = (item or {}).get(name)
    return item


def _status(error: StatusError) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": error.status,
        "reason": error.reason,
        "message": str(error),
    }


def write_kubeconfig(path: Path, url: str) -> None:
    """Write a kubeconfig for a server without authentication."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "memory",
        "contexts": [{"name": "memory", "context": {"cluster": "memory", "user": "memory"}}],
        "clusters": [{"name": "memory", "cluster": {"server": url}}],
        "users": [{"name": "memory", "user": {}}],
    }
    path.write_text(json.dumps(config), encoding="utf-8")
