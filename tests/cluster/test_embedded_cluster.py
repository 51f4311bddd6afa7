"""The in-memory cluster binds like the real one, and reports to the same handlers."""

import asyncio
from pathlib import Path

import pytest
import yaml

from scheduler.cluster.binding import Binding, BindOutcome, BindResult
from scheduler.cluster.embedded import EmbeddedCluster
from scheduler.cluster.events import Reference
from scheduler.cluster.link import Handlers
from scheduler.model.node import node_from_json
from tests.cluster.factories import node, pod
from tests.cluster.fakes import Listener
from tests.waiting import running

SAMPLE_NODES = Path(__file__).parents[2] / "deploy" / "nodes" / "mocked-16x1.yaml"
GRANT = {"esg-scheduler.io/gpu": "GPU-1"}


@pytest.fixture
def nodes():
    return Listener()


@pytest.fixture
def cluster(nodes, listener):
    embedded = EmbeddedCluster([node("n1"), node("n2")], Handlers(nodes=nodes, pods=listener))
    assert nodes.reports.get_nowait() == ("replace", ["n1", "n2"])
    assert listener.reports.get_nowait() == ("replace", [])
    return embedded


async def bind_a(cluster, *, uid="uid-a", node="n1"):
    """Bind pod a."""
    return await cluster.bind(
        Binding(namespace="default", name="a", uid=uid, node=node, annotations=GRANT), timeout_s=1
    )


async def test_bind(cluster, listener):
    """Binding a known pod sets node, grant and phase; the handler runs before the call returns."""
    shown = pod("a")
    shown["metadata"]["annotations"] = {"esg-scheduler.io/queued": "3"}
    cluster.upsert_pod(shown)

    result = await bind_a(cluster)

    assert result == BindResult(BindOutcome.BOUND)
    assert [listener.reports.get_nowait() for _ in range(2)] == [("upsert", "a"), ("upsert", "a")]
    reported = listener.objects["a"]
    assert reported["spec"]["nodeName"] == "n1"
    assert reported["status"]["phase"] == "Running"
    assert reported["metadata"]["annotations"] == {"esg-scheduler.io/queued": "3", **GRANT}
    assert "nodeName" not in shown["spec"]


async def test_bound_twice(cluster):
    """A second bind to the same node is ALREADY_BOUND with the pod; to another node, refused."""
    cluster.upsert_pod(pod("a"))
    await bind_a(cluster)

    again = await bind_a(cluster)
    elsewhere = await bind_a(cluster, node="n2")

    assert again.outcome is BindOutcome.ALREADY_BOUND
    assert again.pod is not None
    assert again.pod["metadata"]["annotations"] == GRANT
    assert elsewhere.outcome is BindOutcome.REFUSED
    assert elsewhere.message == "the pod is bound to node n1"


async def test_refusals(cluster):
    """Another UID, an unknown pod and an unknown node are refused."""
    unknown = await bind_a(cluster)
    cluster.upsert_pod(pod("a"))
    recreated = await bind_a(cluster, uid="recreated")
    nowhere = await bind_a(cluster, node="n9")

    assert {unknown.outcome, recreated.outcome, nowhere.outcome} == {BindOutcome.REFUSED}
    assert "unknown pod: default/a" in unknown.message
    assert recreated.message == "the pod was recreated with another UID"
    assert nowhere.message == "unknown node: n9"


async def test_bound_pod_is_shown_again(cluster, listener):
    """A client with an older view shows the pod as pending: it stays bound."""
    cluster.upsert_pod(pod("a"))
    await bind_a(cluster)
    cluster.upsert_pod(pod("a"))

    assert listener.objects["a"]["spec"]["nodeName"] == "n1"


async def test_recreated(cluster, listener):
    """A pod of the same name and another UID replaces the first, which is deleted."""
    cluster.upsert_pod(pod("a"))
    await bind_a(cluster)
    cluster.upsert_pod(pod("a", uid="recreated"))

    verbs = [listener.reports.get_nowait()[0] for _ in range(4)]
    assert verbs == ["upsert", "upsert", "delete", "upsert"]
    assert "nodeName" not in listener.objects["a"]["spec"]


async def test_shown_bound(cluster):
    """A pod with a node is bound already."""
    cluster.upsert_pod(pod("a"))
    cluster.upsert_pod(pod("a", nodeName="n2"))

    assert (await bind_a(cluster)).outcome is BindOutcome.REFUSED


async def test_number_of_pending_pods_is_bounded(nodes, listener):
    """The pending pod that was shown longest ago is deleted first."""
    cluster = EmbeddedCluster([node("n1")], Handlers(nodes=nodes, pods=listener), pending_max=2)
    for name in ("a", "b", "a", "c"):
        cluster.upsert_pod(pod(name))

    assert sorted(listener.objects) == ["a", "c"]
    assert await cluster.get_pod("default", "b") is None


async def test_end_of_a_pod(cluster, listener):
    """A pod ends with a phase and exists until it is deleted."""
    cluster.upsert_pod(pod("a"))
    await bind_a(cluster)

    cluster.finish_pod("default", "a")
    ended = await cluster.get_pod("default", "a")
    cluster.delete_pod("default", "a")
    cluster.delete_pod("default", "a")

    assert ended is not None
    assert ended["status"]["phase"] == "Succeeded"
    assert listener.objects == {}
    with pytest.raises(KeyError):
        cluster.finish_pod("default", "a")


async def test_minimal_pod(cluster, listener):
    """A pod without namespace, uid and status is in the namespace default, and can be bound."""
    cluster.upsert_pod({"metadata": {"name": "a"}})

    result = await bind_a(cluster, uid="")

    assert result.outcome is BindOutcome.BOUND
    assert listener.objects["a"]["metadata"]["namespace"] == "default"


async def test_link(cluster):
    """It is synced, never stale or in trouble, accepts events, and runs until cancelled."""
    cluster.record_event(Reference.node("n1"), type="Normal", reason="R", message="m")
    async with running(cluster):
        await asyncio.sleep(0)

    assert cluster.synced()
    assert cluster.staleness_s() == {"nodes": 0.0, "pods": 0.0}
    assert cluster.troubles() == {}


async def test_sample_nodes(nodes, listener):
    """The model can read the GPUs of the Node documents in deploy/nodes."""
    documents = list(yaml.safe_load_all(SAMPLE_NODES.read_text(encoding="utf-8")))

    EmbeddedCluster(documents, Handlers(nodes=nodes, pods=listener))

    parsed = [node_from_json(raw) for raw in nodes.objects.values()]
    assert len(parsed) == 16
    assert {len(item.gpus) for item in parsed} == {1}
