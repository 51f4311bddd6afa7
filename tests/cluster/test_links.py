"""A live cluster behind one face: four reflectors, binds, events, and what is wrong with each."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from scheduler.cluster.api import Api
from scheduler.cluster.binding import Binding, BindOutcome
from scheduler.cluster.embedded import EmbeddedCluster
from scheduler.cluster.errors import ApiTimeoutError
from scheduler.cluster.events import Reference
from scheduler.cluster.link import ClusterLink, Handlers, LiveCluster
from scheduler.cluster.resource import FUNCTION_PROFILES, NODES, PODS, WORKFLOWS, Resource
from tests.cluster.api_server import ApiServer, hang, refuse
from tests.cluster.props import Listener, node, pod, running, until

if TYPE_CHECKING:
    # Both have the face that the service is written for; the type checker reads this.
    def _faces(live: LiveCluster, embedded: EmbeddedCluster) -> tuple[ClusterLink, ClusterLink]:
        return live, embedded


async def test_all_four(server: ApiServer, api: Api) -> None:
    """Each kind has its handler, and the cluster is synced when all have had their first list."""
    server.put(NODES, node("n1"))
    server.put(PODS, pod("a"))
    server.put(WORKFLOWS, {"metadata": {"name": "w", "namespace": "default"}, "spec": {}})
    listeners = [Listener() for _ in range(4)]
    cluster = LiveCluster(api, Handlers(*listeners))
    assert not cluster.synced()

    async with running(cluster):
        await until(cluster.synced)

    assert [sorted(listener.objects) for listener in listeners] == [["n1"], ["a"], ["w"], []]
    assert set(cluster.staleness_s()) == {"nodes", "pods", "workflows", "functionprofiles"}
    assert cluster.troubles() == {}


async def test_documents_from_elsewhere(server: ApiServer, api: Api) -> None:
    """Without handlers for the documents their CRDs are never asked for."""
    cluster = LiveCluster(api, Handlers(nodes=Listener(), pods=Listener()))
    async with running(cluster):
        await until(cluster.synced)

    assert {seen.path for seen in server.requests} == {NODES.path, PODS.path}


async def test_one_is_in_trouble(server: ApiServer, api: Api) -> None:
    """Trouble with one kind is told under its name; the cluster is not synced.

    If it is the documents', no pod is listed before, and it is told all the same.
    """
    server.fault("GET", WORKFLOWS.path, refuse(404, "NotFound", "no"), times=1000)
    cluster = LiveCluster(api, Handlers(*(Listener() for _ in range(4))))
    async with running(cluster):
        await until(lambda: bool(cluster.troubles()))

    assert list(cluster.troubles()) == ["workflows"]
    assert not cluster.synced()
    assert server.seen("GET", PODS.path) == []


@pytest.mark.parametrize("late", [WORKFLOWS, FUNCTION_PROFILES])
async def test_documents_come_before_pods(server: ApiServer, api: Api, late: Resource) -> None:
    """What a pod runs is known when it is first seen, however late the documents come."""
    server.put(PODS, pod("a"))
    go_on = asyncio.Event()

    async def wait(_request: object) -> None:
        await go_on.wait()

    server.fault("GET", late.path, wait)
    pods = Listener()
    cluster = LiveCluster(api, Handlers(Listener(), pods, Listener(), Listener()))
    async with running(cluster):
        for early in {NODES, WORKFLOWS, FUNCTION_PROFILES} - {late}:
            await server.watched(early)
        before = server.seen("GET", PODS.path)
        go_on.set()
        told = await pods.next()
        await until(cluster.synced)

    assert before == []
    assert told == ("replace", ["a"])


async def test_writes(server: ApiServer, api: Api) -> None:
    """It binds, reads pods and writes events."""
    server.put(PODS, pod("a"))
    cluster = LiveCluster(api, Handlers(nodes=Listener(), pods=Listener()))
    async with running(cluster):
        result = await cluster.bind(
            Binding(
                namespace="default",
                name="a",
                uid="uid-a",
                node="n1",
                annotations={"esg-scheduler.io/gpu": "GPU-1"},
            ),
            timeout_s=2,
        )
        bound = await cluster.get_pod("default", "a")
        cluster.record_event(
            Reference.pod("default", "a", "uid-a"), type="Normal", reason="R", message="m"
        )
        await until(lambda: len(server.events) == 1)

    assert result.outcome is BindOutcome.BOUND
    assert bound is not None
    assert bound["spec"]["nodeName"] == "n1"


async def test_a_read_has_a_limit(server: ApiServer, api: Api) -> None:
    """A pod is waited for no longer than the caller allows."""
    server.fault("GET", "pods/a", hang)
    cluster = LiveCluster(api, Handlers(nodes=Listener(), pods=Listener()))

    with pytest.raises(ApiTimeoutError):
        await cluster.get_pod("default", "a", timeout_s=0.05)
