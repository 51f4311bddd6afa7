"""A bind without an answer: the pod is read before anything is believed."""

import asyncio

from aiohttp import web

from scheduler.cluster.api import Api
from scheduler.cluster.binding import Binding, BindOutcome, BindResult, bind, get_pod
from scheduler.cluster.resource import PODS
from tests.cluster.api_server import ApiServer, Fault, cut, hang, refuse
from tests.cluster.props import pod

GRANT = {"esg-scheduler.io/gpu": "GPU-1"}
PATH = "pods/a/binding"


async def bind_a(api: Api, *, timeout_s: float = 2.0) -> BindResult:
    """Bind pod a, in real time."""
    return await bind(
        api,
        Binding(namespace="default", name="a", uid="uid-a", node="n1", annotations=GRANT),
        timeout_s=timeout_s,
    )


def bind_then(server: ApiServer, fault: Fault) -> Fault:
    """A fault that does bind, and then behaves as ``fault``."""

    async def both(request: web.Request) -> web.StreamResponse | None:
        server.bind("default", "a", await request.json())
        return await fault(request)

    return both


async def test_it_landed_and_the_connection_broke(server: ApiServer, api: Api) -> None:
    """The answer is lost, the pod shows our grant: it is bound, and posted once."""
    server.put(PODS, pod("a"))
    server.fault("POST", PATH, bind_then(server, cut))

    result = await bind_a(api)

    assert result.outcome is BindOutcome.BOUND
    assert result.pod is not None
    assert result.pod["metadata"]["annotations"] == GRANT
    assert len(server.seen("POST", PATH)) == 1


async def test_it_landed_and_the_answer_stays_away(server: ApiServer, api: Api) -> None:
    """The same when the server hangs after it has bound the pod."""
    server.put(PODS, pod("a"))
    server.fault("POST", PATH, bind_then(server, hang))

    result = await bind_a(api, timeout_s=0.5)

    assert result.outcome is BindOutcome.BOUND


async def test_it_landed_and_the_server_failed(server: ApiServer, api: Api) -> None:
    """A 500 may come after the write (etcd timed out): the pod is read here too."""
    server.put(PODS, pod("a"))
    failed = refuse(500, "InternalError", "etcdserver: request timed out")
    server.fault("POST", PATH, bind_then(server, failed))

    result = await bind_a(api)

    assert result.outcome is BindOutcome.BOUND


async def test_it_did_not_land(server: ApiServer, api: Api) -> None:
    """The pod is not bound: it is posted again, which settles it."""
    server.put(PODS, pod("a"))
    server.fault("POST", PATH, cut)

    result = await bind_a(api)

    assert result == BindResult(BindOutcome.BOUND)
    assert len(server.seen("POST", PATH)) == 2


async def test_it_lands_before_the_second_post(server: ApiServer, api: Api) -> None:
    """If the first post lands after the look, the second is answered with 409: it is bound."""
    server.put(PODS, pod("a"))

    async def land(_request: web.Request) -> None:
        server.bind("default", "a", server.seen("POST", PATH)[0].body)

    server.fault("POST", PATH, cut)
    server.fault("POST", PATH, land)

    result = await bind_a(api)

    assert result.outcome is BindOutcome.BOUND
    assert len(server.seen("POST", PATH)) == 2


async def test_not_known_in_the_end(server: ApiServer, api: Api) -> None:
    """No answer, and the pod is not bound: the outcome is not known, and it may land later."""
    server.put(PODS, pod("a"))
    server.fault("POST", PATH, hang, times=5)

    result = await bind_a(api, timeout_s=0.3)
    server.bind("default", "a", server.seen("POST", PATH)[0].body)
    later = await get_pod(api, "default", "a")

    assert result.outcome is BindOutcome.UNKNOWN
    assert "did not answer in time" in result.message
    assert later is not None
    assert later["metadata"]["annotations"] == GRANT


async def test_neither_answer_comes(server: ApiServer, api: Api) -> None:
    """If the pod cannot be read either, it is not known; all of it keeps to the time allowed."""
    server.put(PODS, pod("a"))
    server.fault("POST", PATH, hang, times=5)
    server.fault("GET", "pods/a", hang, times=5)
    began = asyncio.get_running_loop().time()

    result = await bind_a(api, timeout_s=0.3)

    assert result.outcome is BindOutcome.UNKNOWN
    assert asyncio.get_running_loop().time() - began < 1.0


async def test_the_look_fails_for_a_while(server: ApiServer, api: Api) -> None:
    """A look that fails is repeated while there is time."""
    server.put(PODS, pod("a"))
    server.fault("POST", PATH, bind_then(server, cut))
    server.fault("GET", "pods/a", refuse(503, "ServiceUnavailable", "starting"), times=2)

    result = await bind_a(api)

    assert result.outcome is BindOutcome.BOUND


async def test_the_pod_is_gone(server: ApiServer, api: Api) -> None:
    """A pod that is gone when it is read is refused: its UID keeps the Binding off any other."""

    async def delete(request: web.Request) -> web.StreamResponse:
        server.remove(PODS, "a", "default")
        return await cut(request)

    server.put(PODS, pod("a"))
    server.fault("POST", PATH, delete)

    result = await bind_a(api)

    assert result == BindResult(BindOutcome.REFUSED, "the pod is gone")


async def test_the_pod_was_recreated(server: ApiServer, api: Api) -> None:
    """Another pod of its name is no reason to wait: ours can never be bound."""

    async def recreate(request: web.Request) -> web.StreamResponse:
        server.remove(PODS, "a", "default")
        server.put(PODS, pod("a", uid="heir"))
        return await cut(request)

    server.put(PODS, pod("a"))
    server.fault("POST", PATH, recreate)

    result = await bind_a(api)

    assert result.outcome is BindOutcome.REFUSED
    assert len(server.seen("POST", PATH)) == 1


async def test_another_grant_on_the_same_node(server: ApiServer, api: Api) -> None:
    """If somebody else bound it to the same node meanwhile, the grant on it counts, not ours."""

    async def outrun(request: web.Request) -> web.StreamResponse:
        binding = await request.json()
        binding["metadata"]["annotations"] = {"esg-scheduler.io/gpu": "GPU-7"}
        server.bind("default", "a", binding)
        return await cut(request)

    server.put(PODS, pod("a"))
    server.fault("POST", PATH, outrun)

    result = await bind_a(api)

    assert result.outcome is BindOutcome.ALREADY_BOUND


async def test_the_right_is_lost_on_the_way(server: ApiServer, api: Api) -> None:
    """A refusal of a second post says nothing about the first: not known."""
    server.put(PODS, pod("a"))
    server.fault("POST", PATH, cut)
    server.fault("POST", PATH, refuse(403, "Forbidden", "no more"), times=20)

    result = await bind_a(api, timeout_s=0.3)

    assert result.outcome is BindOutcome.UNKNOWN


async def test_the_server_is_away(server: ApiServer, api: Api) -> None:
    """What never left cannot land: with nobody listening the bind is refused, not unknown."""
    await server.stop()

    result = await bind_a(api, timeout_s=0.3)

    assert result.outcome is BindOutcome.REFUSED
    assert "cannot be reached" in result.message


async def test_the_server_comes_back(server: ApiServer, api: Api) -> None:
    """A server that comes back within the time allowed gets the Binding."""
    server.put(PODS, pod("a"))
    await server.stop()

    async with asyncio.TaskGroup() as group:
        binding = group.create_task(bind_a(api))
        await asyncio.sleep(0)
        await server.start()

    assert binding.result().outcome is BindOutcome.BOUND
