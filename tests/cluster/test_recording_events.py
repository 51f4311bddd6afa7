"""Events on pods and nodes: written in the background, counted up, and never in the way."""

from typing import Any

import pytest

from scheduler.cluster.api import Api
from scheduler.cluster.events import (
    BURST,
    RATE,
    REMEMBERED_MAX,
    REPEAT_S,
    WAITING_MAX,
    WINDOW_S,
    Recorder,
    Reference,
)
from tests.cluster.api_server import ApiServer, hang, refuse
from tests.cluster.props import VirtualTime, running, until

POD = Reference.pod("default", "a", "uid-a")


@pytest.fixture
def recorder(api: Api, time: VirtualTime) -> Recorder:
    return Recorder(api, clock=time.clock, wall_clock=lambda: time.now, sleep=time.sleep)


def miss(recorder: Recorder, message: str = "no", reference: Reference = POD) -> None:
    """Record one."""
    recorder.record(reference, type="Warning", reason="SloOutOfReach", message=message)


async def test_on_a_pod(server: ApiServer, recorder: Recorder) -> None:
    """An event names the pod, its UID, the reason, the message, and who says so."""
    miss(recorder, "fastest takes 300 ms, 200 are left")
    async with running(recorder):
        await until(lambda: len(server.events) == 1)

    (event,) = server.events.values()
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


async def test_on_a_node(server: ApiServer, recorder: Recorder) -> None:
    """A node's event lies in the namespace default and has the name for a UID, as kubectl looks."""
    miss(recorder, reference=Reference.node("n1"))
    async with running(recorder):
        await until(lambda: len(server.events) == 1)

    (event,) = server.events.values()
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n1",
        "uid": "n1",
    }


async def test_a_repetition_counts_up(
    server: ApiServer, recorder: Recorder, time: VirtualTime
) -> None:
    """The same reason again is the same event, with a count and the newest message."""
    async with running(recorder):
        miss(recorder, "first")
        await until(lambda: len(server.events) == 1)
        miss(recorder, "second")
        time.now += REPEAT_S
        miss(recorder, "third")
        await until(lambda: len(server.seen("PATCH", "")) == 1)
        await until(lambda: next(iter(server.events.values()))["count"] == 3)

    (event,) = server.events.values()
    assert event["message"] == "third"
    assert event["lastTimestamp"] > event["firstTimestamp"]


async def test_repetitions_before_it_is_written(server: ApiServer, recorder: Recorder) -> None:
    """What is repeated before the first was written is written once, with its count."""
    for number in range(5):
        miss(recorder, f"message {number}")
    async with running(recorder):
        await until(lambda: len(server.events) == 1)

    (event,) = server.events.values()
    assert (event["count"], event["message"]) == (5, "message 4")
    assert len(server.requests) == 1


async def test_after_the_window(server: ApiServer, recorder: Recorder, time: VirtualTime) -> None:
    """After five minutes it is a new event."""
    async with running(recorder):
        miss(recorder)
        await until(lambda: len(server.events) == 1)
        time.now += WINDOW_S + 1
        miss(recorder)
        await until(lambda: len(server.events) == 2)

    assert {event["count"] for event in server.events.values()} == {1}


async def test_an_event_that_the_server_forgot(
    server: ApiServer, recorder: Recorder, time: VirtualTime
) -> None:
    """If the event that would be counted up is gone, it is written anew with its count."""
    async with running(recorder):
        miss(recorder)
        await until(lambda: len(server.events) == 1)
        server.events.clear()
        time.now += REPEAT_S
        miss(recorder)
        await until(lambda: len(server.events) == 1)

    (event,) = server.events.values()
    assert event["count"] == 2


async def test_other_reasons_and_objects(server: ApiServer, recorder: Recorder) -> None:
    """Another reason, or another object, is another event."""
    miss(recorder)
    miss(recorder, reference=Reference.pod("default", "b", "uid-b"))
    recorder.record(POD, type="Normal", reason="Granted", message="30 % of GPU-1")
    async with running(recorder):
        await until(lambda: len(server.events) == 3)

    assert recorder.dropped == 0


