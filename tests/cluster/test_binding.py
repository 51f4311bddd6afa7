"""Binds with an answer: bound, bound before, or refused."""

import pytest

from scheduler.cluster.binding import Binding, BindOutcome, BindResult, bind
from scheduler.cluster.resource import PODS
from tests.cluster.api_server import refuse
from tests.cluster.factories import pod
from tests.cluster.fakes import VirtualTime

GRANT = {"esg-scheduler.io/gpu": "GPU-1", "esg-scheduler.io/gpu-percent": "30"}


async def bind_a(
    api,
    *,
    uid="uid-a",
    node="n1",
    time=None,
    sleep=None,
    timeout_s=2.0,
):
    """Bind pod a, in virtual time; ``sleep`` replaces that of ``time``."""
    time = time or VirtualTime()
    return await bind(
        api,
        Binding(namespace="default", name="a", uid=uid, node=node, annotations=GRANT),
        timeout_s=timeout_s,
        clock=time.clock_s,
        sleep=sleep or time.sleep,
    )


async def test_one_write(server, api):
    """One POST binds the pod and writes the grant, next to its other annotations."""
    unbound = pod("a")
    unbound["metadata"]["annotations"] = {"own": "value"}
    server.put(PODS, unbound)

    result = await bind_a(api)

    assert result == BindResult(BindOutcome.BOUND)
    stored = server.pod("a")
    assert stored["spec"]["nodeName"] == "n1"
    assert stored["metadata"]["annotations"] == {"own": "value", **GRANT}
    assert [(s.method, s.path) for s in server.requests] == [
        ("POST", "/api/v1/namespaces/default/pods/a/binding")
    ]


async def test_uid_is_a_precondition(server, api):
    """A recreated pod of the same name is not bound."""
    server.put(PODS, pod("a", uid="recreated"))

    result = await bind_a(api)

    assert result.outcome is BindOutcome.REFUSED
    assert result.message == "the pod was recreated with another UID"
    assert "nodeName" not in server.pod("a")["spec"]


async def test_bound_before_to_the_same_node(server, api):
    """The same UID on the same node is a success, with the grant on the pod."""
    before = pod("a", nodeName="n1")
    before["metadata"]["annotations"] = {"esg-scheduler.io/gpu": "GPU-0"}
    server.put(PODS, before)

    result = await bind_a(api)

    assert result.outcome is BindOutcome.ALREADY_BOUND
    assert result.pod is not None
    assert result.pod["metadata"]["annotations"] == {"esg-scheduler.io/gpu": "GPU-0"}


async def test_bound_elsewhere(server, api):
    """A pod on another node is refused, and the message names that node."""
    server.put(PODS, pod("a", nodeName="n2"))

    result = await bind_a(api)

    assert result.outcome is BindOutcome.REFUSED
    assert result.message == "the pod is bound to node n2"


async def test_being_deleted(server, api):
    """A terminating pod is refused."""
    dying = pod("a")
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    server.put(PODS, dying)

    result = await bind_a(api)

    assert (result.outcome, result.message) == (BindOutcome.REFUSED, "the pod is being deleted")


async def test_another_conflict(server, api):
    """A conflict with another cause is refused at once, with the server's message."""
    server.put(PODS, pod("a"))
    server.fault("POST", "binding", refuse(409, "Conflict", "pod a has scheduling gates"))

    result = await bind_a(api)

    assert result == BindResult(BindOutcome.REFUSED, "pod a has scheduling gates")


async def test_pod_is_read_again_after_a_conflict(server, api, time):
    """If the pod cannot be read at once, it is read later: its node shows the earlier Binding."""
    server.put(PODS, pod("a", nodeName="n2"))
    server.fault("GET", "pods/a", refuse(500, "InternalError", "etcd"), times=2)

    result = await bind_a(api, time=time)

    assert (result.outcome, result.message) == (BindOutcome.REFUSED, "the pod is bound to node n2")
    assert result.pod is not None
    assert time.slept == [0.05, 0.1]


