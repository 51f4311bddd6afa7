"""Requests that cannot be in time: they run last, on pods that no other needs, or are dropped."""

from math import inf

from scheduler.dispatch.batching import LATE_MS
from tests.dispatch.harness import Owner
from tests.documents import profile, workflow

ROWS = [(1, 1, 50, 100), (2, 1, 50, 150), (4, 1, 50, 220), (1, 2, 100, 60), (2, 2, 100, 90)]


def test_late_requests_do_not_make_the_next_ones_late():
    """A job that cannot be in time runs when nothing that can be waits for the pod."""
    owner = Owner([profile("f0", ROWS), workflow([[]])])
    late = owner.arrive(deadline_ms=10.0)
    timely = [owner.arrive(deadline_ms=500.0) for _ in range(5)]
    owner.pod("a")
    now_ms = 0.0
    while owner.open_runs:
        now_ms = owner.open_runs[0].end_ms
        owner.dispatcher.run_ended(owner.open_runs[0], now_ms)
    assert owner.ended == [*timely, late]


def served_with_a_late_one(requests):
    """End times of a late request, and of timely ones every 100 ms that run for 90 ms on one pod.

    The late one arrives when the pod has been in use for a while, in a gap of 10 ms.
    """
    owner = Owner([profile("f0", [(1, 1, 50, 90)]), workflow([[]])])
    owner.pod("a")
    late, ends_ms = None, {}
    for i in range(requests):
        now_ms = 100.0 * i
        owner.arrive(i, now_ms=now_ms, deadline_ms=now_ms + 99.0)
        now_ms += 90.0
        if len(owner.open_runs) == 1:
            owner.dispatcher.run_ended(owner.open_runs[0], now_ms)
        if i == 3:
            late = owner.arrive("late", now_ms=now_ms + 5.0, deadline_ms=now_ms + 10.0)
        ends_ms |= {request.payload: now_ms for request in owner.ended[len(ends_ms) :]}
    return owner, late, ends_ms


def test_a_late_request_waits_for_a_pod_that_nobody_else_needs():
    """While the next request is expected before its end it does not run; then it does."""
    owner, late, ends_ms = served_with_a_late_one(20)
    assert all(ends_ms[i] == 100.0 * i + 90.0 for i in range(20))
    assert late not in owner.ended
    for _ in range(10):
        if owner.open_runs:
            owner.dispatcher.run_ended(owner.open_runs[0], owner.open_runs[0].end_ms)
        owner.dispatcher.wake(owner.dispatcher.wake_at_ms)
    assert owner.ended[-1] is late


def test_a_late_request_does_not_wait_for_ever():
    """After some seconds it runs, though others need the pod."""
    _, _, ends_ms = served_with_a_late_one(150)
    assert LATE_MS < ends_ms["late"] < LATE_MS + 1_000.0


def test_late_requests_are_dropped_where_their_workflow_says_so():
    """They are dropped at their deadline at the latest, without an event."""
    owner = Owner([profile("f0", ROWS), workflow([[]])], on_late="drop")
    owner.pod("a")
    first = owner.arrive(deadline_ms=150.0)
    second = owner.arrive(deadline_ms=160.0)
    assert owner.dropped in ([], [(second, "late")])
    owner.dispatcher.wake(owner.dispatcher.wake_at_ms)
    owner.dispatcher.run_ended(owner.runs[0], 200.0)
    assert owner.ended == [first]
    assert owner.dropped == [(second, "late")]


def test_late_requests_are_dropped_while_all_pods_are_busy():
    """A deadline that passes behind a long run is a look at that time, and none after it."""
    owner = Owner([profile("f0", [(1, 1, 50, 100)]), workflow([[]])], on_late="drop")
    owner.pod("a")
    owner.arrive(deadline_ms=150.0)
    request = owner.arrive(deadline_ms=250.0)
    owner.dispatcher.wake(250.0)
    assert owner.dropped == [(request, "late")]
    assert owner.dispatcher.wake_at_ms == inf
