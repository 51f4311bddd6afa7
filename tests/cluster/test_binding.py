"""A bind that is answered: bound, bound before, or refused."""

import pytest

from scheduler.cluster.api import Api
from scheduler.cluster.binding import Binding, BindOutcome, BindResult, bind
from scheduler.cluster.resource import PODS
from tests.cluster.api_server import ApiServer, refuse
from tests.cluster.props import VirtualTime, pod

GRANT = {"esg-scheduler.io/gpu": "GPU-1", "esg-scheduler.io/gpu-percent": "30"}


async def bind_a(
    api: Api, *, uid: str = "uid-a", node: str = "n1", time: VirtualTime | None = None
) -> BindResult:
    """Bind pod a."""
    time = time or VirtualTime()
    return await bind(
        api,
        Binding(namespace="default", name="a", uid=uid, node=node, annotations=GRANT),
        timeout_s=2.0,
        clock=time.clock,
        sleep=time.sleep,
    )


async def test_one_write(server: ApiServer, api: Api) -> None:
    """One POST binds the pod and puts the grant on it, beside what was there."""
    unbound = pod("a")
    unbound["metadata"]["annotations"] = {"own": "kept"}
    server.put(PODS, unbound)

    result = await bind_a(api)

    assert result == BindResult(BindOutcome.BOUND)
    stored = server.collections[PODS.path].objects["default", "a"]
    assert stored["spec"]["nodeName"] == "n1"
    assert stored["metadata"]["annotations"] == {"own": "kept", **GRANT}
    assert [(s.method, s.path) for s in server.requests] == [
        ("POST", "/api/v1/namespaces/default/pods/a/binding")
    ]


async def test_the_uid_is_a_precondition(server: ApiServer, api: Api) -> None:
    """A pod that was deleted and recreated under its name is not bound."""
    server.put(PODS, pod("a", uid="heir"))

    result = await bind_a(api)

    assert result.outcome is BindOutcome.REFUSED
    assert result.message == "the pod was deleted; another of its name is there"
    assert "nodeName" not in server.collections[PODS.path].objects["default", "a"]["spec"]


async def test_bound_before_to_the_same_node(server: ApiServer, api: Api) -> None:
    """The same UID on the same node is a success, with the grant that is on the pod."""
    before = pod("a", nodeName="n1")
    before["metadata"]["annotations"] = {"esg-scheduler.io/gpu": "GPU-0"}
    server.put(PODS, before)

    result = await bind_a(api)

    assert result.outcome is BindOutcome.ALREADY_BOUND
    assert result.pod is not None
    assert result.pod["metadata"]["annotations"] == {"esg-scheduler.io/gpu": "GPU-0"}


async def test_bound_elsewhere(server: ApiServer, api: Api) -> None:
    """A pod that is on another node is refused, and the node named."""
    server.put(PODS, pod("a", nodeName="n2"))

    result = await bind_a(api)

    assert result.outcome is BindOutcome.REFUSED
    assert result.message == "the pod is bound to node n2"


async def test_being_deleted(server: ApiServer, api: Api) -> None:
    """A pod that is being deleted is refused."""
    dying = pod("a")
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    server.put(PODS, dying)

    result = await bind_a(api)

    assert (result.outcome, result.message) == (BindOutcome.REFUSED, "the pod is being deleted")


async def test_another_conflict(server: ApiServer, api: Api) -> None:
    """A conflict that cannot be seen on the pod is told in the server's words, at once."""
    server.put(PODS, pod("a"))
    server.fault("POST", "binding", refuse(409, "Conflict", "pod a has scheduling gates"))

    result = await bind_a(api)

    assert result == BindResult(BindOutcome.REFUSED, "pod a has scheduling gates")


async def test_a_conflict_that_cannot_be_looked_into(server: ApiServer, api: Api) -> None:
    """A conflict is a refusal of this bind even if the pod cannot be read."""
    server.put(PODS, pod("a", nodeName="n1"))
    server.fault("GET", "pods/a", refuse(500, "InternalError", "etcd"))

    result = await bind_a(api)

    assert result.outcome is BindOutcome.REFUSED
    assert "already assigned" in result.message


async def test_no_such_pod(server: ApiServer, api: Api) -> None:
    """A pod that is gone is refused, in the server's words."""
    result = await bind_a(api)

    assert result == BindResult(BindOutcome.REFUSED, 'pods "a" not found')
    assert len(server.requests) == 1


async def test_no_right(server: ApiServer, api: Api) -> None:
    """A missing right says what the ClusterRole must grant."""
    server.fault("POST", "binding", refuse(403, "Forbidden", "User x cannot create pods/binding"))

    result = await bind_a(api)

    assert result.outcome is BindOutcome.REFUSED
    assert result.message.startswith("RBAC: grant the verb create on pods/binding in a ClusterRole")


async def test_turned_away(server: ApiServer, api: Api, time: VirtualTime) -> None:
    """A server that is too busy (429) has done nothing; the bind is tried again."""
    server.put(PODS, pod("a"))
    server.fault("POST", "binding", refuse(429, "TooManyRequests", "busy"), times=3)

    result = await bind_a(api, time=time)

    assert result.outcome is BindOutcome.BOUND
    assert time.slept == [0.05, 0.1, 0.2]


async def test_turned_away_to_the_end(server: ApiServer, api: Api, time: VirtualTime) -> None:
    """If it stays too busy until the time is up, the bind is refused: nothing can land later."""
    server.put(PODS, pod("a"))
    server.fault("POST", "binding", refuse(429, "TooManyRequests", "busy"), times=30)

    result = await bind_a(api, time=time)

    assert result == BindResult(BindOutcome.REFUSED, "busy")
    assert sum(time.slept) < 2.0


@pytest.mark.parametrize("name", ["../nodes", "a/../../nodes", "a?x=1", "A", "", "a\n", "é"])
async def test_no_name(server: ApiServer, api: Api, name: str) -> None:
    """What cannot be a pod's name is refused and never becomes a part of a path."""
    result = await bind(
        api, Binding(namespace="default", name=name, uid="u", node="n", annotations={}), timeout_s=1
    )

    assert result.outcome is BindOutcome.REFUSED
    assert "cannot be the name of a pod" in result.message
    assert server.requests == []
