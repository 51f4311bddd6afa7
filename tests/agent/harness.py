"""A GPU node for the end-to-end tests: its Node object, and the agent on it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import generate_latest

from scheduler.agent.service import Agent
from scheduler.agent.settings import AgentSettings
from scheduler.cluster.api import connect
from scheduler.cluster.one_node import OneNode
from scheduler.cluster.reflector import Handler
from scheduler.model.names import ANNOTATION_GPUS, RESOURCE_GPU_PERCENT
from scheduler.model.node import Gpu, node_from_json
from tests.agent.fakes import FakeDaemons
from tests.testbed.api import Api, wait_until

NODE = "node-000"
PATH = f"/api/v1/nodes/{NODE}"


async def until(condition: Callable[[], bool]) -> None:
    """Poll until the condition holds: for files and lists without events."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - a poll
            await asyncio.sleep(0.02)


class Node:
    """The Node object on the API server."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs that the scheduler reads."""
        return node_from_json(self.api.get(PATH)).gpus

    def healthy(self) -> list[bool]:
        """List the health of the GPUs, by index."""
        return [gpu.healthy for gpu in self.gpus()]

    def annotation(self) -> str | None:
        """Return the inventory's text."""
        return self.api.get(PATH)["metadata"]["annotations"].get(ANNOTATION_GPUS)

    def percents(self) -> tuple[str | None, str | None]:
        """Return capacity and allocatable."""
        status = self.api.get(PATH)["status"]
        return tuple(
            status.get(part, {}).get(RESOURCE_GPU_PERCENT) for part in ("capacity", "allocatable")
        )

    def until_offers(self, percent: int) -> None:
        """Wait until capacity and allocatable have this value."""
        expected = (str(percent), str(percent))
        wait_until(lambda: self.percents() == expected, what=f"{percent} % offered")


class RunningAgent:
    """An agent in a thread of this process, with the rights of a kubeconfig."""

    def __init__(self, kubeconfig: Path, daemons: FakeDaemons, **settings: object) -> None:
        self._kubeconfig = str(kubeconfig)
        self._settings: AgentSettings = daemons.settings(**{"require_mps": False, **settings})
        self.agent = Agent(self._settings, NODE, connect=self._connected)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._stop = asyncio.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._started.wait(60)

    def series(self) -> str:
        """Return the metrics, as for a scrape."""
        return generate_latest(self.agent.metrics.registry).decode()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while the agent runs."""

        def check() -> bool:
            assert self._thread.is_alive(), self._error
            return condition()

        wait_until(check, what=what)

    def stop(self) -> None:
        """Stop the agent, like SIGTERM."""
        assert self._loop is not None
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self._error is None

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:  # noqa: BLE001 - the test's thread reports it
            self._error = error

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._started.set()
        await self.agent.run(self._stop)

    @asynccontextmanager
    async def _connected(self, node: Handler, pods: Handler) -> AsyncIterator[OneNode]:
        async with connect(self._kubeconfig) as api:
            yield OneNode(api, NODE, node=node, pods=pods)
