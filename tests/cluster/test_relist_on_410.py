"""Relist after the watch's version has expired."""

from scheduler.cluster.reflector import Reflector
from scheduler.cluster.resource import PODS
from tests.cluster.api_server import refuse
from tests.cluster.factories import pod
from tests.waiting import running


async def test_410_as_an_answer(server, api, listener, time):
    """A watch that is answered with 410 leads to a list, which also shows deletions."""
    server.put(PODS, pod("a"))
    server.put(PODS, pod("b"))
    async with running(Reflector(api, PODS, listener, clock=time.clock_s, sleep=time.sleep)):
        await server.watched(PODS)
        await listener.next()
        await server.stop()
        server.remove(PODS, "a", "default")
        server.compact()
        await server.start()
        report = await listener.next()

    assert report == ("replace", ["b"])


async def test_410_as_an_event(server, api, listener, time):
    """An ERROR event of code 410 does the same."""
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    async with running(Reflector(api, PODS, listener, clock=time.clock_s, sleep=time.sleep)):
        await server.watched(PODS)
        await listener.next()
        server.say(PODS, {"type": "ERROR", "object": expired})
        report = await listener.next()

    assert report == ("replace", [])
    assert len(server.list_requests(PODS)) == 2


async def test_410_between_pages(server, api, listener, time):
    """An expired continue token restarts the list; no partial list is passed on."""

    async def expire(_request):
        server.compact()

    async def first_page(_request):
        server.fault("GET", PODS.path, expire)

    server.put(PODS, pod("a"))
    server.put(PODS, pod("b"))
    server.fault("GET", PODS.path, first_page)
    async with running(Reflector(api, PODS, listener, page=1, sleep=time.sleep)):
        report = await listener.next()

    assert report == ("replace", ["a", "b"])
    assert len(server.list_requests(PODS)) == 4


async def test_410_is_not_a_trouble(server, api, listener, time):
    """A 410 is part of the protocol: no failure is reported."""
    reflector = Reflector(api, PODS, listener, sleep=time.sleep)
    async with running(reflector):
        await server.watched(PODS)
        server.compact()
        server.end_watches()
        await server.watched(PODS, times=3)

    assert reflector.trouble is None


async def test_another_error_event_resumes(server, api, listener, time):
    """After an ERROR event of another code, and a pause, the watch continues at its version."""
    async with running(Reflector(api, PODS, listener, sleep=time.sleep)):
        await server.watched(PODS)
        await listener.next()
        version = server.bookmark(PODS)
        failed = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd"}
        server.say(PODS, {"type": "ERROR", "object": failed})
        await server.watched(PODS, times=2)

    assert server.watch_requests(PODS)[1].query["resourceVersion"] == version
    assert len(server.list_requests(PODS)) == 1


async def test_repeated_410(server, api, listener, time):
    """The pauses grow if the server answers each watch with 410."""
    server.fault("GET", PODS.path, _gone_if_watch, times=14)
    async with running(Reflector(api, PODS, listener, random=lambda: 0.5, sleep=time.sleep)):
        await server.watched(PODS, times=7)

    assert time.slept[:6] == [0.1875, 0.375, 0.75, 1.5, 3.0, 6.0]


async def _gone_if_watch(request):
    if "watch" not in request.query:
        return None
    return await refuse(410, "Expired", "too old")(request)
