"""Retries: growing delays with jitter, short again after a success."""

from itertools import pairwise

from scheduler.cluster.backoff import Backoff
from scheduler.cluster.reflector import SHORT_S, Reflector
from scheduler.cluster.resource import PODS
from tests.cluster.api_server import cut, refuse
from tests.waiting import running, until


def test_doubles_up_to_the_cap():
    """Delays double from the start up to the cap."""
    backoff = Backoff(random=lambda: 0.999999, start_s=0.25, cap_s=30)

    delays = [round(backoff.next_s(), 2) for _ in range(9)]

    assert delays == [0.25, 0.5, 1, 2, 4, 8, 16, 30, 30]


def test_jitter_is_half_of_the_bound():
    """The same bound gives delays between its half and the whole."""
    assert Backoff(random=lambda: 0.0, start_s=1).next_s() == 0.5
    assert Backoff(random=lambda: 0.5, start_s=1).next_s() == 0.75


def test_reset_starts_again():
    """After a reset the first delay is used again."""
    backoff = Backoff(random=lambda: 0.0)
    first, _second, _third = (backoff.next_s() for _ in range(3))

    backoff.reset()

    assert backoff.next_s() == first


async def test_failing_list(server, api, listener, time):
    """A list is retried after growing pauses, until it succeeds."""
    server.fault("GET", PODS.path, refuse(500, "InternalError", "etcd is away"), times=5)

    async with running(Reflector(api, PODS, listener, clock=time.clock_s, sleep=time.sleep)):
        report = await listener.next()

    assert report == ("replace", [])
    assert len(time.slept) == 5
    assert all(longer > shorter for shorter, longer in pairwise(time.slept[::2]))


async def test_broken_connection(server, api, listener, time):
    """A broken connection is opened again after a pause, and the watch continues."""
    reflector = Reflector(api, PODS, listener, clock=time.clock_s, sleep=time.sleep)
    async with running(reflector):
        await server.watched(PODS)
        await listener.next()
        server.fault("GET", PODS.path, cut, times=2)  # the HTTP client retries one
        time.now_s += SHORT_S
        server.end_watches()
        await server.watched(PODS, times=4)

    assert len(time.slept) == 1
    assert len(server.list_requests(PODS)) == 1


async def test_server_restart(server, api, listener, time):
    """The reflector retries while the server is down; then the watch continues."""
    reflector = Reflector(api, PODS, listener, clock=time.clock_s, sleep=time.sleep)
    async with running(reflector):
        await server.watched(PODS)
        await listener.next()
        await server.stop()
        await until(lambda: len(time.slept) >= 4)
        await server.start()
        await server.watched(PODS, times=2)

    assert len(server.list_requests(PODS)) == 1


async def test_retry_after(server, api, listener, time):
    """The server's Retry-After is respected."""
    busy = refuse(429, "TooManyRequests", "busy", Retry_After="7")
    server.fault("GET", PODS.path, busy)

    async with running(Reflector(api, PODS, listener, sleep=time.sleep)):
        await listener.next()

    assert time.slept == [7.0]


async def test_watches_that_end_at_once(server, api, listener, time):
    """A server that ends each watch at once without a line is not called in a tight loop."""
    reflector = Reflector(
        api, PODS, listener, clock=time.clock_s, sleep=time.sleep, random=lambda: 0.5
    )
    async with running(reflector):
        for times in range(1, 5):
            await server.watched(PODS, times=times)
            await server.until(lambda: bool(server.watches[PODS.path]))
            server.end_watches()
        await server.watched(PODS, times=5)

    assert time.slept == [0.1875, 0.375, 0.75, 1.5]


async def test_an_event_resets(server, api, listener, time):
    """One event is a success: the next pause is a short one."""
    server.fault("GET", PODS.path, refuse(500, "InternalError", "no"), times=4)
    reflector = Reflector(
        api, PODS, listener, clock=time.clock_s, sleep=time.sleep, random=lambda: 0.5
    )
    async with running(reflector):
        await server.watched(PODS)
        server.bookmark(PODS)
        server.end_watches()
        await server.watched(PODS, times=2)
        server.fault("GET", PODS.path, cut, times=2)  # the HTTP client retries one
        time.now_s += SHORT_S
        server.end_watches()
        await until(lambda: len(time.slept) == 5)

    assert time.slept == [0.1875, 0.375, 0.75, 1.5, 0.1875]
