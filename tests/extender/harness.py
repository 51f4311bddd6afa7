"""The real service on its HTTP port, in a thread of the test's process, without a cluster."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from typing import Any, TypeVar

import httpx
import uvicorn

from scheduler.extender.app import create_app
from scheduler.extender.service import Service
from scheduler.model.documents import Document
from scheduler.settings import Settings
from tests.extender.embedded_service import embedded_service
from workbench.cluster.extender import binding_arguments, extender_arguments

_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # httpx would make one, in 5 ms, for each client
_STARTS_WITHIN_S = 300.0  # compiling the kernels where Numba's cache is cold
Result = TypeVar("Result")


class Clock:
    """The time in seconds since the epoch; it stands still until it is moved."""

    def __init__(self, now_s: float = 1_800_000_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.started_up = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.started_up.set()

    async def main_loop(self) -> None:
        # uvicorn's own looks every 0.1 s whether it is to stop, which is long for a test.
        await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn's own waits 0.1 s for connections to close, and as long again if one has not.
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        state = self.server_state
        while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn has no event of them
            await asyncio.sleep(0.001)

    def stop(self) -> None:
        self.should_exit = True
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self._stop.set)


class Extender:
    """A running service and its HTTP client."""

    def __init__(self, client: httpx.Client, service: Service, server: _Server) -> None:
        self.client = client
        self.service = service
        self.port = client.base_url.port
        self._server = server

    def on_loop(self, act: Callable[..., Result], *args: Any) -> Result:
        """Run a function on the service's event loop, which owns its state."""

        async def acting() -> Result:
            return act(*args)

        assert self._server.loop is not None
        return asyncio.run_coroutine_threadsafe(acting(), self._server.loop).result(10)

    def stored_pod(self, pod: Mapping[str, Any]) -> Any:
        """Read the pod from the embedded cluster."""
        metadata = pod["metadata"]
        read = self.service.link.get_pod(metadata["namespace"], metadata["name"])
        assert self._server.loop is not None
        return asyncio.run_coroutine_threadsafe(read, self._server.loop).result(10)

    def post(self, verb: str, message: Any) -> Any:
        """Send a call that must be accepted; return its JSON."""
        response = self.client.post(f"/{verb}", json=message)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "application/json"
        return response.json()

    def get(self, path: str) -> Any:
        """Read a page as JSON."""
        response = self.client.get(path)
        assert response.status_code == 200, response.text
        return response.json()

    def filter(self, pod: Mapping[str, Any], *names: str) -> dict[str, Any]:
        """Filter by names."""
        return self.post("filter", extender_arguments(pod, names))

    def prioritize(self, pod: Mapping[str, Any], *names: str) -> list[dict[str, Any]]:
        """Prioritize by names."""
        return self.post("prioritize", extender_arguments(pod, names))

    def bind(self, pod: Mapping[str, Any], node: str, **changed: str) -> str:
        """Bind; return the answer's Error."""
        answer = self.post("bind", binding_arguments(pod, node) | changed)
        assert list(answer) == ["Error"]
        return answer["Error"]

    def place(self, pod: Mapping[str, Any], node: str) -> dict[str, Any]:
        """Filter on the one node and bind, both of which must succeed; return the grant."""
        assert self.filter(pod, node)["NodeNames"] == [node]
        assert self.bind(pod, node) == ""
        return self.explain(pod)["granted"]

    def explain(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        """Read the explanation of the pod."""
        return self.get(f"/v1/explain/{pod['metadata']['namespace']}/{pod['metadata']['name']}")

    def gpus(self, node: str) -> list[dict[str, Any]]:
        """Read the GPUs of a node from the snapshot."""
        nodes = self.get("/v1/snapshot")["nodes"]
        return next(entry["gpus"] for entry in nodes if entry["name"] == node)

    def create(self, pod: Mapping[str, Any]) -> None:
        """Create a pod of the embedded cluster, or update it."""
        self.on_loop(self.service.create_pod, pod)

    def finish(self, pod: Mapping[str, Any], phase: str = "Succeeded") -> None:
        """End the pod's containers."""
        metadata = pod["metadata"]
        self.on_loop(self.service.link.finish_pod, metadata["namespace"], metadata["name"], phase)

    def delete(self, pod: Mapping[str, Any]) -> None:
        """Delete the pod in any phase."""
        metadata = pod["metadata"]
        self.on_loop(self.service.link.delete_pod, metadata["namespace"], metadata["name"])


@contextmanager
def serving(
    service: Service,
    *others: Callable[[], AbstractAsyncContextManager[None]],
    ready: bool = True,
) -> Iterator[Extender]:
    """Serve while inside; entered when it answers, and by default when it is ready.

    Args:
        service: the service.
        others: further servers that run with it.
        ready: wait until it is ready.
    """
    server = _Server(
        uvicorn.Config(
            create_app(service),
            host="127.0.0.1",
            port=0,
            http="httptools",
            log_level="error",
            lifespan="off",
        )
    )

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            for running in (service.running, *others):
                await stack.enter_async_context(running())
            await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="extender", daemon=True)
    thread.start()
    try:
        assert server.started_up.wait(_STARTS_WITHIN_S), "the service did not start"
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False, verify=_NO_TLS
        ) as client:
            if ready:
                _until_ready(client)
            yield Extender(client, service, server)
    finally:
        server.stop()
        thread.join(10)


@contextmanager
def embedded(
    *,
    nodes: Iterable[Mapping[str, Any]],
    documents: Iterable[Document],
    clock: Callable[[], float] = time.time,
    **settings: Any,
) -> Iterator[Extender]:
    """The service over an embedded cluster of these nodes, and these documents.

    Filter passes all feasible nodes unless ``filter_nodes_max`` is set: most tests assert which
    nodes are feasible.
    """
    settings = {"filter_nodes_max": 0} | settings
    service = embedded_service(Settings(**settings), nodes, documents, clock=clock)
    with serving(service) as extender:
        yield extender


def _until_ready(client: httpx.Client) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN_S
    pause = threading.Event()
    while (answer := client.get("/readyz")).status_code != 200:
        assert time.monotonic() < deadline, answer.text
        pause.wait(0.005)
