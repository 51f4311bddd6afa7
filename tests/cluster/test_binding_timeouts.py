"""Binds without an answer: the pod is read to learn the outcome."""

import asyncio

from scheduler.cluster.binding import Binding, BindOutcome, BindResult, bind, get_pod
from scheduler.cluster.resource import PODS
from tests.cluster.api_server import cut, hang, refuse
from tests.cluster.conftest import TIMEOUT_S
from tests.cluster.factories import pod

GRANT = {"esg-scheduler.io/gpu": "GPU-1"}
PATH = "pods/a/binding"


async def bind_a(api, *, timeout_s=2.0):
    """Bind pod a, in real time."""
    return await bind(
        api,
        Binding(namespace="default", name="a", uid="uid-a", node="n1", annotations=GRANT),
        timeout_s=timeout_s,
    )


def bind_then(server, fault):
    """Create a fault that binds, and then behaves like ``fault``."""

    async def both(request):
        server.bind("default", "a", await request.json())
        return await fault(request)

    return both


async def test_bound_before_the_connection_broke(server, api):
    """The answer is lost, the pod has the grant: it is bound, with one post."""
    server.put(PODS, pod("a"))
    server.fault("POST", PATH, bind_then(server, cut))

    result = await bind_a(api)

    assert result.outcome is BindOutcome.BOUND
    assert result.pod is not None
    assert result.pod["metadata"]["annotations"] == GRANT
    assert len(server.seen("POST", PATH)) == 1


async def test_bound_before_the_server_hung(server, api):
    """A server that hangs after the Binding gives the same result."""
    server.put(PODS, pod("a"))
    server.fault("POST", PATH, bind_then(server, hang))

    result = await bind_a(api)

    assert result.outcome is BindOutcome.BOUND


async def test_bound_before_the_server_failed(server, api):
    """A 500 may follow the write (etcd timed out): the pod is read here too."""
    server.put(PODS, pod("a"))
    failed = refuse(500, "InternalError", "etcdserver: request timed out")
    server.fault("POST", PATH, bind_then(server, failed))

    result = await bind_a(api)

    assert result.outcome is BindOutcome.BOUND


async def test_not_bound(server, api):
    """The pod is not bound: a second post binds it."""
    server.put(PODS, pod("a"))
    server.fault("POST", PATH, cut)

    result = await bind_a(api)

    assert result == BindResult(BindOutcome.BOUND)
    assert len(server.seen("POST", PATH)) == 2


async def test_bound_before_the_second_post(server, api):
    """The first post takes effect after the read, the second gets a 409: the pod is bound."""
    server.put(PODS, pod("a"))

    async def land(_request):
        server.bind("default", "a", server.seen("POST", PATH)[0].body)

    server.fault("POST", PATH, cut)
    server.fault("POST", PATH, land)

    result = await bind_a(api)

    assert result.outcome is BindOutcome.BOUND
    assert len(server.seen("POST", PATH)) == 2


async def test_outcome_is_unknown(server, api):
    """Without an answer, and with an unbound pod, the pod may still be bound later."""
    server.put(PODS, pod("a"))
    server.fault("POST", PATH, hang, times=5)

    result = await bind_a(api, timeout_s=1.0)
    server.bind("default", "a", server.seen("POST", PATH)[0].body)
    later = await get_pod(api, "default", "a")

    assert result.outcome is BindOutcome.UNKNOWN
    assert "did not answer in time" in result.message
    assert later is not None
    assert later["metadata"]["annotations"] == GRANT


async def test_neither_answer_comes(server, api):
    """If the pod cannot be read either, the outcome is unknown.

    The time limit of the bind holds, not the connection's own of each request.
    """
    server.put(PODS, pod("a"))
    server.fault("POST", PATH, hang, times=5)
    server.fault("GET", "pods/a", hang, times=5)
    start_s = asyncio.get_running_loop().time()

    result = await bind_a(api, timeout_s=0.3)

    assert result.outcome is BindOutcome.UNKNOWN
    assert asyncio.get_running_loop().time() - start_s < TIMEOUT_S


async def test_failed_read_is_repeated(server, api):
    """The read is repeated while there is time."""
    server.put(PODS, pod("a"))
    server.fault("POST", PATH, bind_then(server, cut))
    server.fault("GET", "pods/a", refuse(503, "ServiceUnavailable", "starting"), times=2)

    result = await bind_a(api)

    assert result.outcome is BindOutcome.BOUND


async def test_deleted_pod(server, api):
    """The pod is gone, and may have been bound before: its kubelet may run its containers."""

    async def delete(request):
        server.remove(PODS, "a", "default")
        return await cut(request)

    server.put(PODS, pod("a"))
    server.fault("POST", PATH, delete)

    result = await bind_a(api)

    assert result == BindResult(BindOutcome.UNKNOWN, "the pod does not exist any more")


async def test_pod_is_deleted_before_a_second_post(server, api):
    """The second post finds no pod; the first one may have bound it."""

    async def delete(_request):
        server.remove(PODS, "a", "default")

    server.put(PODS, pod("a"))
    server.fault("POST", PATH, cut)
    server.fault("POST", PATH, delete)

    result = await bind_a(api)

    assert result == BindResult(BindOutcome.UNKNOWN, 'pods "a" not found')


async def test_recreated_pod(server, api):
    """Another pod of the same name ends the wait; the first one may have been bound before."""

    async def recreate(request):
        server.remove(PODS, "a", "default")
        server.put(PODS, pod("a", uid="recreated"))
        return await cut(request)

    server.put(PODS, pod("a"))
    server.fault("POST", PATH, recreate)

    result = await bind_a(api)

    assert result.outcome is BindOutcome.UNKNOWN
    assert len(server.seen("POST", PATH)) == 1


async def test_another_grant_on_the_same_node(server, api):
    """If another client bound it to the same node meanwhile, that grant counts."""

    async def outrun(request):
        binding = await request.json()
        binding["metadata"]["annotations"] = {"esg-scheduler.io/gpu": "GPU-7"}
        server.bind("default", "a", binding)
        return await cut(request)

    server.put(PODS, pod("a"))
    server.fault("POST", PATH, outrun)

    result = await bind_a(api)

    assert result.outcome is BindOutcome.ALREADY_BOUND


async def test_right_is_lost_meanwhile(server, api):
    """The refusal of a second post does not show the outcome of the first: unknown."""
    server.put(PODS, pod("a"))
    server.fault("POST", PATH, cut)
    server.fault("POST", PATH, refuse(403, "Forbidden", "no more"), times=20)

    result = await bind_a(api, timeout_s=1.0)

    assert result.outcome is BindOutcome.UNKNOWN


async def test_server_is_down(server, api):
    """A request that was never sent cannot take effect: the bind is refused, not unknown."""
    await server.stop()

    result = await bind_a(api, timeout_s=0.3)

    assert result.outcome is BindOutcome.REFUSED
    assert "cannot reach" in result.message


async def test_server_restarts(server, api):
    """A server that is back within the time limit gets the Binding."""
    server.put(PODS, pod("a"))
    await server.stop()

    async with asyncio.TaskGroup() as group:
        binding = group.create_task(bind_a(api))
        await asyncio.sleep(0)
        await server.start()

    assert binding.result().outcome is BindOutcome.BOUND
