"""Requests that cannot be in time: they run last, on pods that no other needs, or are dropped."""

from math import inf

import pytest

from scheduler.dispatch.batching import LATE_MS
from scheduler.dispatch.run_times import Correction
from tests.dispatch.harness import Owner
from workbench.profiles.builders import profile, workflow

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


def served_with_late_ones(requests, *, late_ones=1):
    """End times of late requests, and of timely ones every 100 ms that run for 90 ms on one pod.

    The late ones arrive when the pod has been in use for a while, in a gap of 10 ms.
    """
    owner = Owner([profile("f0", [(1, 1, 50, 90)]), workflow([[]])])
    owner.pod("a")
    late, ends_ms = [], {}
    for i in range(requests):
        now_ms = 100.0 * i
        owner.arrive(i, now_ms=now_ms, deadline_ms=now_ms + 99.0)
        now_ms += 90.0
        if len(owner.open_runs) == 1:
            owner.dispatcher.run_ended(owner.open_runs[0], now_ms)
        if i == 3:
            late = [
                owner.arrive(f"late{n}", now_ms=now_ms + 5.0, deadline_ms=now_ms + 10.0)
                for n in range(late_ones)
            ]
        ends_ms |= {request.payload: now_ms for request in owner.ended[len(ends_ms) :]}
    return owner, late, ends_ms


def test_a_late_request_waits_for_a_pod_that_nobody_else_needs():
    """While the next request is expected before its end it does not run; then it does."""
    owner, [late], ends_ms = served_with_late_ones(20)
    assert all(ends_ms[i] == 100.0 * i + 90.0 for i in range(20))
    assert late not in owner.ended
    for _ in range(10):
        if owner.open_runs:
            owner.dispatcher.run_ended(owner.open_runs[0], owner.open_runs[0].end_ms)
        owner.dispatcher.wake(owner.dispatcher.wake_at_ms)
    assert owner.ended[-1] is late


def test_late_requests_run_in_short_batches_where_long_ones_would_need_too_many_pods():
    """The cheapest batch would hold its pod for many arrivals; a short one leaves enough free."""
    owner = Owner([profile("f0", [(1, 1, 50, 90), (16, 1, 50, 1_000)]), workflow([[]])])
    for name in ("a", "b", "c"):
        owner.pod(name)
    late, timely, ends_ms = [], [], {}
    for i in range(40):
        now_ms = 100.0 * i
        timely.append(owner.arrive(now_ms=now_ms, deadline_ms=now_ms + 99.0))
        if i == 3:
            late = [owner.arrive(now_ms=now_ms, deadline_ms=now_ms + 1.0) for _ in range(16)]
        for run in [run for run in owner.open_runs if run.end_ms <= now_ms + 95.0]:
            owner.dispatcher.run_ended(run, run.end_ms)
            ends_ms |= dict.fromkeys((job.request for job in run.jobs), run.end_ms)
    assert all(ends_ms[request] <= request.deadline_ms for request in timely)
    assert all(request in ends_ms for request in late)


def test_a_late_request_does_not_wait_for_ever():
    """After some seconds it runs, though others need the pod."""
    _, _, ends_ms = served_with_late_ones(150)
    assert LATE_MS < ends_ms["late0"] < LATE_MS + 1_000.0


def test_many_late_requests_take_little_of_a_pod_that_others_need():
    """Each such run makes a timely request late; together they take a hundredth of its time."""
    _, late, ends_ms = served_with_late_ones(400, late_ones=50)
    timely = [i for i in range(400) if ends_ms.get(i, inf) <= 100.0 * i + 99.0]
    assert 0.97 * 400 < len(timely) < 400
    assert 1 < sum(request.ended for request in late) < 10


def test_a_request_that_later_stages_would_make_late_takes_no_pod_from_others():
    """Rows wait there for longer than it has; so another one runs first, which is in time."""
    functions = [profile("f0", [(1, 1, 50, 200)]), profile("f1", [(1, 1, 50, 100)])]
    chain = workflow([[], [0]])
    single = {name: workflow([[]], name=name, functions=[name]) for name in ("f0", "f1")}
    owner = Owner([*functions, chain, *single.values()])
    backlog = [owner.arrive(name="f1", deadline_ms=10_000.0) for _ in range(6)]
    delayed = owner.arrive(deadline_ms=350.0)
    timely = owner.arrive(name="f0", deadline_ms=260.0)
    owner.pod("b", "f1")
    owner.pod("a", "f0")
    assert [run.jobs[0].request for run in owner.runs] == [backlog[0], timely]
    while owner.open_runs:
        run = min(owner.open_runs, key=lambda run: run.end_ms)
        owner.dispatcher.run_ended(run, run.end_ms)
    assert {*owner.ended} == {*backlog, delayed, timely}


@pytest.mark.parametrize("others", [0, 1])
def test_a_request_that_is_probably_late_takes_no_pod_from_others(others):
    """Its run may hardly exceed the mean; so it is first only where no other waits in time."""
    noisy = Correction(spread_ratio=0.05).profile(profile("f0", [(1, 1, 50, 100)]))
    owner = Owner([noisy, workflow([[]])])
    doubtful, _ = owner.arrive(deadline_ms=101.0), owner.arrive(deadline_ms=10.0)
    timely = [owner.arrive(deadline_ms=190.0) for _ in range(others)]
    owner.pod("a")
    assert [run.jobs[0].request for run in owner.runs] == (timely or [doubtful])


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


def test_a_late_request_counts_once_and_is_forgotten_while_it_waits():
    """It is a miss when it cannot be in time any more; hits outweigh it, and its end adds none."""
    owner = Owner([profile("f0", [(1, 1, 50, 5)]), workflow([[]])])
    state = owner.dispatcher.workflows["default", "w"]
    owner.pod("a")
    late = [owner.arrive(f"late{n}", deadline_ms=1.0) for n in range(10)]
    assert state.shortfall_ratio > 0.0
    for i in range(1_500):
        now_ms = 6.0 * i
        owner.arrive(i, now_ms=now_ms, deadline_ms=now_ms + 5.9)
        for run in owner.open_runs:
            owner.dispatcher.run_ended(run, now_ms + 5.0)
    assert late[-1] not in owner.ended
    shortfall_ratio = state.shortfall_ratio
    assert shortfall_ratio < 0.0
    owner.dispatcher.cancel(late[-1], now_ms + 5.0)
    assert state.shortfall_ratio == shortfall_ratio
