"""Pods that start, fail and go, and which of them gets a batch."""

import pytest

from scheduler.dispatch.requests import PlainPart as Part
from tests.dispatch.harness import Owner
from workbench.profiles.builders import profile, workflow

ROWS = [(1, 1, 50, 100), (2, 1, 50, 150)]


def owner_of(*after, **options):
    documents = [profile(f"f{i}", ROWS) for i in range(max(len(after), 1))]
    return Owner([*documents, workflow(after or [[]])], **options)


def test_a_pod_gets_its_first_batch_when_it_is_ready():
    """The wait for its start is a phase of the request, apart from the queue."""
    owner = owner_of()
    pod = owner.pod("a", ready=False, ready_ms=60.0)
    owner.arrive(now_ms=10.0)
    assert owner.runs == []
    owner.dispatcher.pod_ready(pod, 50.0)
    (run,) = owner.runs
    (job,) = run.jobs
    assert (run.begin_ms, job.start_ms, job.queue_ms) == (50.0, 40.0, 0.0)


def test_runs_of_a_removed_pod_begin_again_elsewhere():
    """They are returned once; a pod that is not there has none."""
    owner = owner_of()
    pod = owner.pod("a")
    request = owner.arrive()
    assert owner.dispatcher.remove_pod(pod, 20.0) == owner.runs
    assert owner.dispatcher.remove_pod(pod, 21.0) == []
    owner.pod("b")
    (run,) = owner.open_runs
    assert (run.pod.name, [job.request for job in run.jobs]) == ("b", [request])


@pytest.mark.parametrize("ends", ["run_ended", "run_failed"])
def test_an_end_that_is_reported_twice_counts_once(ends):
    """A pod may be removed just before the answer of its last batch arrives."""
    owner = owner_of([], [0])
    owner.pod("a")
    owner.arrive()
    owner.dispatcher.run_ended(owner.runs[0], 100.0)
    before = owner.dispatcher.queued_rows()
    options = {} if ends == "run_ended" else {"retryable": True}
    getattr(owner.dispatcher, ends)(owner.runs[0], 101.0, **options)
    assert owner.dispatcher.queued_rows() == before
    assert len(owner.runs) == 1


@pytest.mark.parametrize("fails", [True, False])
def test_a_cancelled_request_leaves_its_batch_to_the_others(fails):
    """The end of the run concerns them alone."""
    owner = owner_of()
    cancelled, request = owner.arrive(), owner.arrive()
    owner.pod("a")
    owner.dispatcher.cancel(cancelled, 10.0)
    if fails:
        owner.dispatcher.run_failed(owner.runs[0], 20.0, retryable=True)
        assert [job.request for job in owner.open_runs[0].jobs] == [request]
    owner.dispatcher.run_ended(owner.open_runs[0], 200.0)
    assert (owner.ended, owner.dropped) == ([request], [])


def test_a_request_that_its_owner_ends_at_a_stage_is_forgotten():
    """It enters no queue, leaves the ones that it waits in, and there is no report of its end."""
    owner = owner_of([], [], parts=lambda request, stage, _: None if stage == 1 else [Part()])
    request = owner.arrive()
    assert request.ended
    assert not any(owner.dispatcher.queued_rows().values())
    owner.pod("a")
    assert (owner.runs, owner.ended, owner.dropped) == ([], [], [])


def test_a_batch_that_failed_runs_again_on_its_pod_if_there_is_no_other():
    owner = owner_of()
    pod = owner.pod("only")
    request = owner.arrive()
    owner.dispatcher.run_failed(owner.runs[0], 10.0, retryable=True)
    (run,) = owner.open_runs
    assert (run.pod, run.jobs[0].request) == (pod, request)


def test_a_batch_that_failed_waits_for_another_pod_that_starts():
    """However long the start takes: the pod on which it failed may be the reason."""
    owner = owner_of()
    owner.pod("failed")
    starting = owner.pod("starting", ready=False)
    owner.arrive()
    owner.dispatcher.run_failed(owner.runs[0], 10.0, retryable=True)
    assert owner.open_runs == []
    owner.dispatcher.pod_ready(starting, 5_000.0)
    assert [run.pod for run in owner.open_runs] == [starting]


@pytest.mark.parametrize(("nodes", "expected"), [(("n1", "n2", "n3"), "n2"), (("n1", "n3"), "n3")])
def test_a_later_stage_runs_where_its_input_is(nodes, expected):
    """On another node if no pod of the share is idle there: on the one that was used last."""
    owner = owner_of([], [0])
    owner.pod("first", node="n2")
    for node in nodes:
        owner.pod(node, "f1", node=node)
    owner.arrive()
    owner.dispatcher.run_ended(owner.runs[0], 100.0)
    assert [run.pod.node for run in owner.open_runs] == [expected]


def test_a_late_batch_that_failed_waits_as_a_late_one():
    """A request that can be in time runs before it, also if it has failed."""
    owner = owner_of()
    failed = owner.pod("failed")
    late = owner.arrive(deadline_ms=1.0)
    spare = owner.pod("other", ready=False)
    owner.dispatcher.run_failed(owner.runs[0], 10.0, retryable=True)
    owner.dispatcher.drain_pod(failed)
    function = owner.dispatcher.functions[spare.function]
    assert (function.rows, function.late_rows) == (1, 1)
    timely = owner.arrive(now_ms=20.0)
    owner.dispatcher.pod_ready(spare, 30.0)
    for run in owner.runs[1:]:
        owner.dispatcher.run_ended(run, run.end_ms)
    assert owner.ended == [timely]
    owner.dispatcher.wake(owner.dispatcher.wake_at_ms)
    owner.dispatcher.run_ended(owner.open_runs[0], owner.open_runs[0].end_ms)
    assert owner.ended == [timely, late]
