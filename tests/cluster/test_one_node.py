"""One node and its pods: the reports to its agent, and the agent's writes."""

import pytest
from aiohttp import web

from scheduler.cluster.api import Raw
from scheduler.cluster.errors import ApiError, ClusterConfigError
from scheduler.cluster.one_node import OneNode
from scheduler.cluster.resource import NODES, PODS
from tests.cluster.api_server import refuse
from tests.cluster.factories import node, pod
from tests.cluster.fakes import Listener
from tests.waiting import running, until

RESOURCE = "esg-scheduler.io/gpu-percent"


@pytest.fixture
def handlers():
    return {"node": Listener(), "pods": Listener()}


@pytest.fixture
async def link(api, handlers):
    one_node = OneNode(api, "gpu-1", **handlers)
    async with running(one_node):
        yield one_node


async def test_only_its_own_node_and_pods_are_reported(server, api, handlers):
    """Lists and watches select the node by its name and the pods by their node."""
    server.put(NODES, node("gpu-1"))
    server.put(PODS, pod("a", nodeName="gpu-1"))
    link = OneNode(api, "gpu-1", **handlers)
    assert not link.synced()
    async with running(link):
        await server.watched(NODES)
        await server.watched(PODS)
    assert (await handlers["node"].next(), await handlers["pods"].next()) == (
        ("replace", ["gpu-1"]),
        ("replace", ["a"]),
    )
    assert link.synced()
    assert link.troubles() == {}
    for resource, selector in ((NODES, "metadata.name=gpu-1"), (PODS, "spec.nodeName=gpu-1")):
        requests = [*server.list_requests(resource), *server.watch_requests(resource)]
        assert [request.query["fieldSelector"] for request in requests] == [selector] * 2


async def test_annotation_is_merged(server, link):
    """One write changes the node's metadata and returns the updated node."""
    server.fault("PATCH", "nodes/gpu-1", stored)
    after = await link.annotate({"esg-scheduler.io/gpus": "[]"})
    [write] = server.seen("PATCH", "nodes/gpu-1")
    assert write.body == {"metadata": {"annotations": {"esg-scheduler.io/gpus": "[]"}}}
    assert write.headers["Content-Type"] == "application/merge-patch+json"
    assert after["metadata"]["annotations"] == {"esg-scheduler.io/gpus": "[]"}


async def test_capacity_and_allocatable_are_set_together(server, link):
    """One write to the status: nothing is scheduled by the old amount meanwhile."""
    server.fault("PATCH", "nodes/gpu-1/status", stored)
    after = await link.set_capacity(RESOURCE, 800)
    [write] = server.seen("PATCH", "nodes/gpu-1/status")
    amounts = {RESOURCE: "800"}
    assert write.body == {"status": {"capacity": amounts, "allocatable": amounts}}
    assert after["status"] == {"capacity": amounts, "allocatable": amounts}


async def test_refusal_is_raised(server, link):
    """The error has the server's message."""
    server.fault("PATCH", "nodes/gpu-1", refuse(403, "Forbidden", "User x cannot patch"))
    with pytest.raises(ApiError, match="User x cannot patch"):
        await link.annotate({"a": "b"})


async def test_events_refer_to_the_node(server, link):
    """`kubectl describe node` finds them."""
    link.record_event(type="Warning", reason="GPUUnhealthy", message="GPU 3 is unhealthy")
    await server.until(lambda: server.seen("POST", "/events") != [])
    await until(lambda: server.events)
    [event] = server.events
    assert event["involvedObject"] == {
        "apiVersion": "v1", "kind": "Node", "name": "gpu-1", "uid": "gpu-1",
    }  # fmt: skip
    assert event["message"] == "GPU 3 is unhealthy"


async def test_troubles_name_the_resource(server, api, handlers):
    """The key is the failing resource."""
    server.fault("GET", "nodes", refuse(403, "Forbidden", "User x cannot list"), times=50)
    link = OneNode(api, "gpu-1", **handlers)
    async with running(link):
        await until(lambda: "nodes" in link.troubles())
        assert "may not list nodes" in link.troubles()["nodes"]


@pytest.mark.parametrize("name", ["", "Node", "a b", "../pods", "a/b", "-a"])
def test_invalid_node_name_is_refused(api, handlers, name):
    """It would become part of a path or of a selector."""
    with pytest.raises(ClusterConfigError, match="invalid node name: "):
        OneNode(api, name, **handlers)


async def stored(request):
    """Answer with the node after the merge."""
    change: Raw = await request.json()
    after = {"metadata": {"name": "gpu-1", **change.get("metadata", {})}}
    return web.json_response(after | {"status": change.get("status", {})})
