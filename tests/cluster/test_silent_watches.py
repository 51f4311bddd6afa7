"""A watch that says nothing is not believed; staleness says how old the picture is."""

import asyncio
import json
import socket
from typing import Any

import pytest
from aiohttp import web

from scheduler.cluster import pool
from scheduler.cluster.api import Api
from scheduler.cluster.reflector import MUTE_MAX, SILENCE_S, Reflector
from scheduler.cluster.resource import NODES, PODS
from scheduler.settings import Settings
from tests.cluster.api_server import ApiServer, Fault, hang
from tests.cluster.props import Listener, VirtualTime, pod, running, until

UNDECODABLE = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "no such kind"}


def mute(how: str) -> Fault:
    """A fault of watches: they open, and then "end", stay "silent" or bring an "error"."""

    async def fault(request: web.Request) -> web.StreamResponse | None:
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


async def test_silence_makes_a_new_watch(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime
) -> None:
    """A watch that says nothing, no bookmark even, is given up; the next begins where it was."""
    server.fault("GET", PODS.path, mute("silent"), times=2)  # the list, and the first watch
    reflector = Reflector(api, PODS, listener, clock=time.clock, sleep=time.sleep, silence_s=0.05)
    async with running(reflector):
        await server.watched(PODS, times=2)
        trouble = reflector.trouble

    versions = {seen.query["resourceVersion"] for seen in server.watch_requests(PODS)}
    assert versions == {str(server.version)}
    assert len(server.list_requests(PODS)) == 1
    assert trouble is None


@pytest.mark.parametrize("how", ["end", "silent", "error"])
async def test_watches_that_bring_nothing_lead_to_a_list(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime, how: str
) -> None:
    """Two on end, and the list tells what they held back; it is told until a watch works."""
    server.fault("GET", PODS.path, mute(how), times=1 + MUTE_MAX + 2)  # two of these are lists
    reflector = Reflector(api, PODS, listener, sleep=time.sleep, silence_s=0.05)
    async with running(reflector):
        first = await listener.next()
        server.put(PODS, pod("held-back"))
        anew = await listener.next()
        await server.watched(PODS, times=MUTE_MAX + 2)
        await server.until(lambda: bool(server.collections[PODS.path].watches))
        trouble = reflector.trouble
        server.put(PODS, pod("a"))
        told = await listener.next()
        await until(lambda: reflector.trouble is None)

    expected = {"error": "500 InternalError: no such kind"}
    other = "2 watches on end brought neither an event nor a bookmark"
    assert [first, anew, told] == [("replace", []), ("replace", ["held-back"]), ("upsert", "a")]
    assert trouble == expected.get(how, other)
    assert len(server.list_requests(PODS)) == 2


async def test_bookmarks_are_enough(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime
) -> None:
    """However quiet the cluster is: watches that bring a bookmark each never lead to a list."""
    async with running(Reflector(api, PODS, listener, clock=time.clock, sleep=time.sleep)):
        for times in range(1, 6):
            await server.watched(PODS, times=times)
            await server.until(lambda: bool(server.collections[PODS.path].watches))
            server.bookmark(PODS)
            server.end_watches()
        await server.watched(PODS, times=6)

    assert len(server.list_requests(PODS)) == 1


def test_a_list_comes_before_the_picture_is_stale() -> None:
    """Where no watch says anything the service lives by lists, and stays ready."""
    assert Settings().stale_after_s > MUTE_MAX * SILENCE_S


async def test_an_opened_watch_is_not_heard(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime
) -> None:
    """That a watch can be opened does not make the picture any fresher."""
    async with running(
        reflector := Reflector(api, PODS, listener, clock=time.clock, sleep=time.sleep)
    ):
        await server.watched(PODS)
        await listener.next()
        server.put(PODS, pod("a"))
        await listener.next()
        time.now += 100
        for times in (2, 3):
            server.end_watches()
            await server.watched(PODS, times=times)
            await server.until(lambda: bool(server.collections[PODS.path].watches))
        stale_s = reflector.staleness_s()

    assert stale_s >= 100


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
