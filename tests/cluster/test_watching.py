"""After the list: each change in order, bookmarks, and one watch after the other."""

import json

from scheduler.cluster.api import Api
from scheduler.cluster.reflector import WATCH_S, Reflector
from scheduler.cluster.resource import PODS
from tests.cluster.api_server import ApiServer
from tests.cluster.props import Listener, VirtualTime, pod, running


async def test_changes_in_order(server: ApiServer, api: Api, listener: Listener) -> None:
    """What is added, changed and deleted is told in that order."""
    async with running(Reflector(api, PODS, listener)):
        await server.watched(PODS)
        server.put(PODS, pod("a"))
        server.put(PODS, pod("a", nodeName="n1"))
        server.remove(PODS, "a", "default")
        told = [await listener.next() for _ in range(4)]

    assert told == [("replace", []), ("upsert", "a"), ("upsert", "a"), ("delete", "a")]


async def test_nothing_is_lost_between_list_and_watch(
    server: ApiServer, api: Api, listener: Listener
) -> None:
    """The watch begins at the list's version, so a change in between is told."""

    async def change_first(_request: object) -> None:
        server.put(PODS, pod("between"))

    server.put(PODS, pod("a"))
    async with running(Reflector(api, PODS, listener)):
        await listener.next()
        listed_at = server.version
        server.fault("GET", PODS.path, change_first)
        server.end_watches()
        told = await listener.next()

    assert told == ("upsert", "between")
    assert server.watch_requests(PODS)[0].query["resourceVersion"] == str(listed_at)


async def test_bookmarks_move_the_version(server: ApiServer, api: Api, listener: Listener) -> None:
    """A bookmark tells the handler nothing, and the next watch begins at its version."""
    async with running(Reflector(api, PODS, listener)):
        await server.watched(PODS)
        marked = server.bookmark(PODS)
        server.end_watches()
        await server.watched(PODS, times=2)

    assert listener.told.qsize() == 1
    assert server.watch_requests(PODS)[1].query["resourceVersion"] == marked
    assert len(server.list_requests(PODS)) == 1


async def test_bookmarks_are_asked_for(server: ApiServer, api: Api, listener: Listener) -> None:
    """Each watch asks for bookmarks, and for a time that is spread between the two bounds."""
    numbers = iter([0.0, 0.5, 0.999, 0.5])

    async with running(Reflector(api, PODS, listener, random=lambda: next(numbers))):
        for times in (1, 2, 3):
            await server.watched(PODS, times=times)
            server.bookmark(PODS)
            server.end_watches()
        await server.watched(PODS, times=4)

    queries = [seen.query for seen in server.watch_requests(PODS)]
    assert {query["allowWatchBookmarks"] for query in queries} == {"true"}
    asked = [int(query["timeoutSeconds"]) for query in queries]
    assert asked == [WATCH_S[0], 360, WATCH_S[1], 360]


async def test_a_long_line(server: ApiServer, api: Api, listener: Listener) -> None:
    """An object of 1.5 MiB, the most that etcd stores, comes through a watch."""
    big = pod("big")
    big["metadata"]["annotations"] = {"esg-scheduler.io/plan": "x" * 1_500_000}

    async with running(Reflector(api, PODS, listener)):
        await server.watched(PODS)
        await listener.next()
        server.put(PODS, big)
        told = await listener.next()

    assert told == ("upsert", "big")
    annotations = listener.objects["big"]["metadata"]["annotations"]
    assert len(annotations["esg-scheduler.io/plan"]) == 1_500_000


async def test_lines_in_pieces(server: ApiServer, api: Api, listener: Listener) -> None:
    """Lines that arrive in pieces, or several at once, are told one by one."""

    def line(name: str) -> bytes:
        stored = pod(name)
        stored["metadata"]["resourceVersion"] = "500"
        return json.dumps({"type": "ADDED", "object": stored}).encode() + b"\n"

    async with running(Reflector(api, PODS, listener)):
        await server.watched(PODS)
        await listener.next()
        server.say_bytes(PODS, line("a") + line("b") + line("c")[:40])
        first = [await listener.next() for _ in range(2)]
        server.say_bytes(PODS, line("c")[40:])
        third = await listener.next()

    assert [*first, third] == [("upsert", "a"), ("upsert", "b"), ("upsert", "c")]


async def test_half_a_line_at_the_end(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime
) -> None:
    """A line that the server's end cut off is not believed; its object comes in the next watch."""
    reflector = Reflector(api, PODS, listener, clock=time.clock, sleep=time.sleep)
    async with running(reflector):
        await server.watched(PODS)
        await listener.next()
        server.say_bytes(PODS, b'{"type": "ADDED", "object": {"metadata"')
        server.end_watches()
        server.put(PODS, pod("a"))
        told = await listener.next()

    assert told == ("upsert", "a")
    assert reflector.trouble is None


async def test_nonsense_lists_anew(
    server: ApiServer, api: Api, listener: Listener, time: VirtualTime
) -> None:
    """A line that is no event puts the picture in doubt: it is drawn anew after a pause."""
    async with running(Reflector(api, PODS, listener, clock=time.clock, sleep=time.sleep)):
        await server.watched(PODS)
        await listener.next()
        server.say_bytes(PODS, b"<html>\n")
        told = await listener.next()

    assert told == ("replace", [])
    assert len(time.slept) == 1
