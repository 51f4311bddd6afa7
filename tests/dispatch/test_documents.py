"""Workflows and profiles that are set, replaced and removed while requests are open."""

import pytest

from scheduler.model.catalogue import UnknownDocumentError
from tests.dispatch.harness import SPACE, Owner
from workbench.profiles.builders import profile, workflow

ROWS = [(1, 1, 50, 100), (2, 1, 50, 150)]
BOTH = [profile("f0", ROWS), profile("f1", ROWS)]


def test_a_workflow_with_another_slo_keeps_its_requests():
    """Those that are open have the deadline that they came with; the next ones have the new."""
    owner = Owner([*BOTH, workflow([[]], slo_ms=400.0)])
    first = owner.arrive()
    owner.dispatcher.set_workflow(workflow([[]], slo_ms=900.0), now_ms=10.0)
    second = owner.arrive(now_ms=10.0)
    assert (first.deadline_ms, second.deadline_ms) == (400.0, 910.0)
    owner.pod("a")
    assert [job.request for job in owner.runs[0].jobs] == [first, second]
    assert owner.dropped == []


def test_a_workflow_with_other_stages_drops_its_requests():
    """They would go on in a graph that is no more; the next ones walk through the new one."""
    owner = Owner([*BOTH, workflow([[]])])
    owner.pod("a")
    running, waiting = owner.arrive(), owner.arrive()
    owner.dispatcher.set_workflow(workflow([[], [0]]), now_ms=10.0)
    assert owner.dropped == [(running, "removed"), (waiting, "removed")]
    owner.dispatcher.run_ended(owner.runs[0], 100.0)
    request = owner.arrive(now_ms=100.0)
    owner.pod("b", "f1")
    for _ in range(2):
        owner.dispatcher.run_ended(owner.open_runs[0], 200.0)
    assert owner.ended == [request]


def test_a_workflow_that_is_removed_twice_concerns_no_other():
    owner = Owner([*BOTH, workflow([[]]), workflow([[]], name="other")])
    request = owner.arrive(name="other")
    for _ in range(2):
        owner.dispatcher.remove_workflow((SPACE, "w"), 1.0)
    owner.pod("a")
    assert [job.request for job in owner.runs[0].jobs] == [request]


def test_a_workflow_needs_the_profiles_of_its_functions():
    """The error names both, and the workflow is not there."""
    owner = Owner(BOTH[:1])
    with pytest.raises(UnknownDocumentError, match="workflow default/w: function f1 has no"):
        owner.dispatcher.set_workflow(workflow([[], [0]]), now_ms=0.0)
    assert owner.dispatcher.workflows == {}
    with pytest.raises(UnknownDocumentError, match="workflow default/w is not known"):
        owner.arrive()


def test_a_replaced_profile_is_that_of_the_next_run():
    """A run keeps the time with which it began; the other functions keep their profiles."""
    owner = Owner([*BOTH, workflow([[], []])])
    for name in ("f0", "f1"):
        owner.pod(name, name)
    owner.arrive()
    owner.dispatcher.set_profile(profile("f0", [(1, 1, 50, 70)]))
    assert [run.latency_ms for run in owner.runs] == [100.0, 100.0]
    for run in owner.open_runs:
        owner.dispatcher.run_ended(run, 100.0)
    owner.arrive(now_ms=100.0)
    assert {run.pod.name: run.latency_ms for run in owner.open_runs} == {"f0": 70.0, "f1": 100.0}


def test_rows_that_wait_are_counted_by_stage():
    owner = Owner([*BOTH, workflow([[], [0]])])
    owner.pod("a")
    for _ in range(3):
        owner.arrive(deadline_ms=900.0)
    assert owner.dispatcher.queued_rows() == {(SPACE, "w", "s0"): 2, (SPACE, "w", "s1"): 0}
    owner.dispatcher.run_ended(owner.runs[0], 100.0)
    assert owner.dispatcher.queued_rows() == {(SPACE, "w", "s0"): 0, (SPACE, "w", "s1"): 1}
