"""A live cluster behind its interface: four reflectors, binds, events, and their troubles."""

import asyncio

import pytest

from scheduler.cluster.binding import Binding, BindOutcome
from scheduler.cluster.errors import ApiTimeoutError
from scheduler.cluster.events import Reference
from scheduler.cluster.link import Handlers, LiveCluster
from scheduler.cluster.resource import FUNCTION_PROFILES, NODES, PODS, WORKFLOWS
from tests.cluster.api_server import hang, refuse
from tests.cluster.factories import node, pod
from tests.cluster.fakes import Listener
from tests.waiting import running, until


def followed(api, handlers):
    """Return a cluster that reports to these handlers."""
    cluster = LiveCluster(api)
    cluster.follow(handlers)
    return cluster


async def test_all_four(server, api):
    """Each kind has its handler, and the cluster is synced after the first list of all."""
    server.put(NODES, node("n1"))
    server.put(PODS, pod("a"))
    server.put(WORKFLOWS, {"metadata": {"name": "w", "namespace": "default"}, "spec": {}})
    listeners = [Listener() for _ in range(4)]
    cluster = followed(api, Handlers(*listeners))
    assert not cluster.synced()

    async with running(cluster):
        await until(cluster.synced)

    assert [sorted(listener.objects) for listener in listeners] == [["n1"], ["a"], ["w"], []]
    assert set(cluster.staleness_s()) == {"nodes", "pods", "workflows", "functionprofiles"}
    assert cluster.troubles() == {}


async def test_documents_from_elsewhere(server, api):
    """Without handlers for the documents, they are not listed."""
    cluster = followed(api, Handlers(nodes=Listener(), pods=Listener()))
    async with running(cluster):
        await until(cluster.synced)

    assert {seen.path for seen in server.requests} == {NODES.path, PODS.path}


async def test_one_is_in_trouble(server, api):
    """The trouble of one kind has its name; the cluster is not synced.

    While documents cannot be listed, no pod is, and the trouble is reported all the same.
    """
    server.fault("GET", WORKFLOWS.path, refuse(404, "NotFound", "no"), times=1000)
    cluster = followed(api, Handlers(*(Listener() for _ in range(4))))
    async with running(cluster):
        await until(lambda: bool(cluster.troubles()))

    assert list(cluster.troubles()) == ["workflows"]
    assert not cluster.synced()
    assert server.seen("GET", PODS.path) == []


@pytest.mark.parametrize("late", [WORKFLOWS, FUNCTION_PROFILES])
async def test_documents_come_before_pods(server, api, late):
    """The documents are known before the first pod, however late they are."""
    server.put(PODS, pod("a"))
    go_on = asyncio.Event()

    async def wait(_request):
        await go_on.wait()

    server.fault("GET", late.path, wait)
    pods = Listener()
    cluster = followed(api, Handlers(Listener(), pods, Listener(), Listener()))
    async with running(cluster):
        for early in {NODES, WORKFLOWS, FUNCTION_PROFILES} - {late}:
            await server.watched(early)
        before = server.seen("GET", PODS.path)
        go_on.set()
        report = await pods.next()
        await until(cluster.synced)

    assert before == []
    assert report == ("replace", ["a"])


async def test_writes(server, api):
    """It binds, reads pods and writes events."""
    server.put(PODS, pod("a"))
    cluster = followed(api, Handlers(nodes=Listener(), pods=Listener()))
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


async def test_a_read_has_a_limit(server, api):
    """A pod is waited for no longer than the caller allows."""
    server.fault("GET", "pods/a", hang)
    cluster = followed(api, Handlers(nodes=Listener(), pods=Listener()))

    with pytest.raises(ApiTimeoutError):
        await cluster.get_pod("default", "a", timeout_s=0.05)
