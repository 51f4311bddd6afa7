"""The server has forgotten the version that we know: the list is drawn anew."""

from scheduler.cluster.api import Api
from scheduler.cluster.reflector import Reflector
from scheduler.cluster.resource import PODS
from tests.cluster.api_server import ApiServer, refuse
from tests.cluster.props import Listener, VirtualTime, pod, running


async def test_410_as_an_answer(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime
) -> None:
    """A watch that is answered with 410 leads to a list, which tells also what was deleted."""
    server.put(PODS, pod("a"))
    server.put(PODS, pod("b"))
    async with running(Reflector(api, PODS, listener, clock=time.clock, sleep=time.sleep)):
        await server.watched(PODS)
        await listener.next()
        await server.stop()
        server.remove(PODS, "a", "default")
        server.forget()
        await server.start()
        told = await listener.next()

    assert told == ("replace", ["b"])


async def test_410_as_an_event(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime
) -> None:
    """An ERROR event of code 410 does the same."""
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    async with running(Reflector(api, PODS, listener, clock=time.clock, sleep=time.sleep)):
        await server.watched(PODS)
        await listener.next()
        server.say(PODS, {"type": "ERROR", "object": expired})
        told = await listener.next()

    assert told == ("replace", [])
    assert len(server.list_requests(PODS)) == 2


async def test_410_between_pages(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime
) -> None:
    """A continue token that has expired begins the list again; nothing half is handed over."""

    async def expire(_request: object) -> None:
        server.drop_continues()

    async def first_page(_request: object) -> None:
        server.fault("GET", PODS.path, expire)

    server.put(PODS, pod("a"))
    server.put(PODS, pod("b"))
    server.fault("GET", PODS.path, first_page)
    async with running(Reflector(api, PODS, listener, page=1, sleep=time.sleep)):
        told = await listener.next()

    assert told == ("replace", ["a", "b"])
    assert len(server.list_requests(PODS)) == 4


async def test_410_is_no_trouble(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime
) -> None:
    """To be told 410 is part of the protocol: nothing is reported as failing."""
    reflector = Reflector(api, PODS, listener, sleep=time.sleep)
    async with running(reflector):
        await server.watched(PODS)
        server.forget()
        server.end_watches()
        await server.watched(PODS, times=3)

    assert reflector.trouble is None


async def test_another_error_event_resumes(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime
) -> None:
    """An ERROR event of another code is waited out, and the watch goes on where it was."""
    async with running(Reflector(api, PODS, listener, sleep=time.sleep)):
        await server.watched(PODS)
        await listener.next()
        version = server.bookmark(PODS)
        failed = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd"}
        server.say(PODS, {"type": "ERROR", "object": failed})
        await server.watched(PODS, times=2)

    assert server.watch_requests(PODS)[1].query["resourceVersion"] == version
    assert len(server.list_requests(PODS)) == 1


async def test_410_again_and_again(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime
) -> None:
    """A server that answers each watch with 410 is asked more and more seldom."""
    server.fault("GET", PODS.path, _gone_if_watch, times=14)
    async with running(Reflector(api, PODS, listener, random=lambda: 0.5, sleep=time.sleep)):
        await server.watched(PODS, times=7)

    assert time.slept[:6] == [0.1875, 0.375, 0.75, 1.5, 3.0, 6.0]


async def _gone_if_watch(request: object) -> object:
    if "watch" not in request.query:  # type: ignore[attr-defined]
        return None
    return await refuse(410, "Expired", "too old")(request)  # type: ignore[arg-type]
