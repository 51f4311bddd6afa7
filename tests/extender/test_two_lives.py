"""Two processes that bind pods, at once or one after the other: no GPU is promised twice.

Both decide over the same API server. A's Bindings may arrive late, and B's watch may be silent.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from scheduler.cluster.api import connect
from scheduler.cluster.link import Handlers, LiveCluster
from scheduler.cluster.resource import PODS, trim_pod
from scheduler.extender.state import State
from scheduler.metrics import Metrics
from scheduler.model.documents import Workflow, to_manifest
from scheduler.model.names import ANNOTATION_GPU, ANNOTATION_GPU_PERCENT
from scheduler.settings import Settings
from tests.cluster.api_server import ApiServer, refuse
from tests.cluster.factories import kubeconfig_for
from tests.extender.bindings import BindingHarness
from tests.extender.factories import DOCUMENTS, node, pod
from tests.extender.harness import Clock

Raw = dict[str, Any]


class Replicas:
    """Processes over one API server whose node n1 has two GPUs and n2 has one."""

    def __init__(self, server: ApiServer, kubeconfig: Path, stack: AsyncExitStack) -> None:
        self.server = server
        self.clock = Clock(1_000.0)
        self._kubeconfig = kubeconfig
        self._stack = stack

    async def start(self) -> BindingHarness:
        """Start a process; its cache shows the API server as it is now."""
        settings = Settings().model_copy(update={"api_timeout_s": 60.0})
        state = State(settings, Metrics(settings.prices), clock=Clock(), monotonic=self.clock)
        state.nodes.replace([node("n1", 2), node("n2")])
        state.documents.workflows.replace(
            to_manifest(d) for d in DOCUMENTS if isinstance(d, Workflow)
        )
        state.documents.profiles.replace(
            to_manifest(d) for d in DOCUMENTS if not isinstance(d, Workflow)
        )
        state.pods.replace(map(trim_pod, self.server.collections[PODS.path].objects.values()))
        api = await self._stack.enter_async_context(connect(self._kubeconfig, timeout_s=30.0))
        link = LiveCluster(
            api,
            Handlers(state.nodes, state.pods),
            records_namespace="esg-scheduler",
            records_timeout_s=20.0,
        )
        return BindingHarness(self.server, state, link)

    def create(self, function: str = "whole") -> Raw:
        """Create a pending pod, which no process knows yet."""
        return self.server.put(PODS, pod(function))

    def percent(self) -> dict[str, int]:
        """Percent of each GPU that bound pods have at the API server."""
        total: dict[str, int] = {}
        for stored in self.server.collections[PODS.path].objects.values():
            granted = stored["metadata"]["annotations"]
            if stored["spec"].get("nodeName") and stored["status"]["phase"] != "Succeeded":
                gpu = granted[ANNOTATION_GPU]
                total[gpu] = total.get(gpu, 0) + int(granted[ANNOTATION_GPU_PERCENT])
        return total

    def end(self, raw: Raw) -> None:
        """End the containers of a bound pod."""
        stored = self.server.collections[PODS.path].objects["default", raw["metadata"]["name"]]
        self.server.put(PODS, {**stored, "status": {"phase": "Succeeded"}})


@pytest.fixture
async def replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replicas]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
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


async def test_a_binding_under_way_while_another_replica_leads(replicas: Replicas) -> None:
    """B does not bind to the GPU that A's Binding may still take; A's arrives."""
    a, b = await replicas.start(), await replicas.start()
    first, second = fill(replicas, a, b, whole=2)
    held = await HeldBinding.sent(a, first)
    assert "0 % free" in await b.bind(second, "n2")
    assert await held.arrive() == ""
    assert replicas.percent() == {"GPU-n2-0": 100}


async def test_a_binding_under_way_while_its_process_restarts(replicas: Replicas) -> None:
    """The next life knows of the Binding from the node's record alone."""
    a = await replicas.start()
    first, second = fill(replicas, a, whole=2)
    held = await HeldBinding.sent(a, first)
    heir = await replicas.start()
    assert "0 % free" in await heir.bind(second, "n2")
    assert await held.arrive() == ""
    assert replicas.percent() == {"GPU-n2-0": 100}


async def test_a_replica_whose_watch_is_silent(replicas: Replicas) -> None:
    """B has not heard of A's pods; the record says that their GPU is taken, and by whom."""
    a, b = await replicas.start(), await replicas.start()
    first, second = fill(replicas, a, b, whole=2)
    assert await a.bind(first, "n2") == ""
    assert "0 % free" in await b.bind(second, "n2")
    assert b.held(first) == ("n2", "assumed")
    replicas.clock.now_s += 60
    await b.binder.reconcile_lost_bindings()
    assert b.held(first) == ("n2", "assumed")
    b.hears(first)
    assert b.held(first) == ("n2", "confirmed")


async def test_two_replicas_at_once(replicas: Replicas) -> None:
    """One of them gets the GPU, whichever writes the record first."""
    a, b = await replicas.start(), await replicas.start()
    first, second = fill(replicas, a, b, whole=2)
    answers = await asyncio.gather(a.bind(first, "n2"), b.bind(second, "n2"))
    assert answers.count("") == 1
    assert replicas.percent() == {"GPU-n2-0": 100}


async def test_another_gpu_of_the_node_is_chosen(replicas: Replicas) -> None:
    """A GPU that another replica has taken is a reason to choose again, not to refuse."""
    a, b = await replicas.start(), await replicas.start()
    pods = fill(replicas, a, b, whole=3)
    assert await a.bind(pods[0], "n1") == ""
    assert await b.bind(pods[1], "n1") == ""
    assert await b.bind(pods[2], "n1") != ""
    assert replicas.percent() == {"GPU-n1-0": 100, "GPU-n1-1": 100}


