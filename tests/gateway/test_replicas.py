"""Several replicas: an owner that dies or ends under load, and what its clients see."""

import asyncio
import contextlib
import itertools

import aiohttp
import pytest

from scheduler.cluster.api import connect
from scheduler.cluster.watches import Watches
from scheduler.gateway.http.front import HttpFront
from scheduler.gateway.http.limits import HttpLimits
from scheduler.gateway.http.server import serving_http
from scheduler.gateway.replicas.shards import preference, shard_of
from scheduler.gateway.service import GatewayService
from scheduler.gateway.settings import GatewaySettings
from scheduler.model.documents import to_manifest
from scheduler.server.sockets import listen
from scheduler.settings import Settings
from tests.gateway.factories import grant, profile, server, workflow
from workbench.cluster.api_requests import (
    FUNCTION_PROFILES,
    FUNCTION_SERVERS,
    KINDS,
    LEASES,
    PODS,
    WORKFLOWS,
)
from workbench.cluster.api_server import ApiServer, write_kubeconfig
from workbench.cluster.model_server import PlayedModelServer
from workbench.cluster.object_store import ObjectStore
from workbench.cluster.process import free_port

pytestmark = pytest.mark.slow
NAMES = ("gateway-a", "gateway-b")
HOSTS = dict(zip(NAMES, ("127.0.0.2", "127.0.0.3"), strict=True))


def owned_by(name):
    """Return a namespace whose preferred owner this replica is."""
    names = (f"n{number}" for number in itertools.count())
    return next(n for n in names if preference(shard_of(n), frozenset(NAMES))[0] == name)


NAMESPACES = tuple(map(owned_by, NAMES))


class SharedServer(PlayedModelServer):
    """A model server of one slot, which a second dispatcher would book again.

    Attributes:
        running: runs in progress; those of cut connections go on.
        most_running: the largest number of them.
    """

    running = 0
    most_running = 0

    async def spend_time(self, rows):
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        ended = asyncio.get_running_loop().call_later(self.run_ms / 1000, self._ended)
        await super().spend_time(rows)
        assert ended

    def _ended(self):
        self.running -= 1


class Replica:
    """A gateway's service and HTTP front on the test's own event loop.

    Attributes:
        is_up: it listens.
    """

    def __init__(self, kubeconfig, host, port, name):
        self.is_up = asyncio.Event()
        self._stop = asyncio.Event()
        self._settings = GatewaySettings(
            host=host, port=port, peers="app=gateway", pod_name=name, pod_namespace="esg"
        )
        self._kubeconfig = kubeconfig
        self._task = asyncio.create_task(self._run())

    async def _run(self):
        async with connect(self._kubeconfig) as api:
            await self._serve(GatewayService(Settings(), self._settings, Watches(api)))

    async def _serve(self, service):
        gateway = self._settings
        async with service.running():
            front = HttpFront(service.backend, forwarded=service.replicas.forwarded)
            listener = listen((gateway.host, gateway.port), "ESG_TEST")
            limits = HttpLimits(drain_s=5.0)
            async with serving_http(
                front, listener, memory=service.memory, limits=limits
            ) as self._connections:
                self.is_up.set()
                await self._stop.wait()
                await service.drain()

    async def end(self):
        """End it as at SIGTERM."""
        self._stop.set()
        await self._task

    async def kill(self):
        """End all of its connections at once; its leases stay."""
        if self._task.done():
            return
        for open_connection in list(self._connections.connections):
            open_connection.abort()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