async def test_no_faster_than_the_rate(
    server: ApiServer, recorder: Recorder, time: VirtualTime
) -> None:
    """After a burst, events are written at the rate."""
    count = int(BURST) + 20
    began = time.now
    for number in range(count):
        miss(recorder, reference=Reference.pod("default", f"p{number}", "u"))
    async with running(recorder):
        await until(lambda: len(server.events) == count)

    assert time.now - began == pytest.approx(20 / RATE)


async def test_too_many_wait(recorder: Recorder) -> None:
    """What does not fit in the queue is dropped and counted; nothing is raised."""
    for number in range(WAITING_MAX + 7):
        miss(recorder, reference=Reference.pod("default", f"p{number}", "u"))

    assert recorder.dropped == 7


async def test_a_repetition_finds_the_queue_full(
    server: ApiServer, recorder: Recorder, time: VirtualTime
) -> None:
    """A repetition that does not fit is dropped too."""
    async with running(recorder):
        miss(recorder)
        await until(lambda: len(server.events) == 1)
    time.now += REPEAT_S
    for number in range(WAITING_MAX):
        miss(recorder, reference=Reference.pod("default", f"p{number}", "u"))
    miss(recorder)

    assert recorder.dropped == 1


async def test_what_is_remembered_is_bounded(recorder: Recorder) -> None:
    """However many objects have events, only so many are remembered."""
    for number in range(REMEMBERED_MAX + 10):
        recorder._waiting.clear()
        miss(recorder, reference=Reference.pod("default", f"p{number}", "u"))

    assert len(recorder._known) == REMEMBERED_MAX


async def test_a_refusal_is_dropped(
    server: ApiServer, recorder: Recorder, logged: list[dict[str, Any]]
) -> None:
    """What the server refuses is dropped, logged once, and does not stop the next."""
    server.fault("POST", "events", refuse(403, "Forbidden", "User x cannot create events"), times=3)
    async with running(recorder):
        for name in "abcd":
            miss(recorder, reference=Reference.pod("default", name, "u"))
        await until(lambda: len(server.events) == 1)

    assert recorder.dropped == 3
    assert [entry["event"] for entry in logged] == ["events.failing"]


async def test_a_repetition_is_refused(
    server: ApiServer, recorder: Recorder, time: VirtualTime
) -> None:
    """A PATCH that fails otherwise than by 404 is dropped."""
    server.fault("PATCH", "", refuse(500, "InternalError", "etcd"))
    async with running(recorder):
        miss(recorder)
        await until(lambda: len(server.events) == 1)
        time.now += REPEAT_S
        miss(recorder)
        await until(lambda: recorder.dropped == 1)


async def test_the_server_hangs(
    server: ApiServer, api: Api, time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that does not answer costs one event, not all."""
    monkeypatch.setattr("scheduler.cluster.events.TIMEOUT_S", 0.4)
    recorder = Recorder(api, clock=time.clock, wall_clock=lambda: time.now, sleep=time.sleep)
    server.fault("POST", "events", hang)
    async with running(recorder):
        miss(recorder, reference=Reference.pod("default", "lost", "u"))
        miss(recorder)
        await until(lambda: len(server.events) == 1)

    assert recorder.dropped == 1


@pytest.mark.parametrize("name", ["../../nodes", "", "A", "x" * 300])
async def test_no_name(server: ApiServer, recorder: Recorder, name: str) -> None:
    """An event on something that cannot be is dropped, and never becomes part of a path."""
    miss(recorder, reference=Reference.pod("default", name, "u"))
    miss(recorder, reference=Reference.pod(name, "a", "u"))
    async with running(recorder):
        miss(recorder)
        await until(lambda: len(server.events) == 1)

    assert recorder.dropped == (1 if name == "" else 2)


async def test_a_long_message(server: ApiServer, recorder: Recorder) -> None:
    """A message is cut to what the server takes."""
    miss(recorder, "x" * 5000)
    async with running(recorder):
        await until(lambda: len(server.events) == 1)

    (event,) = server.events.values()
    assert len(event["message"]) == 1024
