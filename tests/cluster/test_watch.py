"""The watch after the list: changes in order, bookmarks, and one watch after another."""

import json

import pytest

from scheduler.cluster.reflector import WATCH_S, Reflector
from scheduler.cluster.resource import PODS
from tests.cluster.factories import pod
from tests.waiting import running


async def test_changes_in_order(server, api, listener):
    """Additions, changes and deletions are reported in order."""
    async with running(Reflector(api, PODS, listener)):
        await server.watched(PODS)
        server.put(PODS, pod("a"))
        server.put(PODS, pod("a", nodeName="n1"))
        server.remove(PODS, "a", "default")
        report = [await listener.next() for _ in range(4)]

    assert report == [("replace", []), ("upsert", "a"), ("upsert", "a"), ("delete", "a")]


async def test_no_change_is_lost_between_list_and_watch(server, api, listener):
    """The watch starts at the list's version, so a change in between is reported."""

    async def change_first(_request):
        server.put(PODS, pod("between"))

    server.put(PODS, pod("a"))
    async with running(Reflector(api, PODS, listener)):
        await listener.next()
        listed_at = server.store.version
        server.fault("GET", PODS.path, change_first)
        server.end_watches()
        report = await listener.next()

    assert report == ("upsert", "between")
    assert server.watch_requests(PODS)[0].query["resourceVersion"] == str(listed_at)


async def test_bookmarks_move_the_version(server, api, listener):
    """A bookmark is not passed on, and the next watch starts at its version."""
    async with running(Reflector(api, PODS, listener)):
        await server.watched(PODS)
        marked = server.bookmark(PODS)
        server.end_watches()
        await server.watched(PODS, times=2)

    assert listener.reports.qsize() == 1
    assert server.watch_requests(PODS)[1].query["resourceVersion"] == marked
    assert len(server.list_requests(PODS)) == 1


async def test_bookmarks_are_requested(server, api, listener):
    """Each watch requests bookmarks, and a random duration between the two bounds."""
    numbers = iter([0.0, 0.5, 0.999, 0.5])

    async with running(Reflector(api, PODS, listener, random=lambda: next(numbers))):
        for times in (1, 2, 3):
            await server.watched(PODS, times=times)
            server.bookmark(PODS)
            server.end_watches()
        await server.watched(PODS, times=4)

    queries = [seen.query for seen in server.watch_requests(PODS)]
    assert {query["allowWatchBookmarks"] for query in queries} == {"true"}
    durations_s = [int(query["timeoutSeconds"]) for query in queries]
    assert durations_s == [WATCH_S[0], 360, WATCH_S[1], 360]


async def test_long_line(server, api, listener):
    """A watch passes an object of 1.5 MiB, the maximum that etcd stores."""
    big = pod("big")
    big["metadata"]["annotations"] = {"esg-scheduler.io/plan": "x" * 1_500_000}

    async with running(Reflector(api, PODS, listener)):
        await server.watched(PODS)
        await listener.next()
        server.put(PODS, big)
        report = await listener.next()

    assert report == ("upsert", "big")
    annotations = listener.objects["big"]["metadata"]["annotations"]
    assert len(annotations["esg-scheduler.io/plan"]) == 1_500_000


@pytest.mark.parametrize("value", [r'"\ud800"', 300 * "[" + 300 * "]"], ids=("surrogate", "deep"))
async def test_unusual_json(value, server, api, listener):
    """A watch passes an object with a lone surrogate, or of many levels."""
    stored = pod("odd")
    stored["metadata"] |= {"resourceVersion": "500", "managedFields": "VALUE"}
    line = json.dumps({"type": "ADDED", "object": stored}).replace('"VALUE"', value)

    async with running(Reflector(api, PODS, listener)):
        await server.watched(PODS)
        await listener.next()
        server.say_bytes(PODS, line.encode() + b"\n")
        report = await listener.next()

    assert report == ("upsert", "odd")


async def test_lines_in_pieces(server, api, listener):
    """Lines that arrive in pieces, or several at once, are reported one by one."""

    def line(name):
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


async def test_incomplete_line_at_the_end(server, api, listener, time):
    """A line that the end of the connection cut off is ignored; the next watch repeats it."""
    reflector = Reflector(api, PODS, listener, clock=time.clock_s, sleep=time.sleep)
    async with running(reflector):
        await server.watched(PODS)
        await listener.next()
        server.say_bytes(PODS, b'{"type": "ADDED", "object": {"metadata"')
        server.end_watches()
        server.put(PODS, pod("a"))
        report = await listener.next()

    assert report == ("upsert", "a")
    assert reflector.trouble is None


async def test_invalid_line_leads_to_a_list(server, api, listener, time):
    """A line that is not an event puts the cache in doubt: the reflector pauses and relists."""
    async with running(Reflector(api, PODS, listener, clock=time.clock_s, sleep=time.sleep)):
        await server.watched(PODS)
        await listener.next()
        server.say_bytes(PODS, b"<html>\n")
        report = await listener.next()

    assert report == ("replace", [])
    assert len(time.slept) == 1
