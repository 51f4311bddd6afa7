"""A connection that died without a word is noticed; staleness says how old the picture is."""

import socket
from typing import Any

import pytest

from scheduler.cluster import pool
from scheduler.cluster.api import Api
from scheduler.cluster.reflector import Reflector
from scheduler.cluster.resource import NODES, PODS
from tests.cluster.api_server import ApiServer, hang
from tests.cluster.props import Listener, VirtualTime, pod, running, until


async def test_silence_makes_a_new_watch(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime
) -> None:
    """A watch that says nothing, no bookmark even, is given up; the next begins where it was."""
    reflector = Reflector(api, PODS, listener, clock=time.clock, sleep=time.sleep, silence_s=0.05)
    async with running(reflector):
        for times in (1, 2):
            await server.watched(PODS, times=times)
            time.now += 180
        await server.watched(PODS, times=3)
        trouble = reflector.trouble

    versions = {seen.query["resourceVersion"] for seen in server.watch_requests(PODS)}
    assert versions == {str(server.version)}
    assert len(server.list_requests(PODS)) == 1
    assert trouble is None


async def test_connections_are_probed(
    server: ApiServer, api: Api, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel is asked to probe idle connections, so that a peer that vanished is noticed."""
    made: list[socket.socket] = []
    probed_socket = pool.probed_socket

    def remembered(address: tuple[Any, ...]) -> socket.socket:
        made.append(probed_socket(address))
        return made[-1]

    monkeypatch.setattr(pool, "probed_socket", remembered)
    async with running(Reflector(api, PODS, listener)):
        await server.watched(PODS)
        kept_alive = [s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for s in made]
        idle_s = [s.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) for s in made]

    assert kept_alive == [1]
    assert idle_s == [15]


async def test_a_watch_that_is_never_answered(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime
) -> None:
    """A watch request without an answer is given up likewise."""

    async def hang_if_watch(request: object) -> None:
        if "watch" in request.query:  # type: ignore[attr-defined]
            await hang(request)  # type: ignore[arg-type]

    server.fault("GET", PODS.path, hang_if_watch, times=2)
    reflector = Reflector(api, PODS, listener, sleep=time.sleep, silence_s=0.05)
    async with running(reflector):
        await server.watched(PODS, times=2)
        server.put(PODS, pod("a"))
        await listener.next()
        told = await listener.next()

    assert told == ("upsert", "a")


async def test_staleness_grows_until_something_is_heard(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime
) -> None:
    """Staleness is the time since the server was heard; an event or a bookmark sets it to 0."""
    reflector = Reflector(api, PODS, listener, clock=time.clock, sleep=time.sleep)
    time.now += 3
    before = reflector.staleness_s()
    async with running(reflector):
        await server.watched(PODS)
        await listener.next()
        time.now += 40
        quiet = reflector.staleness_s()
        server.bookmark(PODS)
        await until(lambda: reflector.staleness_s() == 0)
        time.now += 5
        server.put(PODS, pod("a"))
        await listener.next()
        heard = reflector.staleness_s()

    assert (before, quiet, heard) == (3, 40, 0)


async def test_staleness_without_a_server(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime
) -> None:
    """While the server is away staleness goes on growing."""
    reflector = Reflector(api, NODES, listener, clock=time.clock, sleep=time.sleep)
    async with running(reflector):
        await server.watched(NODES)
        await server.stop()
        await until(lambda: len(time.slept) >= 3)
        stale = reflector.staleness_s()

    assert stale >= time.slept[0] + time.slept[1]
