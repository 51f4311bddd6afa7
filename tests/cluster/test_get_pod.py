"""Reads of one pod from the server."""

import pytest

from scheduler.cluster.binding import get_pod
from scheduler.cluster.errors import ApiError, ApiTimeoutError, ApiUnreachableError
from scheduler.cluster.resource import PODS
from tests.cluster.api_server import hang, refuse
from tests.cluster.factories import pod


async def test_whole(server, api):
    """The pod is complete, not trimmed."""
    stored = server.put(PODS, pod("a"))

    assert await get_pod(api, "default", "a") == stored


async def test_missing_pod(api):
    """A missing pod is None, and so is an invalid name."""
    assert await get_pod(api, "default", "a") is None
    assert await get_pod(api, "..", "a") is None


async def test_refused(server, api):
    """Any other error is an ApiError with the server's status, reason and message."""
    server.fault("GET", "pods/a", refuse(403, "Forbidden", "User x cannot get pods"))

    with pytest.raises(ApiError) as caught:
        await get_pod(api, "default", "a")

    assert (caught.value.status, caught.value.reason) == (403, "Forbidden")
    assert caught.value.message == "User x cannot get pods"


async def test_not_found_of_a_proxy(server, api):
    """A 404 without Kubernetes' reason says nothing about the pod, whose share stays reserved."""
    server.put(PODS, pod("a"))
    for reason in ("Not Found", "no healthy upstream"):
        server.fault("GET", "pods/a", refuse(404, reason, "no route"))
        with pytest.raises(ApiError, match="no route"):
            await get_pod(api, "default", "a")


async def test_no_answer(server, api):
    """No answer in time is an ApiTimeoutError; no server, an ApiUnreachableError."""
    server.fault("GET", "pods/a", hang)
    with pytest.raises(ApiTimeoutError):
        await get_pod(api, "default", "a", timeout_s=0.05)

    await server.stop()
    with pytest.raises(ApiUnreachableError):
        await get_pod(api, "default", "a")


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
async def test_no_time(server, api, timeout_s):
    """Zero is not unlimited: nothing is sent, and nothing waited for."""
    server.fault("GET", "pods/a", hang)

    with pytest.raises(ApiTimeoutError) as caught:
        await get_pod(api, "default", "a", timeout_s=timeout_s)

    assert not caught.value.sent
    assert server.requests == []
