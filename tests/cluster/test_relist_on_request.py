"""A list on request: a watch may be late or silent, and the caller needs the present state."""

import asyncio

from scheduler.cluster.reflector import Reflector
from scheduler.cluster.resource import PODS
from tests.cluster.api_server import refuse
from tests.cluster.factories import pod
from tests.waiting import running


async def test_a_silent_watch_is_replaced(server, api, listener, time):
    """The list shows what the watch has not delivered, and the next watch continues from it."""
    reflector = Reflector(api, PODS, listener, clock=time.clock_s, sleep=time.sleep)
    async with running(reflector):
        await server.watched(PODS)
        await listener.next()
        server.watches[PODS.path].clear()
        server.put(PODS, pod("a"))
        await reflector.relist()
        assert await listener.next() == ("replace", ["a"])
        await server.watched(PODS, times=2)
        server.put(PODS, pod("b"))
        assert await listener.next() == ("upsert", "b")


async def test_a_list_under_way_is_too_old(server, api, listener, time):
    """A list that began before the request is followed by another one."""
    reflector = Reflector(api, PODS, listener, clock=time.clock_s, sleep=time.sleep)
    requests = []

    async def request(_):
        requests.append(asyncio.create_task(reflector.relist()))
        await asyncio.sleep(0)

    server.fault("GET", PODS.path, request)
    async with running(reflector):
        await server.until(lambda: bool(requests))
        await requests[0]
    assert len(server.list_requests(PODS)) == 2


async def test_a_list_that_fails(server, api, listener, time):
    """It is tried again, and the caller waits for it."""
    reflector = Reflector(api, PODS, listener, clock=time.clock_s, sleep=time.sleep)
    async with running(reflector):
        await server.watched(PODS)
        server.fault("GET", PODS.path, refuse(500, "InternalError", "etcd"), times=2)
        await reflector.relist()
    assert len(server.list_requests(PODS)) == 4
