"""One node and its pods, as that node's agent hears of them and writes to it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.errors import ApiError, ClusterConfigError
from scheduler.cluster.one_node import OneNode
from scheduler.cluster.resource import NODES, PODS
from tests.cluster.api_server import ApiServer, refuse
from tests.cluster.props import Listener, node, pod, running, until

RESOURCE = "esg-scheduler.io/gpu-percent"


@pytest.fixture
def heard() -> dict[str, Listener]:
    return {"node": Listener(), "pods": Listener()}


@pytest.fixture
async def link(api: Api, heard: dict[str, Listener]) -> AsyncIterator[OneNode]:
    made = OneNode(api, "gpu-1", **heard)
    async with running(made):
        yield made


async def test_it_hears_of_its_own_alone(server: ApiServer, api: Api, heard: Any) -> None:
    """Lists and watches select the node by its name and the pods by where they are bound."""
    server.put(NODES, node("gpu-1"))
    server.put(PODS, pod("a"))
    link = OneNode(api, "gpu-1", **heard)
    assert not link.synced()
    async with running(link):
        await server.watched(NODES)
        await server.watched(PODS)
    assert (await heard["node"].next(), await heard["pods"].next()) == (
        ("replace", ["gpu-1"]),
        ("replace", ["a"]),
    )
    assert link.synced()
    assert link.troubles() == {}
    for resource, selector in ((NODES, "metadata.name=gpu-1"), (PODS, "spec.nodeName=gpu-1")):
        asked = [*server.list_requests(resource), *server.watch_requests(resource)]
        assert [request.query["fieldSelector"] for request in asked] == [selector] * 2


async def test_an_annotation_is_merged(server: ApiServer, link: OneNode) -> None:
    """One write to the node's metadata; what comes back is the node as it is then."""
    server.fault("PATCH", "nodes/gpu-1", stored)
    after = await link.annotate({"esg-scheduler.io/gpus": "[]"})
    [write] = server.seen("PATCH", "nodes/gpu-1")
    assert write.body == {"metadata": {"annotations": {"esg-scheduler.io/gpus": "[]"}}}
    assert write.headers["Content-Type"] == "application/merge-patch+json"
    assert after["metadata"]["annotations"] == {"esg-scheduler.io/gpus": "[]"}


async def test_capacity_is_set_with_what_is_allocatable(server: ApiServer, link: OneNode) -> None:
    """In the status, both at once: nobody schedules by the old amount until a kubelet looks."""
    server.fault("PATCH", "nodes/gpu-1/status", stored)
    after = await link.set_capacity(RESOURCE, 800)
    [write] = server.seen("PATCH", "nodes/gpu-1/status")
    has = {RESOURCE: "800"}
    assert write.body == {"status": {"capacity": has, "allocatable": has}}
    assert after["status"] == {"capacity": has, "allocatable": has}


async def test_a_refusal_is_told(server: ApiServer, link: OneNode) -> None:
    """As the server words it."""
    server.fault("PATCH", "nodes/gpu-1", refuse(403, "Forbidden", "User x cannot patch"))
    with pytest.raises(ApiError, match="User x cannot patch"):
        await link.annotate({"a": "b"})


async def test_events_are_of_the_node(server: ApiServer, link: OneNode) -> None:
    """Where `kubectl describe node` looks for them."""
    link.record_event(type="Warning", reason="GPUUnhealthy", message="GPU 3 is ill")
    await server.until(lambda: server.seen("POST", "/events") != [])
    await until(lambda: server.events != {})
    [event] = server.events.values()
    assert event["involvedObject"] == {
        "apiVersion": "v1", "kind": "Node", "name": "gpu-1", "uid": "gpu-1",
    }  # fmt: skip
    assert event["message"] == "GPU 3 is ill"


async def test_troubles_are_named(server: ApiServer, api: Api, heard: Any) -> None:
    """By the resource that is in trouble."""
    server.fault("GET", "nodes", refuse(403, "Forbidden", "User x cannot list"), times=50)
    link = OneNode(api, "gpu-1", **heard)
    async with running(link):
        await until(lambda: "nodes" in link.troubles())
        assert "may not list nodes" in link.troubles()["nodes"]


@pytest.mark.parametrize("name", ["", "Node", "a b", "../pods", "a/b", "-a"])
def test_a_name_that_no_node_has_is_refused(api: Api, heard: Any, name: str) -> None:
    """It would be a part of a path, or of a selector."""
    with pytest.raises(ClusterConfigError, match="cannot be the name of a node"):
        OneNode(api, name, **heard)


async def stored(request: web.Request) -> web.Response:
    """The node after a merge."""
    change: Raw = await request.json()
    after = {"metadata": {"name": "gpu-1", **change.get("metadata", {})}}
    return web.json_response(after | {"status": change.get("status", {})})
