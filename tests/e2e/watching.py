"""Records every change of every pod in a thread, while the test itself does something else."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import aiohttp

from tests.testbed.control_plane import ControlPlane
from tests.testbed.driver import TLS_GOODBYE_S
from tests.testbed.observations import Observation
from tests.testbed.pod_watch import LONGEST_EVENT_BYTES, watch_pods

PATH = "/api/v1/namespaces/default/pods"


@contextlib.contextmanager
def watching(plane: ControlPlane) -> Iterator[list[Observation]]:
    """The pods of namespace `default` as the API server stored them; the list grows meanwhile."""
    seen: list[Observation] = []
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    with ThreadPoolExecutor(1) as beside:
        recording = beside.submit(lambda: asyncio.run(_record(plane, seen, begun)))
        loop, over = begun.result()
        try:
            yield seen
        finally:
            loop.call_soon_threadsafe(over.set)
            recording.result()


async def _record(
    plane: ControlPlane,
    seen: list[Observation],
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]],
) -> None:
    over = asyncio.Event()
    begun.set_result((asyncio.get_running_loop(), over))
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
        await asyncio.sleep(TLS_GOODBYE_S)


async def _follow(http: aiohttp.ClientSession, seen: list[Observation]) -> None:
    began = time.monotonic()
    async for event, pod in watch_pods(http, PATH, label_selector=""):
        seen.append(Observation.of(event, pod, at_s=time.monotonic() - began))
