"""Replicas of the gateway as processes: one is killed under load, and the other takes over."""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest

from scheduler.gateway.replicas.shards import shard_of
from tests.e2e.documents import configuration, documents_in, profile, workflow
from tests.e2e.gateway_process import RBAC, gateway, running
from tests.e2e.harness import PODS, Harness
from tests.e2e.played_models import server_of
from tests.e2e.pod_recorder import recorded_pods
from tests.e2e.test_gateway_access import account, rights, token_of
from tests.e2e.test_pods_from_demand import player
from tests.testbed.api import apply_all, wait_until
from tests.testbed.numbered_load import NumberedLoad, until_answered
from tests.testbed.processes import Process
from workbench.cluster.process import free_port

NAMES = ("gateway-0", "gateway-1")
LEASE = (
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/"
    f"esg-gateway-shard-{shard_of('default')}"
)
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
        token = token_of(harness.plane, "caller")
        headers = {"Authorization": f"Bearer {token}"}
        load = NumberedLoad(started.values(), headers=headers, context=context)
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
        outcomes = load.outcomes
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
