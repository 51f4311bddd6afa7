"""Bindings of a pod's version, made void by a write to the pod's status."""

import pytest

from scheduler.cluster.binding import void_bindings
from scheduler.cluster.errors import ApiError, ClusterError
from scheduler.cluster.resource import PODS
from tests.cluster.api_server import refuse
from tests.cluster.factories import pod


async def test_the_write_changes_the_version(server, api):
    """A Binding of the version before is refused from then on."""
    before = server.put(PODS, pod("a"))["metadata"]["resourceVersion"]
    voided = await void_bindings(api, "default", "a", before)
    assert voided["metadata"]["resourceVersion"] != before
    late = {"metadata": {"name": "a", "resourceVersion": before}, "target": {"name": "n1"}}
    assert server.bind("default", "a", late).status == 409


async def test_a_pod_that_has_changed_is_read(server, api):
    """The Bindings of its earlier version are void already."""
    before = server.put(PODS, pod("a"))["metadata"]["resourceVersion"]
    changed = server.put(PODS, pod("a"))
    assert await void_bindings(api, "default", "a", before) == changed


async def test_a_pod_that_is_gone(server, api):
    """None of its Bindings can arrive."""
    assert await void_bindings(api, "default", "a", "1") is None


async def test_a_conflict_without_a_change_of_the_pod(server, api):
    """The pod still has the version, so that a Binding of it may arrive: nothing is known."""
    before = server.put(PODS, pod("a"))["metadata"]["resourceVersion"]
    server.fault("PATCH", "pods/a/status", refuse(409, "Conflict", "try again"), times=2)
    for _ in range(2):
        with pytest.raises(ApiError, match="try again"):
            await void_bindings(api, "default", "a", before)
    late = {"metadata": {"name": "a", "resourceVersion": before}, "target": {"name": "n1"}}
    assert server.bind("default", "a", late).status == 200


async def test_a_missing_right(server, api):
    """The message says what to grant."""
    server.put(PODS, pod("a"))
    server.fault("PATCH", "pods/a/status", refuse(403, "Forbidden", "no"))
    with pytest.raises(ClusterError, match="grant the verb patch on pods/status"):
        await void_bindings(api, "default", "a", "1")
