"""A recorder of all changes of pods, in a thread of its own."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import aiohttp

from tests.testbed.api import wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.driver import TLS_CLOSE_S
from tests.testbed.observations import Observation
from tests.testbed.pod_watch import LONGEST_EVENT_BYTES, watch_pods

PATH = "/api/v1/namespaces/default/pods"


@contextlib.contextmanager
def recorded_pods(plane: ControlPlane) -> Iterator[list[Observation]]:
    """Record the pods of namespace `default`; the list has those that exist, and grows inside."""
    seen: list[Observation] = []
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    with ThreadPoolExecutor(1) as executor:
        recording = executor.submit(lambda: asyncio.run(_record(plane, seen, started)))
        loop, over = started.result()
        try:
            existing = {pod["metadata"]["uid"] for pod in plane.api.items(PATH)}
            wait_until(
                lambda: existing <= {pod.uid for pod in seen}, what="existing pods are recorded"
            )
            yield seen
        finally:
            loop.call_soon_threadsafe(over.set)
            recording.result()


async def _record(
    plane: ControlPlane,
    seen: list[Observation],
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]],
) -> None:
    over = asyncio.Event()
    started.set_result((asyncio.get_running_loop(), over))
    async with aiohttp.ClientSession(
        plane.url,
        connector=aiohttp.TCPConnector(ssl=plane.tls()),
        timeout=aiohttp.ClientTimeout(total=10),
        read_bufsize=LONGEST_EVENT_BYTES,
    ) as http:
        following = asyncio.create_task(_follow(http, seen))
        await over.wait()
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        await http.close()
        await asyncio.sleep(TLS_CLOSE_S)


async def _follow(http: aiohttp.ClientSession, seen: list[Observation]) -> None:
    began_s = time.monotonic()
    async for event, pod in watch_pods(http, PATH, label_selector=""):
        seen.append(Observation.of(event, pod, at_s=time.monotonic() - began_s))
