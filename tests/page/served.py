"""A health server with the live page in a thread."""

import asyncio
import threading
from contextlib import contextmanager
from functools import partial

from pydantic_core import to_json

from scheduler.server.health_server import HealthServer, HealthSource


@contextmanager
def page_server(documents):
    """Serve the page over documents by path; those of a path with a slash are by name."""

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
        reports={"/v1/gpus": lambda: text([to_json(documents["/v1/gpus"])])},
        has_page=True,
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
