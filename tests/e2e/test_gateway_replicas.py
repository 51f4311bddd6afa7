"""Replicas of the gateway as processes: one is killed under load, and the other takes over."""

import asyncio
import itertools
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest

from scheduler.gateway.replicas.shards import shard_of
from tests.e2e.documents import configuration, documents_in, profile, workflow
from tests.e2e.gateway_process import RBAC, gateway, running
from tests.e2e.harness import PODS, Harness
from tests.e2e.played_models import server_of
from tests.e2e.pod_recorder import recorded_pods
from tests.e2e.test_gateway_access import account, rights, token_of
from tests.e2e.test_pods_from_demand import player
from tests.testbed.api import Json, apply_all, wait_until
from tests.testbed.processes import Process
from workbench.cluster.process import free_port

NAMES = ("gateway-0", "gateway-1")
LEASE = (
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/"
    f"esg-gateway-shard-{shard_of('default')}"
)
CLIENTS = 4
AFTERWARDS = 100  # answers
SIGNS = ("Traceback", "RBAC:", "may not create pods")


@dataclass
class Replica:
    """One process, with a pod of its name and address."""

    process: Process
    url: str
    health_url: str
    outcomes: list[int | None] = field(default_factory=list)  # statuses; None: no answer


@pytest.fixture
def harness(esg: Callable[..., Harness]) -> Harness:
    """Two nodes, and a workflow of one function with two pods."""
    documents = [profile("f", configuration(50, latency_ms=30)), workflow("w", "f")]
    harness = esg(nodes=2, gpus=1, documents=documents)
    apply_all(harness.api, [*documents_in(RBAC), account("caller"), *rights("caller", "w")])
    return harness


@contextmanager
def replicas(
    harness: Harness, context: ssl.SSLContext, *, share: str
) -> Iterator[dict[str, Replica]]:
    """Run replicas with TLS that check tokens, each at the address of a pod that KWOK runs."""
    certificate = harness.plane.server_certificate("gateway", ("gateway",))
    context.load_verify_locations(harness.plane.ca)
    port, started = free_port(), {}
    with ExitStack() as stack:
        for name in NAMES:
            host = address(harness, name)
            health_port = free_port()
            environment = {
                "ESG_GATEWAY_HOST": host,
                "ESG_HEALTH_PORT": str(health_port),
                "ESG_HEALTH_HOST": "127.0.0.1",
                "ESG_GATEWAY_ACCESS": "true",
                "ESG_GATEWAY_SHARE": share,
                "ESG_GATEWAY_HOLDER_IMAGE": "none",
                "ESG_GATEWAY_PEERS": "app=gateway",
                "ESG_GATEWAY_POD_NAME": name,
                "ESG_GATEWAY_POD_NAMESPACE": "default",
                "ESG_GATEWAY_TLS_CERT": str(certificate.certificate),
                "ESG_GATEWAY_TLS_KEY": str(certificate.key),
            }
            process = gateway(harness.plane, port, name=name, environment=environment)
            health_url = f"http://127.0.0.1:{health_port}"
            stack.enter_context(running(process, f"{health_url}/readyz"))
            started[name] = Replica(process, f"https://{host}:{port}", health_url)
        yield started


def address(harness: Harness, name: str) -> str:
    """Create the pod of a replica; return its address."""
    harness.api.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "gateway"}},
            "spec": {
                "nodeName": "node-000",
                "containers": [{"name": "gateway", "image": "none"}],
            },
        }
    )
    wait_until(lambda: harness.pod(name)["status"].get("podIP"), what=f"{name} has an address")
    host: str = harness.pod(name)["status"]["podIP"]
    return host


def holder(harness: Harness) -> str:
    """Return the owner of namespace `default`; empty without one."""
    if not harness.api.exists(LEASE):
        return ""
    return str(harness.api.get(LEASE)["spec"].get("holderIdentity") or "")


