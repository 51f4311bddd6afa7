"""The cluster in memory binds as the real one does, and tells the same handlers."""

import asyncio
from pathlib import Path

import pytest
import yaml

from scheduler.cluster.binding import Binding, BindOutcome, BindResult
from scheduler.cluster.embedded import EmbeddedCluster
from scheduler.cluster.events import Reference
from scheduler.cluster.link import Handlers
from scheduler.model.node import node_from_json
from tests.cluster.props import Listener, node, pod, running

SAMPLE_NODES = Path(__file__).parents[2] / "deploy" / "nodes" / "mocked-16x1.yaml"
GRANT = {"esg-scheduler.io/gpu": "GPU-1"}


@pytest.fixture
def nodes() -> Listener:
    return Listener()


@pytest.fixture
def cluster(nodes: Listener, listener: Listener) -> EmbeddedCluster:
    made = EmbeddedCluster([node("n1"), node("n2")], Handlers(nodes=nodes, pods=listener))
    assert nodes.told.get_nowait() == ("replace", ["n1", "n2"])
    assert listener.told.get_nowait() == ("replace", [])
    return made


async def bind_a(cluster: EmbeddedCluster, *, uid: str = "uid-a", node: str = "n1") -> BindResult:
    """Bind pod a."""
    return await cluster.bind(
        Binding(namespace="default", name="a", uid=uid, node=node, annotations=GRANT), timeout_s=1
    )


async def test_bind(cluster: EmbeddedCluster, listener: Listener) -> None:
    """A pod that was shown is bound: node, grant and phase, and the handler is told before."""
    shown = pod("a")
    shown["metadata"]["annotations"] = {"esg-scheduler.io/queued": "3"}
    cluster.upsert_pod(shown)

    result = await bind_a(cluster)

    assert result == BindResult(BindOutcome.BOUND)
    assert [listener.told.get_nowait() for _ in range(2)] == [("upsert", "a"), ("upsert", "a")]
    heard = listener.objects["a"]
    assert heard["spec"]["nodeName"] == "n1"
    assert heard["status"]["phase"] == "Running"
    assert heard["metadata"]["annotations"] == {"esg-scheduler.io/queued": "3", **GRANT}
    assert "nodeName" not in shown["spec"]


async def test_bound_twice(cluster: EmbeddedCluster) -> None:
    """The same node again is ALREADY_BOUND with the pod; another node is refused."""
    cluster.upsert_pod(pod("a"))
    await bind_a(cluster)

    again = await bind_a(cluster)
    elsewhere = await bind_a(cluster, node="n2")

    assert again.outcome is BindOutcome.ALREADY_BOUND
    assert again.pod is not None
    assert again.pod["metadata"]["annotations"] == GRANT
    assert elsewhere.outcome is BindOutcome.REFUSED
    assert elsewhere.message == "the pod is bound to node n1"


async def test_refusals(cluster: EmbeddedCluster) -> None:
    """Another UID, a pod that was not shown and a node that is not there are refused."""
    unknown = await bind_a(cluster)
    cluster.upsert_pod(pod("a"))
    heir = await bind_a(cluster, uid="heir")
    nowhere = await bind_a(cluster, node="n9")

    assert {unknown.outcome, heir.outcome, nowhere.outcome} == {BindOutcome.REFUSED}
    assert "not known here" in unknown.message
    assert "another of its name" in heir.message
    assert nowhere.message == "node n9 is not known here"


async def test_a_bound_pod_is_shown_again(cluster: EmbeddedCluster, listener: Listener) -> None:
    """Who shows a bound pod as pending has not heard of it yet: the pod stays bound."""
    cluster.upsert_pod(pod("a"))
    await bind_a(cluster)
    cluster.upsert_pod(pod("a"))

    assert listener.objects["a"]["spec"]["nodeName"] == "n1"


async def test_recreated(cluster: EmbeddedCluster, listener: Listener) -> None:
    """A pod of the same name and another UID takes the place of the first, which is deleted."""
    cluster.upsert_pod(pod("a"))
    await bind_a(cluster)
    cluster.upsert_pod(pod("a", uid="heir"))

    told = [listener.told.get_nowait()[0] for _ in range(4)]
    assert told == ["upsert", "upsert", "delete", "upsert"]
    assert "nodeName" not in listener.objects["a"]["spec"]


async def test_shown_bound(cluster: EmbeddedCluster) -> None:
    """A pod that is shown with a node is bound already."""
    cluster.upsert_pod(pod("a"))
    cluster.upsert_pod(pod("a", nodeName="n2"))

    assert (await bind_a(cluster)).outcome is BindOutcome.REFUSED


async def test_the_pending_are_bounded(nodes: Listener, listener: Listener) -> None:
    """Of pods that are never bound the one shown longest ago is forgotten first."""
    cluster = EmbeddedCluster([node("n1")], Handlers(nodes=nodes, pods=listener), pending_max=2)
    for name in ("a", "b", "a", "c"):
        cluster.upsert_pod(pod(name))

    assert sorted(listener.objects) == ["a", "c"]
    assert await cluster.get_pod("default", "b") is None


async def test_the_end_of_a_pod(cluster: EmbeddedCluster, listener: Listener) -> None:
    """A pod ends with a phase and is there until it is deleted."""
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


async def test_a_pod_of_little(cluster: EmbeddedCluster, listener: Listener) -> None:
    """A pod without namespace, uid and status is in the namespace default, and can be bound."""
    cluster.upsert_pod({"metadata": {"name": "a"}})

    result = await bind_a(cluster, uid="")

    assert result.outcome is BindOutcome.BOUND
    assert listener.objects["a"]["metadata"]["namespace"] == "default"


async def test_the_link(cluster: EmbeddedCluster) -> None:
    """It is synced, never stale or in trouble, takes events, and runs until cancelled."""
    cluster.record_event(Reference.node("n1"), type="Normal", reason="R", message="m")
    async with running(cluster):
        await asyncio.sleep(0)

    assert cluster.synced()
    assert cluster.staleness_s() == {"nodes": 0.0, "pods": 0.0}
    assert cluster.troubles() == {}


async def test_the_sample_nodes(nodes: Listener, listener: Listener) -> None:
    """The Node documents in deploy/nodes make a cluster whose GPUs the model can read."""
    documents = list(yaml.safe_load_all(SAMPLE_NODES.read_text(encoding="utf-8")))

    EmbeddedCluster(documents, Handlers(nodes=nodes, pods=listener))

    read = [node_from_json(each) for each in nodes.objects.values()]
    assert len(read) == 16
    assert {len(each.gpus) for each in read} == {1}
