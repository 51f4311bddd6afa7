"""An API server in memory over HTTP: list, watch, get, create, merge patch, delete, and binding.

There is no authentication, admission or validation, so it listens on the loopback alone.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiohttp import web

from workbench.cluster.api_requests import ApiRequests, ApiTarget, WatchStream, status
from workbench.cluster.object_store import ObjectStore, Raw, StatusError

_BOOKMARK_S = 30.0
_BODY_BYTES_MAX = 8 * 2**20
_SHUTDOWN_S = 0.1


class ApiServer:
    """Routes of the API server over a store."""

    def __init__(self, store: ObjectStore, *, bookmark_s: float = _BOOKMARK_S) -> None:
        self._requests = ApiRequests(store)
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
            target = ApiTarget.parse(request.path)
            if request.method == "GET" and not target.name:
                if request.query.get("watch") in ("true", "1"):
                    return await self._watch(request, target)
                return web.json_response(self._requests.list(target, request.query))
            body = await request.json() if request.can_read_body else {}
            return web.json_response(self._requests.object(request.method, target, body))
        except StatusError as error:
            return web.json_response(status(error), status=error.status)
        except ValueError as error:
            refusal = StatusError(400, "BadRequest", f"the body is not JSON: {error}")
            return web.json_response(status(refusal), status=refusal.status)

    async def _watch(self, request: web.Request, target: ApiTarget) -> web.StreamResponse:
        query = request.query
        with_bookmarks = query.get("allowWatchBookmarks") == "true"
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        with self._requests.watching(target, query) as watch:
            await answer.prepare(request)
            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(float(query.get("timeoutSeconds", 300))):
                    while True:
                        event = await self._next_event(target.resource, watch)
                        if event["type"] != "BOOKMARK" or with_bookmarks:
                            await answer.write(json.dumps(event).encode() + b"\n")
        return answer

    async def _next_event(self, resource: str, watch: WatchStream) -> Raw:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._bookmark_s):
                return await watch.next_event()
        return self._requests.bookmark(resource)


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