class Load:
    """Requests through all replicas; each carries its own number.

    Attributes:
        sent: number of requests.
        wrong: answers to another request.
    """

    def __init__(self, started: dict[str, Replica], context: ssl.SSLContext, token: str) -> None:
        self._replicas = started
        self._headers = {"Authorization": f"Bearer {token}"}
        self._context = context
        self._is_over = asyncio.Event()
        self._numbers = itertools.count()
        self.sent = 0
        self.wrong: list[Json] = []

    async def run(self, steps: Callable[[], None]) -> None:
        """Send requests until steps, which run in a thread, are done."""
        connector = aiohttp.TCPConnector(ssl=self._context)
        timeout = aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=self._headers
        ) as http:
            clients = [
                asyncio.create_task(self._client(http, replica))
                for replica in self._replicas.values()
                for _ in range(CLIENTS)
            ]
            try:
                await asyncio.to_thread(steps)
            finally:
                self._is_over.set()
                await asyncio.gather(*clients)

    async def _client(self, http: aiohttp.ClientSession, replica: Replica) -> None:
        while not self._is_over.is_set():
            self.sent += 1
            status = await self._call(http, replica)
            replica.outcomes.append(status)
            if status is None:
                await asyncio.sleep(0.1)

    async def _call(self, http: aiohttp.ClientSession, replica: Replica) -> int | None:
        number = next(self._numbers)
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [number]}
        url = f"{replica.url}/v2/models/w/infer"
        try:
            async with http.post(url, json={"inputs": [tensor]}) as answer:
                content = await answer.json(content_type=None)
        except aiohttp.ClientError:
            return None
        if answer.status == 200:
            outputs = {output["name"]: output["data"] for output in content["outputs"]}
            if outputs["y"] != [2 * number]:
                self.wrong.append(content)
        return answer.status


@pytest.mark.parametrize("share", ["reserved", "pooled"])
def test_an_owner_that_is_killed(harness, capsys, share):
    """Every request is answered or reported as lost, and no pod is created twice.

    What the survivor's clients sent is answered. The time of the take-over is printed.
    """
    model_port = free_port()
    context = ssl.create_default_context()
    context.check_hostname = False  # replicas have the addresses of pods
    with ExitStack() as stack:
        stack.enter_context(
            running(
                player(harness.plane, model_port),
                f"http://127.0.0.1:{model_port}/v2/models/f/ready",
            )
        )
        harness.api.apply(server_of("f", model_port, minPods=2, maxPods=2))
        seen = stack.enter_context(recorded_pods(harness.plane))
        started = stack.enter_context(replicas(harness, context, share=share))
        wait_until(lambda: len(pool(harness)) == 2, what="the function has its pods")
        wait_until(lambda: holder(harness) in NAMES, what="the namespace has an owner")
        load = Load(started, context, token_of(harness.plane, "caller"))
        took_s: list[float] = []
        slices: set[str] = set()

        def steps() -> None:
            until_answered(started.values())
            slices.update(holders(harness))
            killed = holder(harness)
            [survivor] = (replica for name, replica in started.items() if name != killed)
            started[killed].process.kill()
            began_s = time.monotonic()
            wait_until(lambda: holder(harness) not in {"", killed}, what="there is a new owner")
            until_answered([survivor], count=1)
            took_s.append(time.monotonic() - began_s)
            until_answered([survivor])
            assert set(survivor.outcomes) == {200}

        asyncio.run(load.run(steps))
        outcomes = [status for replica in started.values() for status in replica.outcomes]
        lost = outcomes.count(None)
        with capsys.disabled():
            print(f"\n{load.sent} requests, {lost} lost; taken over after {took_s[0]:.1f} s")  # noqa: T201
        assert len(outcomes) == load.sent
        assert set(outcomes) <= {200, None}
        assert load.wrong == []
        names = {seen_pod.name for seen_pod in seen if "gateway-pool" in seen_pod.labels}
        assert names == pool(harness)
        assert len(names) == 2
        assert bool(slices) == (share == "pooled")
        assert slices <= holders(harness)
        for replica in started.values():
            log = replica.process.log.read_text(encoding="utf-8", errors="replace")
            assert [line for line in log.splitlines() if any(sign in line for sign in SIGNS)] == []


def holders(harness: Harness) -> set[str]:
    """Return the names of the pods that hold slices."""
    pods = harness.api.items(PODS, labelSelector="esg-scheduler.io/pool=holder")
    return {pod["metadata"]["name"] for pod in pods}


def pool(harness: Harness) -> set[str]:
    """Return the names of the function's pods."""
    pods = harness.api.items(PODS, labelSelector="esg-scheduler.io/gateway-pool=f")
    return {pod["metadata"]["name"] for pod in pods}


def until_answered(some, *, count: int = AFTERWARDS) -> None:
    """Wait until each of these replicas has answered further requests."""
    goals = [(replica, replica.outcomes.count(200) + count) for replica in some]
    for replica, goal in goals:
        wait_until(
            lambda replica=replica, goal=goal: replica.outcomes.count(200) >= goal,
            what=f"{replica.url} has answered",
        )
