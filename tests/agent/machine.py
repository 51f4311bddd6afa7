"""A GPU node for the end-to-end tests: its GPUs, its Node object, and the agent on it."""

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
from tests.agent.daemons import FakeDaemons
from tests.agent.gpus import FakeGpus
from tests.testbed.api import Api, wait_until

NODE = "node-000"
PATH = f"/api/v1/nodes/{NODE}"


class Node:
    """The Node object as the API server has it."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def gpus(self) -> tuple[Gpu, ...]:
        """As the scheduler reads them."""
        return node_from_json(self.api.get(PATH)).gpus

    def healthy(self) -> list[bool]:
        """By index."""
        return [gpu.healthy for gpu in self.gpus()]

    def annotation(self) -> str | None:
        """The inventory's text."""
        return self.api.get(PATH)["metadata"]["annotations"].get(ANNOTATION_GPUS)

    def percents(self) -> tuple[str | None, str | None]:
        """Capacity and what is allocatable."""
        status = self.api.get(PATH)["status"]
        return tuple(
            status.get(part, {}).get(RESOURCE_GPU_PERCENT) for part in ("capacity", "allocatable")
        )

    def until_offers(self, percent: int, *, timeout_s: float = 60) -> None:
        """Wait until so much is offered, and all of it in both places."""
        wanted = (str(percent), str(percent))
        wait_until(
            lambda: self.percents() == wanted, what=f"{percent} % offered", timeout_s=timeout_s
        )


class Running:
    """An agent in a thread of this process, with the rights of a kubeconfig."""

    def __init__(self, kubeconfig: Path, daemons: FakeDaemons, **settings: object) -> None:
        self._kubeconfig = str(kubeconfig)
        self._settings: AgentSettings = daemons.settings(**{"require_mps": False, **settings})
        self.agent = Agent(self._settings, NODE, connect=self._connected)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._began = threading.Event()
        self._stop = asyncio.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._began.wait(20)

    def series(self) -> str:
        """What a scrape would get."""
        return generate_latest(self.agent.metrics.registry).decode()

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait, as long as the agent lives."""

        def asked() -> bool:
            assert self._thread.is_alive(), self._error
            return is_so()

        wait_until(asked, what=what, timeout_s=60)

    def stop(self) -> None:
        """As SIGTERM does."""
        assert self._loop is not None
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()
        assert self._error is None

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:  # noqa: BLE001 - it is told by the test's thread
            self._error = error

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began.set()
        await self.agent.run(self._stop)

    @asynccontextmanager
    async def _connected(self, node: Handler, pods: Handler) -> AsyncIterator[OneNode]:
        async with connect(self._kubeconfig) as api:
            yield OneNode(api, NODE, node=node, pods=pods)


def expected(gpus: FakeGpus, *ill: int) -> tuple[Gpu, ...]:
    """The GPUs as they should be published."""
    return tuple(
        Gpu(
            index=index,
            uuid=uuid,
            model="NVIDIA A100-SXM4-80GB",
            memory_mib=81_920,
            multiprocessors=108,
            healthy=index not in ill,
        )
        for index, uuid in enumerate(gpus.uuids)
    )
