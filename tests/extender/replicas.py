"""Processes that bind pods over one API server, with a Lease whose time a test sets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from scheduler.cluster.api import connect
from scheduler.cluster.owner_lease import DURATION_S
from scheduler.cluster.resource import PODS, trim_pod
from scheduler.extender import bind_ownership
from scheduler.model.documents import Workflow, to_manifest
from scheduler.model.names import ANNOTATION_GPU, ANNOTATION_GPU_PERCENT
from scheduler.planning.handlers import PodHandler
from scheduler.planning.metrics import Metrics
from scheduler.planning.state import State
from scheduler.server.errors import RefusedError
from scheduler.settings import Settings
from tests.cluster.api_server import ApiServer
from tests.cluster.factories import kubeconfig_for
from tests.extender.bindings import BindingHarness, UnwatchedCluster
from tests.extender.factories import DOCUMENTS, node, pod
from tests.extender.harness import Clock
from workbench.cluster.object_store import Watch

Raw = dict[str, Any]


class Replicas:
    """Processes over one API server whose node n1 has two GPUs and n2 has one."""

    def __init__(self, server: ApiServer, kubeconfig: Path, stack: AsyncExitStack) -> None:
        self.server = server
        self.clock = Clock(1_000.0)
        self.lease_clock = Clock(1_000.0)
        self.events_flow = asyncio.Event()
        self.events_flow.set()
        self._owning: dict[BindingHarness, asyncio.Task[None]] = {}
        self._kubeconfig = kubeconfig
        self._stack = stack

    async def start(self, *, grace_s: float = 0.0, has_watch: bool = False) -> BindingHarness:
        """Start a process; its cache shows the API server as it is now.

        With ``grace_s`` vanished pods keep their share, and a take-over goes by the watch.
        """
        settings = Settings(deletion_grace_max_s=grace_s)
        settings = settings.model_copy(update={"api_timeout_s": 60.0})
        state = State(settings, Metrics(settings.prices), clock=Clock(), monotonic=self.clock)
        state.nodes.replace([node("n1", 2), node("n2")])
        state.documents.workflows.replace(
            to_manifest(d) for d in DOCUMENTS if isinstance(d, Workflow)
        )
        state.documents.profiles.replace(
            to_manifest(d) for d in DOCUMENTS if not isinstance(d, Workflow)
        )
        state.pods.replace(map(trim_pod, self.server.pods))
        if has_watch:
            changes = self._stack.enter_context(self.server.store.watching(PODS.path))
            watch = follow(changes, state.pods, self.events_flow)
            self._stack.callback(asyncio.create_task(watch).cancel)
        api = await self._stack.enter_async_context(connect(self._kubeconfig, timeout_s=30.0))
        link = UnwatchedCluster(
            api,
            state,
            lease_namespace="esg-scheduler",
            lease_timeout_s=20.0,
            lease_clock=self.lease_clock,
        )
        process = BindingHarness(self.server, state, link)
        self._owning[process] = asyncio.create_task(process.ownership.run())
        self._stack.callback(self.kill, process)
        return process

    def kill(self, process: BindingHarness) -> None:
        """End a process without a word."""
        self._owning[process].cancel()

    def pass_time(self) -> None:
        """Let so much time pass that a Lease ends."""
        self.clock.now_s += DURATION_S + 1
        self.suspend()

    def suspend(self) -> None:
        """Let so much time pass for the Lease alone, as on a machine that is suspended."""
        self.lease_clock.now_s += DURATION_S + 1

    async def hand_over(self, heir: BindingHarness) -> None:
        """Let time pass after the heir has read the Lease of another process."""
        with pytest.raises(RefusedError, match="may not bind pods now: process"):
            await heir.ownership.ensure(20.0)
        self.pass_time()

    def create(self, function: str = "whole") -> Raw:
        """Create a pending pod, which no process knows yet."""
        return self.server.put(PODS, pod(function))

    def percent(self) -> dict[str, int]:
        """Percent of each GPU that bound pods have at the API server."""
        total: dict[str, int] = {}
        for stored in self.server.pods:
            granted = stored["metadata"]["annotations"]
            if stored["spec"].get("nodeName") and stored["status"]["phase"] != "Succeeded":
                gpu = granted[ANNOTATION_GPU]
                total[gpu] = total.get(gpu, 0) + int(granted[ANNOTATION_GPU_PERCENT])
        return total

    def end(self, raw: Raw) -> None:
        """End the containers of a bound pod."""
        stored = self.server.pod(raw["metadata"]["name"])
        self.server.put(PODS, {**stored, "status": {"phase": "Succeeded"}})


async def follow(changes: Watch, handler: PodHandler, flow: asyncio.Event) -> None:
    """Deliver the changes as a watch does, while they flow."""
    async for change in changes:
        await flow.wait()
        event = change.event(lambda _: True)
        assert event is not None
        deliver = handler.delete if event["type"] == "DELETED" else handler.upsert
        deliver(trim_pod(event["object"]))


@pytest.fixture
async def replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loopback_http: None
) -> AsyncIterator[Replicas]:
    monkeypatch.setattr(bind_ownership, "RENEW_S", 3_600.0)  # time passes when a test says so
    server = ApiServer()
    await server.start()
    async with AsyncExitStack() as stack:
        yield Replicas(server, kubeconfig_for(server.url, tmp_path), stack)
    await server.stop()


def fill(replicas: Replicas, *processes: BindingHarness, whole: int) -> list[Raw]:
    """Create this many pods of a whole GPU, which the processes know."""
    pods = [replicas.create() for _ in range(whole)]
    for process in processes:
        for pending in pods:
            process.hears(pending)
    return pods


class HeldBinding:
    """A bind call whose Binding stays inside the API server until it is let through."""

    def __init__(self, process: BindingHarness, pending: Raw, node: str) -> None:
        self._server = process.server
        self._name = pending["metadata"]["name"]
        self._free = asyncio.Event()
        self._seen = asyncio.Event()
        self._server.fault("POST", f"{self._name}/binding", self._hold)
        self._call = asyncio.create_task(process.bind(pending, node))

    async def _hold(self, request: web.Request) -> web.Response:
        self._seen.set()
        await self._free.wait()
        return self._server.bind("default", self._name, await request.json())

    async def arrive(self) -> str:
        """Let the Binding through; return the answer of the bind call."""
        self._free.set()
        return await self._call

    @classmethod
    async def sent(cls, process: BindingHarness, pending: Raw, node: str = "n2") -> "HeldBinding":
        """Bind, and return when the Binding is inside the server."""
        held = cls(process, pending, node)
        await held._seen.wait()
        return held