async def test_not_found_of_a_proxy(server, api, time):
    """A 404 without Kubernetes' reason may be of a Binding that arrived: the pod is read."""
    server.put(PODS, pod("a"))
    proxy = refuse(404, "Not Found", "no route")
    server.fault("POST", "binding", proxy)
    server.fault("GET", "pods/a", proxy)
    assert (await bind_a(api, time=time)).outcome is BindOutcome.BOUND

    server.put(PODS, pod("a"))
    server.fault("POST", "binding", proxy, times=30)
    server.fault("GET", "pods/a", proxy, times=30)
    assert (await bind_a(api, time=time)).outcome is BindOutcome.UNKNOWN


@pytest.mark.parametrize("later", [409, 403, 429])
async def test_unreadable_pod_after_a_conflict(server, api, time, later):
    """The node of the earlier Binding is unknown, so the pod may hold this call's reservation."""
    server.put(PODS, pod("a"))
    server.fault("POST", "binding", refuse(409, "Conflict", "pod a is already assigned"))
    server.fault("POST", "binding", refuse(later, "Whatever", "still no"), times=30)
    server.fault("GET", "pods/a", refuse(500, "InternalError", "etcd"), times=30)

    result = await bind_a(api, time=time)

    assert result.outcome is BindOutcome.UNKNOWN
    if later == 409:
        assert result.message == "still no; then the pod could not be read: 500 InternalError: etcd"


async def test_time_out_at_a_conflict(server, api, time):
    """No time is left to read the pod: the message is the conflict, the outcome unknown."""

    async def take_long(_request):
        time.now_s += 3.0

    server.put(PODS, pod("a", nodeName="n2"))
    server.fault("POST", "binding", take_long)

    result = await bind_a(api, time=time)

    assert result.outcome is BindOutcome.UNKNOWN
    assert "already assigned" in result.message
    assert server.seen("GET", "pods/a") == []


async def test_pause_that_takes_all_the_time(server, api, time):
    """The event loop may resume long after the pause: then nothing more is sent."""

    async def stall(_seconds):
        time.now_s += 3.0

    server.put(PODS, pod("a"))
    server.fault("POST", "binding", refuse(429, "TooManyRequests", "busy"))

    result = await bind_a(api, time=time, sleep=stall)

    assert result == BindResult(BindOutcome.REFUSED, "busy")
    assert len(server.requests) == 1


async def test_no_time(server, api):
    """A bind without time is refused, and nothing is sent."""
    server.put(PODS, pod("a"))

    result = await bind_a(api, timeout_s=0.0)

    assert result == BindResult(BindOutcome.REFUSED, "no time was left for it")
    assert server.requests == []


async def test_no_such_pod(server, api):
    """A deleted pod is refused, with the server's message."""
    result = await bind_a(api)

    assert result == BindResult(BindOutcome.REFUSED, 'pods "a" not found')
    assert len(server.requests) == 1


async def test_no_right(server, api):
    """The message for a missing right says what the ClusterRole must grant."""
    server.fault("POST", "binding", refuse(403, "Forbidden", "User x cannot create pods/binding"))

    result = await bind_a(api)

    assert result.outcome is BindOutcome.REFUSED
    assert result.message.startswith("RBAC: grant the verb create on pods/binding in a ClusterRole")


async def test_busy_server(server, api, time):
    """A server that answers 429 has done nothing; the bind is retried."""
    server.put(PODS, pod("a"))
    server.fault("POST", "binding", refuse(429, "TooManyRequests", "busy"), times=3)

    result = await bind_a(api, time=time)

    assert result.outcome is BindOutcome.BOUND
    assert time.slept == [0.05, 0.1, 0.2]


async def test_busy_server_until_the_time_out(server, api, time):
    """Only 429 until the time-out: the bind is refused, because nothing can be bound later."""
    server.put(PODS, pod("a"))
    server.fault("POST", "binding", refuse(429, "TooManyRequests", "busy"), times=30)

    result = await bind_a(api, time=time)

    assert result == BindResult(BindOutcome.REFUSED, "busy")
    assert sum(time.slept) < 2.0


@pytest.mark.parametrize("name", ["../nodes", "a/../../nodes", "a?x=1", "A", "", "a\n", "é"])
async def test_invalid_name(server, api, name):
    """An invalid pod name is refused and never becomes part of a path."""
    result = await bind(
        api, Binding(namespace="default", name=name, uid="u", node="n", annotations={}), timeout_s=1
    )

    assert result.outcome is BindOutcome.REFUSED
    assert "not a valid pod name" in result.message
    assert server.requests == []
