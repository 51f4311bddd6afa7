"""A health server with the live page in a thread."""

import asyncio
import threading
from contextlib import contextmanager
from functools import partial

from pydantic_core import to_json

from scheduler.server.health_server import HealthServer, HealthSource


@contextmanager
def page_server(documents, upstream=""):
    """Serve the page over documents by path; those of a path with a slash are by name.

    Args:
        documents: documents of the service; without `/v1/gpus`, it is a gateway alone.
        upstream: URL of the port that has those of the extender; empty: none.
    """

    async def text(parts):
        for part in parts:
            yield part

    source = HealthSource(
        fatal_error=lambda: "",
        not_ready_reason=lambda: "",
        exposition=partial(text, [b"a 1\n"]),
        documents={
            path: partial(documents.__getitem__, path)
            for path in documents
            if not path.endswith("/") and path != "/v1/gpus"
        },
        lookups={path: documents[path].get for path in documents if path.endswith("/")},
        reports={
            path: lambda: text([to_json(documents["/v1/gpus"])])
            for path in documents
            if path == "/v1/gpus"
        },
        has_page=True,
        upstream=upstream,
    )
    loop, ready, stop, ports = asyncio.new_event_loop(), threading.Event(), asyncio.Event(), []

    async def serve():
        server = HealthServer(source, ("127.0.0.1", 0), lambda _: None)
        async with server.running():
            ports.append(server.port)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
