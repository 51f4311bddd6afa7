"""Creation and deletion of pods."""

import pytest

from scheduler.cluster.errors import ApiError
from scheduler.cluster.pods import PodWriter
from scheduler.cluster.resource import PODS
from tests.cluster.api_server import refuse
from tests.cluster.factories import pod


def names(server):
    """Return the names of all pods."""
    return [pod["metadata"]["name"] for pod in server.pods]


async def test_a_pod_is_created_once(server, api):
    """A second creation with the name is refused as AlreadyExists."""
    writer = PodWriter(api)
    await writer.create("default", pod("a"))
    with pytest.raises(ApiError) as caught:
        await writer.create("default", pod("a"))
    assert (caught.value.status, caught.value.reason) == (409, "AlreadyExists")
    assert names(server) == ["a"]


async def test_only_the_pod_of_the_uid_is_deleted(server, api):
    """A pod of the same name with another UID stays, and a missing one is no error."""
    writer = PodWriter(api)
    uid = server.put(PODS, pod("a"))["metadata"]["uid"]
    await writer.delete("default", "a", "another")
    assert names(server) == ["a"]
    await writer.delete("default", "a", uid)
    await writer.delete("default", "a", uid)
    assert names(server) == []


async def test_without_a_uid_the_name_decides(server, api):
    """A pod whose creation was not reported is deleted by its name; an invalid name is none."""
    server.put(PODS, pod("a"))
    await PodWriter(api).delete("default", "a", "")
    await PodWriter(api).delete("..", "a", "")
    assert names(server) == []


async def test_a_refused_deletion(server, api):
    """Other errors are the caller's."""
    server.put(PODS, pod("a"))
    server.fault("DELETE", "pods/a", refuse(403, "Forbidden", "User x cannot delete pods"))
    with pytest.raises(ApiError, match="cannot delete"):
        await PodWriter(api).delete("default", "a", "")


def holder(name, **options):
    """Create a pod with a label."""
    raw = pod(name, **options)
    raw["metadata"]["labels"] = {"role": "holder"}
    return raw


async def test_a_grace_period_is_made_shorter(server, api):
    """A second deletion may leave a pod that ends less time."""
    writer = PodWriter(api)
    server.put(PODS, pod("a", nodeName="n"))
    await writer.delete("default", "a", "")
    await writer.delete("default", "a", "", grace_s=1)
    [ending] = server.pods
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 1


async def test_live_pods(server, api):
    """Pods with the labels that nobody has deleted, of one namespace or of all."""
    writer = PodWriter(api)
    server.put(PODS, pod("c"))
    server.put(PODS, holder("d", nodeName="n"))
    await writer.delete("default", "d", "")
    live = [
        server.put(PODS, holder(name, namespace=namespace))["metadata"]["uid"]
        for name, namespace in (("a", "default"), ("b", "other"))
    ]
    assert await writer.live_uids("", "role=holder") == set(live)
    assert await writer.live_uids("other", "role=holder") == {live[1]}
