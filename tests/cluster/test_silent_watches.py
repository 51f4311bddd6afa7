"""Silent watches are replaced; staleness is the age of the cache."""

import asyncio
import json
import socket

import pytest
from aiohttp import web

from scheduler.cluster import pool
from scheduler.cluster.reflector import MUTE_MAX, SILENCE_S, Reflector
from scheduler.cluster.resource import NODES, PODS
from scheduler.settings import Settings
from tests.cluster.api_server import hang
from tests.cluster.factories import pod
from tests.waiting import running, until

UNDECODABLE = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "no such kind"}


def mute(how):
    """Create a fault of watches: they open, and then "end", stay "silent" or send an "error"."""

    async def fault(request):
        if "watch" not in request.query:
            return None
        answer = web.StreamResponse()
        await answer.prepare(request)
        if how == "silent":
            await asyncio.Event().wait()
        if how == "error":
            await answer.write(
                json.dumps({"type": "ERROR", "object": UNDECODABLE}).encode() + b"\n"
            )
        return answer

    return fault


async def test_silent_watch_is_replaced(server, api, listener, time):
    """A watch without even a bookmark is closed; the next starts at the same version."""
    server.fault("GET", PODS.path, mute("silent"), times=2)  # the list, and the first watch
    reflector = Reflector(api, PODS, listener, clock=time.clock_s, sleep=time.sleep, silence_s=0.05)
    async with running(reflector):
        await server.watched(PODS, times=2)
        trouble = reflector.trouble

    versions = {seen.query["resourceVersion"] for seen in server.watch_requests(PODS)}
    assert versions == {str(server.store.version)}
    assert len(server.list_requests(PODS)) == 1
    assert trouble is None


@pytest.mark.parametrize("how", ["end", "silent", "error"])
async def test_watches_without_a_report_lead_to_a_list(server, api, listener, time, how):
    """After two in a row a list shows the withheld changes; the trouble lasts until a report."""
    server.fault("GET", PODS.path, mute(how), times=1 + MUTE_MAX + 2)  # two of these are lists
    silence_s = 0.5 if how == "silent" else 60.0  # the last watch has to answer within it
    reflector = Reflector(api, PODS, listener, sleep=time.sleep, silence_s=silence_s)
    async with running(reflector):
        first = await listener.next()
        server.put(PODS, pod("held-back"))
        relisted = await listener.next()
        await server.watched(PODS, times=MUTE_MAX + 2)
        await server.until(lambda: bool(server.watches[PODS.path]))
        trouble = reflector.trouble
        server.put(PODS, pod("a"))
        report = await listener.next()
        await until(lambda: reflector.trouble is None)

    expected = {"error": "500 InternalError: no such kind"}
    silence = "2 consecutive watches got neither an event nor a bookmark"
    assert [first, relisted, report] == [
        ("replace", []),
        ("replace", ["held-back"]),
        ("upsert", "a"),
    ]
    assert trouble == expected.get(how, silence)
    assert len(server.list_requests(PODS)) == 2


async def test_bookmarks_are_enough(server, api, listener, time):
    """Watches with only a bookmark each never lead to a list, however quiet the cluster is."""
    async with running(Reflector(api, PODS, listener, clock=time.clock_s, sleep=time.sleep)):
        for times in range(1, 6):
            await server.watched(PODS, times=times)
            await server.until(lambda: bool(server.watches[PODS.path]))
            server.bookmark(PODS)
            server.end_watches()
        await server.watched(PODS, times=6)

    assert len(server.list_requests(PODS)) == 1


def test_relist_comes_before_the_cache_is_stale():
    """With silent watches the service relists in time, and stays ready."""
    assert Settings().stale_after_s > MUTE_MAX * SILENCE_S


async def test_opened_watch_does_not_reset_staleness(server, api, listener, time):
    """Opening a watch does not make the cache fresher."""
    async with running(
        reflector := Reflector(api, PODS, listener, clock=time.clock_s, sleep=time.sleep)
    ):
        await server.watched(PODS)
        await listener.next()
        server.put(PODS, pod("a"))
        await listener.next()
        time.now_s += 100
        for times in (2, 3):
            server.end_watches()
            await server.watched(PODS, times=times)
            await server.until(lambda: bool(server.watches[PODS.path]))
        stale_s = reflector.staleness_s()

    assert stale_s >= 100


async def test_connections_are_probed(server, api, listener, monkeypatch):
    """Idle connections have TCP keep-alive probes, to notice a vanished peer."""
    sockets: list[socket.socket] = []
    probed_socket = pool.probed_socket

    def recorded(address):
        sockets.append(probed_socket(address))
        return sockets[-1]

    monkeypatch.setattr(pool, "probed_socket", recorded)
    async with running(Reflector(api, PODS, listener)):
        await server.watched(PODS)
        kept_alive = [s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for s in sockets]
        idle_s = [s.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) for s in sockets]

    assert kept_alive == [1]
    assert idle_s == [15]


async def test_unanswered_watch_is_replaced(server, api, listener, time):
    """A watch request without an answer is cancelled, too."""

    async def hang_if_watch(request):
        if "watch" in request.query:
            await hang(request)

    server.fault("GET", PODS.path, hang_if_watch, times=2)
    reflector = Reflector(api, PODS, listener, sleep=time.sleep, silence_s=0.05)
    async with running(reflector):
        await server.watched(PODS, times=2)
        server.put(PODS, pod("a"))
        await listener.next()
        report = await listener.next()

    assert report == ("upsert", "a")


async def test_staleness_grows_until_a_report(server, api, listener, time):
    """Staleness is the time since the last answer; an event or a bookmark resets it."""
    reflector = Reflector(api, PODS, listener, clock=time.clock_s, sleep=time.sleep)
    time.now_s += 3
    before = reflector.staleness_s()
    async with running(reflector):
        await server.watched(PODS)
        await listener.next()
        time.now_s += 40
        quiet = reflector.staleness_s()
        server.bookmark(PODS)
        await until(lambda: reflector.staleness_s() == 0)
        time.now_s += 5
        server.put(PODS, pod("a"))
        await listener.next()
        after_event_s = reflector.staleness_s()

    assert (before, quiet, after_event_s) == (3, 40, 0)


async def test_staleness_without_a_server(server, api, listener, time):
    """Staleness grows while the server is down."""
    reflector = Reflector(api, NODES, listener, clock=time.clock_s, sleep=time.sleep)
    async with running(reflector):
        await server.watched(NODES)
        await server.stop()
        await until(lambda: len(time.slept) >= 3)
        stale = reflector.staleness_s()

    assert stale >= time.slept[0] + time.slept[1]
