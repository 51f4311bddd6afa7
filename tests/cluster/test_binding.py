"""A bind that is answered: bound, bound before, or refused."""

from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from scheduler.cluster.api import Api
from scheduler.cluster.binding import Binding, BindOutcome, BindResult, bind
from scheduler.cluster.resource import PODS
from tests.cluster.api_server import ApiServer, refuse
from tests.cluster.props import VirtualTime, pod

GRANT = {"esg-scheduler.io/gpu": "GPU-1", "esg-scheduler.io/gpu-percent": "30"}


async def bind_a(
    api: Api,
    *,
    uid: str = "uid-a",
    node: str = "n1",
    time: VirtualTime | None = None,
    sleep: Callable[[float], Awaitable[None]] | None = None,
    timeout_s: float = 2.0,
) -> BindResult:
    """Bind pod a, in virtual time; ``sleep`` in place of its own."""
    time = time or VirtualTime()
    return await bind(
        api,
        Binding(namespace="default", name="a", uid=uid, node=node, annotations=GRANT),
        timeout_s=timeout_s,
        clock=time.clock,
        sleep=sleep or time.sleep,
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


async def test_a_conflict_that_is_looked_into_again(
    server: ApiServer, api: Api, time: VirtualTime
) -> None:
    """Who was first is on the pod: where it cannot be read at once, it is read later."""
    server.put(PODS, pod("a", nodeName="n2"))
    server.fault("GET", "pods/a", refuse(500, "InternalError", "etcd"), times=2)

    result = await bind_a(api, time=time)

    assert (result.outcome, result.message) == (BindOutcome.REFUSED, "the pod is bound to node n2")
    assert result.pod is not None
    assert time.slept == [0.05, 0.1]


@pytest.mark.parametrize("later", [409, 403, 429])
async def test_a_conflict_that_cannot_be_looked_into(
    server: ApiServer, api: Api, time: VirtualTime, later: int
) -> None:
    """Nobody knows who was first, and where: the pod may hold what we would give back."""
    server.put(PODS, pod("a"))
    server.fault("POST", "binding", refuse(409, "Conflict", "pod a is already assigned"))
    server.fault("POST", "binding", refuse(later, "Whatever", "still no"), times=30)
    server.fault("GET", "pods/a", refuse(500, "InternalError", "etcd"), times=30)

    result = await bind_a(api, time=time)

    assert result.outcome is BindOutcome.UNKNOWN
    if later == 409:
        assert result.message == "still no; and the pod could not be read: 500 InternalError: etcd"


async def test_the_time_is_up_when_a_conflict_is_heard_of(
    server: ApiServer, api: Api, time: VirtualTime
) -> None:
    """There is none left to look: the conflict is told, and the pod's fate is open."""

    async def take_long(_request: web.Request) -> None:
        time.now += 3.0

    server.put(PODS, pod("a", nodeName="n2"))
    server.fault("POST", "binding", take_long)

    result = await bind_a(api, time=time)

    assert result.outcome is BindOutcome.UNKNOWN
    assert "already assigned" in result.message
    assert server.seen("GET", "pods/a") == []


async def test_a_pause_that_takes_all_the_time(
    server: ApiServer, api: Api, time: VirtualTime
) -> None:
    """What the loop does meanwhile may take longer than the pause: then nothing more is sent."""

    async def stall(_seconds: float) -> None:
        time.now += 3.0

    server.put(PODS, pod("a"))
    server.fault("POST", "binding", refuse(429, "TooManyRequests", "busy"))

    result = await bind_a(api, time=time, sleep=stall)

    assert result == BindResult(BindOutcome.REFUSED, "busy")
    assert len(server.requests) == 1


async def test_no_time(server: ApiServer, api: Api) -> None:
    """A bind that is asked for too late is refused, and nothing is sent."""
    server.put(PODS, pod("a"))

    result = await bind_a(api, timeout_s=0.0)

    assert result == BindResult(BindOutcome.REFUSED, "there was no time left for it")
    assert server.requests == []


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