@pytest.mark.parametrize("end", ["changed", "deleted", "bound elsewhere", "ended"])
async def test_a_share_in_the_record_ends(replicas: Replicas, end: str) -> None:
    """B takes it over once no Binding with it can arrive any more, or its pod has ended."""
    a, b = await replicas.start(), await replicas.start()
    first, second = fill(replicas, a, b, whole=2)
    name = first["metadata"]["name"]
    held = None
    if end == "ended":
        assert await a.bind(first, "n2") == ""
        replicas.end(first)
        b.hears(first)
    else:
        held = await HeldBinding.sent(a, first)
    if end == "changed":
        a.changes(first)
        b.hears(first)
    elif end == "deleted":
        b.state.pods.delete(trim_pod(b.stored(first)))
        replicas.server.remove(PODS, name, "default")
        b.hears(replicas.create())  # the cache is newer than the pod
    elif end == "bound elsewhere":
        b.others_bind(first, "n1", observed=True)
    assert await b.bind(second, "n2") == ""
    if held is not None:
        await held.arrive()
    assert replicas.percent()["GPU-n2-0"] == 100


async def test_the_record_is_written_once_per_bind(replicas: Replicas) -> None:
    """A process that binds alone writes over the version that it wrote, without reading it."""
    a = await replicas.start()
    pods = [replicas.create("tenth") for _ in range(5)]
    for pending in pods:
        a.hears(pending)
        assert await a.bind(pending, "n2") == ""
    server = replicas.server
    assert [len(server.seen(method, "leases/gpus-n2")) for method in ("GET", "PATCH")] == [1, 4]
    assert len(server.seen("POST", "/leases")) == 1


async def test_binds_of_one_node_share_a_write(replicas: Replicas) -> None:
    """While one write is under way, the others gather for the next."""
    a = await replicas.start()
    pods = [replicas.create("tenth") for _ in range(8)]
    for pending in pods:
        a.hears(pending)
    assert await asyncio.gather(*(a.bind(pending, "n2") for pending in pods)) == [""] * 8
    server = replicas.server
    assert len(server.seen("PATCH", "leases/gpus-n2")) + len(server.seen("POST", "/leases")) <= 2
    assert replicas.percent() == {"GPU-n2-0": 80}


@pytest.mark.parametrize("fault", [refuse(403, "Forbidden", "no"), refuse(500, "Internal", "etcd")])
async def test_nothing_is_bound_without_a_record(replicas: Replicas, fault: Any) -> None:
    """A record that cannot be written refuses the pod and frees its share; later it is bound."""
    a = await replicas.start()
    (pending,) = fill(replicas, a, whole=1)
    replicas.server.fault("POST", "/leases", fault)
    assert "its record of shares" in await a.bind(pending, "n2")
    assert replicas.server.seen("POST", "binding") == []
    assert a.held(pending) is None
    assert await a.bind(pending, "n2") == ""


async def test_a_write_of_the_record_is_stored_and_not_answered(replicas: Replicas) -> None:
    """It is read before the next write: what this process has released is in nobody's way."""
    a = await replicas.start()
    first, second = fill(replicas, a, whole=2)

    async def store_and_fail(request: web.Request) -> web.Response:
        replicas.server._lease("POST", "", await request.json())
        return await refuse(504, "Timeout", "late")(request)

    replicas.server.fault("POST", "/leases", store_and_fail)
    assert "its record of shares" in await a.bind(first, "n2")
    assert await a.bind(second, "n2") == ""
    assert replicas.percent() == {"GPU-n2-0": 100}


async def test_one_pod_by_two_replicas_on_two_nodes(replicas: Replicas) -> None:
    """Either Binding may arrive: until one has, nobody gets the share that the other names."""
    a, b = await replicas.start(), await replicas.start()
    first, second = fill(replicas, a, b, whole=2)
    held = await HeldBinding.sent(a, first)
    second_binding = await HeldBinding.sent(b, first, "n1")
    assert "may be bound to node n2 or to node n1" in await b.bind(second, "n2")
    assert await held.arrive() == ""
    assert "bound to node n2" in await second_binding.arrive()
    b.hears(first)
    assert "0 % free" in await b.bind(second, "n2")
    assert replicas.percent() == {"GPU-n2-0": 100}


async def test_a_restarted_process_meets_its_own_binding(replicas: Replicas) -> None:
    """The same pod is not bound to another GPU while the earlier Binding may arrive."""
    a = await replicas.start()
    first, second = fill(replicas, a, whole=2)
    held = await HeldBinding.sent(a, first)
    heir = await replicas.start()
    assert await heir.bind(first, "n2") != ""
    assert heir.held(first) == ("n2", "assumed")
    await held.arrive()
    assert await heir.bind(first, "n2") == ""
    assert await heir.bind(second, "n2") != ""
    assert replicas.percent() == {"GPU-n2-0": 100}


async def test_a_record_that_cannot_be_read(replicas: Replicas) -> None:
    """Nothing is bound to the node; the message names the Lease."""
    a = await replicas.start()
    (pending,) = fill(replicas, a, whole=1)
    broken = {"name": "gpus-n2", "annotations": {"esg-scheduler.io/shares": "[{}]"}}
    replicas.server._lease("POST", "", {"metadata": broken, "spec": {}})
    assert "Lease gpus-n2: annotation" in await a.bind(pending, "n2")
    assert replicas.percent() == {}