class Bed:
    """An API server, model servers, and replicas of the gateway.

    Attributes:
        outcomes: by replica: the status of each answer, or None where there was none.
        wrong: answers to another request.
    """

    def __init__(self, store, kubeconfig, client):
        self.store = store
        self.kubeconfig = kubeconfig
        self.client = client
        self.port = free_port()
        self.replicas = {}
        self.servers = {}
        self.outcomes = {name: [] for name in NAMES}
        self.wrong = []
        self._rows = itertools.count()

    async def start(self, name):
        """Start a replica and wait until it answers."""
        host = HOSTS[name]
        replica = self.replicas[name] = Replica(self.kubeconfig, host, self.port, name)
        metadata = {"name": name, "namespace": "esg", "labels": {"app": "gateway"}}
        status = {"podIP": host, "conditions": [{"type": "Ready", "status": "True"}]}
        if ("esg", name) not in self.store.collection(PODS).objects:
            self.store.create(PODS, {"metadata": metadata, "spec": {}, "status": status})
        await replica.is_up.wait()

    async def serve(self, namespace, stack):
        """Create the documents and the pod of a namespace, with its own model server."""
        played = SharedServer(run_ms=30, slots=100)
        await stack.enter_async_context(played.serving())
        self.servers[namespace] = played
        self.store.create(FUNCTION_SERVERS, server(namespace=namespace, port=played.port))
        self.store.create(WORKFLOWS, workflow(namespace=namespace, slo_ms=60_000))
        metadata = {
            "name": "p", "namespace": namespace, "labels": {"app": "f"}, "annotations": grant(),
        }  # fmt: skip
        ready = {"type": "Ready", "status": "True"}
        status = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [ready]}
        container = {"name": "c", "ports": [{"containerPort": played.port}]}
        spec = {"nodeName": "node", "containers": [container]}
        self.store.create(PODS, {"metadata": metadata, "spec": spec, "status": status})

    async def call(self, name, namespace):
        """Send one request through a replica; the row has its own number."""
        row = next(self._rows)
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [row]}
        url = f"http://{HOSTS[name]}:{self.port}/{namespace}/v2/models/w/infer"
        try:
            async with self.client.post(url, json={"inputs": [tensor]}) as answer:
                content = await answer.json(content_type=None)
        except aiohttp.ClientError:
            self.outcomes[name].append(None)
            return None
        self.outcomes[name].append(answer.status)
        if answer.status == 200:
            outputs = {output["name"]: output["data"] for output in content["outputs"]}
            if outputs["y"] != [2 * row]:
                self.wrong.append((row, outputs))
        return answer.status

    async def until_served(self):
        """Wait until each namespace has its preferred owner, and all replicas answer."""
        async with asyncio.timeout(60):
            while not all(  # noqa: ASYNC110 - a change in a store
                self.holder(namespace) == name
                for name, namespace in zip(NAMES, NAMESPACES, strict=True)
            ):
                await asyncio.sleep(0.1)
            for name, namespace in itertools.product(NAMES, NAMESPACES):
                while await self.call(name, namespace) != 200:  # noqa: ASYNC110 - it is remote
                    await asyncio.sleep(0.1)
        for outcomes in self.outcomes.values():
            outcomes.clear()

    def holder(self, namespace):
        """Return the holder of a namespace's Lease."""
        key = "esg", f"esg-gateway-shard-{shard_of(namespace)}"
        lease = self.store.collection(LEASES).objects.get(key)
        return lease and lease["spec"].get("holderIdentity")

    @contextlib.asynccontextmanager
    async def load(self, clients=4):
        """Send requests for all namespaces through all replicas while inside."""
        is_over = asyncio.Event()

        async def client(name, namespace):
            while not is_over.is_set():
                if await self.call(name, namespace) is None:
                    await asyncio.sleep(0.05)

        async with asyncio.TaskGroup() as group:
            for name, namespace in itertools.product(NAMES, NAMESPACES):
                for _ in range(clients):
                    group.create_task(client(name, namespace))
            yield
            is_over.set()

    async def answered_by(self, name, namespace, *, count=20):
        """Wait until a replica has answered further requests."""
        goal = self.outcomes[name].count(200) + count
        async with asyncio.timeout(60):
            while self.outcomes[name].count(200) < goal or self.holder(namespace) != name:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def check(self, survivor):
        """Check that the surviving front lost nothing, and that no slot was booked twice."""
        assert self.wrong == []
        assert set(self.outcomes[survivor]) == {200}
        assert {played.most_running for played in self.servers.values()} == {1}


@pytest.fixture
async def bed(tmp_path, loopback_http):
    store = ObjectStore(KINDS)
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(ApiServer(store).serving())
        write_kubeconfig(tmp_path / "kubeconfig", url)
        client = await stack.enter_async_context(
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
        )
        running = Bed(store, tmp_path / "kubeconfig", client)
        store.create(FUNCTION_PROFILES, to_manifest(profile()))
        for namespace in NAMESPACES:
            await running.serve(namespace, stack)
        for name in NAMES:
            await running.start(name)
        try:
            await running.until_served()
            yield running
        finally:
            for replica in running.replicas.values():
                await replica.kill()


async def test_an_owner_that_is_killed(bed):
    """The other replica takes over; of its own clients' requests none is lost or mixed up."""
    killed, survivor = NAMES
    async with bed.load():
        await bed.answered_by(killed, NAMESPACES[0])
        await bed.replicas[killed].kill()
        await bed.answered_by(survivor, NAMESPACES[0])
    bed.check(survivor)


async def test_an_owner_that_is_terminated(bed):
    """A replica that ends hands over first: every request through the other one is answered."""
    ending, survivor = NAMES
    async with bed.load():
        await bed.answered_by(ending, NAMESPACES[0])
        await bed.replicas[ending].end()
        await bed.answered_by(survivor, NAMESPACES[0])
        await bed.start(ending)
        await bed.answered_by(ending, NAMESPACES[0])
    bed.check(survivor)
    assert bed.holder(NAMESPACES[1]) == survivor
    assert set(bed.outcomes[ending]) <= {200, 503, None}
