"""Events on pods and nodes: written in the background, counted, and never blocking."""

import pytest

from scheduler.cluster.events import (
    BURST,
    QUEUE_MAX,
    RATE,
    RECENT_MAX,
    REPEAT_S,
    WINDOW_S,
    Recorder,
    Reference,
)
from tests.cluster.api_server import hang, refuse
from tests.waiting import running, until
from workbench.cluster.api_requests import EVENTS

POD = Reference.pod("default", "a", "uid-a")


@pytest.fixture
def recorder(api, time):
    return Recorder(api, clock=time.clock_s, wall_clock=lambda: time.now_s, sleep=time.sleep)


def miss(recorder, message="no", reference=POD):
    """Record an event."""
    recorder.record(reference, type="Warning", reason="SloOutOfReach", message=message)


async def test_on_a_pod(server, recorder):
    """An event has the pod, its UID, the reason, the message, and the component."""
    miss(recorder, "fastest takes 300 ms, 200 are left")
    async with running(recorder):
        await until(lambda: len(server.events) == 1)

    (event,) = server.events
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "a",
        "namespace": "default",
        "uid": "uid-a",
    }
    assert (event["type"], event["reason"]) == ("Warning", "SloOutOfReach")
    assert event["message"] == "fastest takes 300 ms, 200 are left"
    assert event["count"] == 1
    assert event["firstTimestamp"] == event["lastTimestamp"] == "1970-01-01T00:16:40Z"
    assert event["source"] == {"component": "esg-scheduler"}


async def test_on_a_workflow(server, recorder):
    """A Workflow's event names the version of its API group."""
    miss(recorder, reference=Reference.workflow("space", "w", "u-1"))
    async with running(recorder):
        await until(lambda: len(server.events) == 1)

    (event,) = server.events
    assert event["metadata"]["namespace"] == "space"
    assert event["involvedObject"] == {
        "apiVersion": "esg-scheduler.io/v1alpha1",
        "kind": "Workflow",
        "name": "w",
        "namespace": "space",
        "uid": "u-1",
    }


async def test_on_a_node(server, recorder):
    """A node's event is in the namespace default, with the node's name as UID, for kubectl."""
    miss(recorder, reference=Reference.node("n1"))
    async with running(recorder):
        await until(lambda: len(server.events) == 1)

    (event,) = server.events
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n1",
        "uid": "n1",
    }


async def test_repetition_is_counted(server, recorder, time):
    """The same reason again is the same event, with a count and the newest message."""
    async with running(recorder):
        miss(recorder, "first")
        await until(lambda: len(server.events) == 1)
        miss(recorder, "second")
        time.now_s += REPEAT_S
        miss(recorder, "third")
        await until(lambda: len(server.seen("PATCH", "")) == 1)
        await until(lambda: next(iter(server.events))["count"] == 3)

    (event,) = server.events
    assert event["message"] == "third"
    assert event["lastTimestamp"] > event["firstTimestamp"]


async def test_repetitions_before_it_is_written(server, recorder):
    """Repetitions before the first write are one write, with their count."""
    for number in range(5):
        miss(recorder, f"message {number}")
    async with running(recorder):
        await until(lambda: len(server.events) == 1)

    (event,) = server.events
    assert (event["count"], event["message"]) == (5, "message 4")
    assert len(server.requests) == 1


async def test_after_the_window(server, recorder, time):
    """After five minutes it is a new event."""
    async with running(recorder):
        miss(recorder)
        await until(lambda: len(server.events) == 1)
        time.now_s += WINDOW_S + 1
        miss(recorder)
        await until(lambda: len(server.events) == 2)

    assert {event["count"] for event in server.events} == {1}


async def test_event_that_the_server_deleted(server, recorder, time):
    """If the event with the count no longer exists, a new one is written with that count."""
    async with running(recorder):
        miss(recorder)
        await until(lambda: len(server.events) == 1)
        (written,) = server.events
        server.store.delete(EVENTS, ("default", written["metadata"]["name"]))
        time.now_s += REPEAT_S
        miss(recorder)
        await until(lambda: len(server.events) == 1)

    (event,) = server.events
    assert event["count"] == 2


async def test_other_reasons_and_objects(server, recorder):
    """Another reason, or another object, is another event."""
    miss(recorder)
    miss(recorder, reference=Reference.pod("default", "b", "uid-b"))
    recorder.record(POD, type="Normal", reason="Granted", message="30 % of GPU-1")
    async with running(recorder):
        await until(lambda: len(server.events) == 3)

    assert recorder.dropped == 0


async def test_no_faster_than_the_rate(server, recorder, time):
    """After a burst, events are written at the rate."""
    count = int(BURST) + 20
    start_s = time.now_s
    for number in range(count):
        miss(recorder, reference=Reference.pod("default", f"p{number}", "u"))
    async with running(recorder):
        await until(lambda: len(server.events) == count)

    assert time.now_s - start_s == pytest.approx(20 / RATE)


async def test_full_queue(recorder):
    """Events beyond the queue's size are dropped and counted; nothing is raised."""
    for number in range(QUEUE_MAX + 7):
        miss(recorder, reference=Reference.pod("default", f"p{number}", "u"))

    assert recorder.dropped == 7


async def test_repetition_with_a_full_queue(server, recorder, time):
    """A repetition that does not fit is dropped too."""
    async with running(recorder):
        miss(recorder)
        await until(lambda: len(server.events) == 1)
    time.now_s += REPEAT_S
    for number in range(QUEUE_MAX):
        miss(recorder, reference=Reference.pod("default", f"p{number}", "u"))
    miss(recorder)

    assert recorder.dropped == 1


@pytest.mark.slow
async def test_memory_of_events_is_bounded(server, recorder, time):
    """After events of too many objects, the first one is forgotten: its repetition is new."""
    async with running(recorder):
        for number in range(RECENT_MAX + 1):
            miss(recorder, reference=Reference.pod("default", f"p{number}", "u"))
            await until(lambda expected=number + 1: len(server.events) == expected)
        time.now_s += REPEAT_S
        miss(recorder, reference=Reference.pod("default", f"p{RECENT_MAX}", "u"))
        miss(recorder, reference=Reference.pod("default", "p0", "u"))
        await until(lambda: len(server.events) == RECENT_MAX + 2)

    assert len(server.seen("PATCH", "")) == 1
    assert recorder.dropped == 0


async def test_refused_event_is_dropped(server, recorder, logged):
    """An event that the server refuses is dropped, logged once, and does not stop the next."""
    server.fault("POST", "events", refuse(403, "Forbidden", "User x cannot create events"), times=3)
    async with running(recorder):
        for name in "abcd":
            miss(recorder, reference=Reference.pod("default", name, "u"))
        await until(lambda: len(server.events) == 1)

    assert recorder.dropped == 3
    assert [entry["event"] for entry in logged] == ["events.failing"]


async def test_refused_repetition_is_dropped(server, recorder, time):
    """A PATCH that fails with another status than 404 is dropped."""
    server.fault("PATCH", "", refuse(500, "InternalError", "etcd"))
    async with running(recorder):
        miss(recorder)
        await until(lambda: len(server.events) == 1)
        time.now_s += REPEAT_S
        miss(recorder)
        await until(lambda: recorder.dropped == 1)


async def test_hanging_server(server, api, time, monkeypatch):
    """A server that does not answer costs one event, not all."""
    monkeypatch.setattr("scheduler.cluster.events.TIMEOUT_S", 1.0)
    recorder = Recorder(api, clock=time.clock_s, wall_clock=lambda: time.now_s, sleep=time.sleep)
    server.fault("POST", "events", hang)
    async with running(recorder):
        miss(recorder, reference=Reference.pod("default", "lost", "u"))
        miss(recorder)
        await until(lambda: len(server.events) == 1)

    assert recorder.dropped == 1


@pytest.mark.parametrize("name", ["../../nodes", "", "A", "x" * 300])
async def test_invalid_name(server, recorder, name):
    """An event with an invalid name is dropped, and never becomes part of a path."""
    miss(recorder, reference=Reference.pod("default", name, "u"))
    miss(recorder, reference=Reference.pod(name, "a", "u"))
    async with running(recorder):
        miss(recorder)
        await until(lambda: len(server.events) == 1)

    assert recorder.dropped == (1 if name == "" else 2)


async def test_long_message(server, recorder):
    """A message is cut to the server's limit."""
    miss(recorder, "x" * 5000)
    async with running(recorder):
        await until(lambda: len(server.events) == 1)

    (event,) = server.events
    assert len(event["message"]) == 1024
