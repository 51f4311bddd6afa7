"""Workflow instances: hit, miss and dropped, each counted once."""

import pytest

from scheduler.model.pod import function_pod
from scheduler.model.progress import InstanceProgress
from tests.slo.histories import WORKFLOW


def test_whole_instance_within_its_slo_is_a_hit(history):
    """The duration runs from the first pod's creation to the last stage's end."""
    for stage, start, end in (("a", 0, 0.3), ("b", 0.3, 0.6), ("c", 0.3, 0.7), ("d", 0.7, 0.95)):
        history.run(stage, start, end)
    assert history.results() == [("hit", pytest.approx(0.95))]


def test_late_instance_is_a_miss(history):
    """An instance that ends after its SLO is a miss, with its duration."""
    for stage, end in (("a", 0.3), ("b", 0.6), ("c", 0.7), ("d", 1.2)):
        history.run(stage, end - 0.3, end)
    assert history.results() == [("miss", pytest.approx(1.2))]


def test_arrival_annotation_counts_from_before_the_pod(history):
    """The request's wait before the creation of its first pod counts."""
    arrival = "1970-01-01T00:00:00.500Z"
    for stage, end in (("a", 1.0), ("b", 1.2), ("c", 1.3), ("d", 1.4)):
        history.run(stage, end - 0.3, end, arrival=arrival)
    assert history.results() == [("hit", pytest.approx(0.9))]


def test_deadline_annotation_wins_over_the_slo(history):
    """A creator's own deadline decides between hit and miss."""
    for stage, end in (("a", 0.3), ("b", 0.6), ("c", 0.7), ("d", 0.9)):
        history.run(stage, end - 0.3, end, deadline="1970-01-01T00:00:00.800Z")
    assert history.results() == [("miss", pytest.approx(0.9))]


def test_incomplete_instance_is_not_counted(history):
    """Three of four stages are not a request."""
    for stage in "abc":
        history.run(stage, 0, 0.5)
    assert history.requests == []
    assert len(history.stages) == 3


def test_abandoned_instance_is_dropped_once(history):
    """An instance without active pods and changes is dropped once; deleted pods end its record."""
    history.run("a", 0, 0.5)
    history.tracker.expire(60)
    assert history.requests == []
    history.tracker.expire(61)
    history.tracker.expire(62)
    assert history.results() == [("dropped", None)]


def test_pending_pod_keeps_its_instance(history):
    """A pod that is pending for minutes is not abandoned."""
    history.pod("a", 0)
    history.tracker.expire(1_000)
    assert history.requests == []


def test_retried_stage_is_not_a_drop(history):
    """An engine recreates the pod; the stage counts because it succeeds in the end."""
    history.pod("a", 0)
    history.pod("a", 0.1, "Failed", node="n1")
    history.tracker.remove("r1-a", 0.2)
    for stage, end in (("a", 0.4), ("b", 0.6), ("c", 0.7), ("d", 0.9)):
        history.run(stage, end - 0.2, end)
    history.tracker.expire(100)
    assert [result for result, _ in history.results()] == ["hit"]


def test_instance_that_ended_before_the_first_list_is_not_counted(history):
    """A restarted service does not repeat what its predecessor counted."""
    for stage in "abcd":
        history.pod(stage, 5, "Succeeded", node="n1", live=False)
    history.pod("d", 6, "Succeeded", node="n1")
    assert history.requests == []
    assert history.stages == []


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"arrival": "1970-01-01T00:00:05.500Z"}, [("hit", pytest.approx(0.5))]),
        ({"arrival": "1970-01-01T00:00:04.500Z"}, [("miss", pytest.approx(1.5))]),
        ({"deadline": "1970-01-01T00:00:06.500Z"}, [("hit", None)]),
        ({"deadline": "1970-01-01T00:00:05.500Z"}, [("miss", None)]),
        ({}, []),
    ],
)
def test_instance_in_progress_at_the_first_list(history, annotations, expected):
    """It counts if an annotation gives its arrival or deadline; no pod's creation time does.

    A creation time has whole seconds only, and that of a later pod is not the instance's arrival.
    """
    for stage in "abc":
        history.pod(stage, 5, "Succeeded", node="n1", live=False, **annotations)
    history.run("d", 5.2, 6)
    history.tracker.expire(100)
    assert history.results() == expected


def test_instance_whose_earlier_pods_were_deleted_before_the_list_is_not_dropped(history):
    """Its first stage may have run, so the instance may be complete."""
    for stage in "bc":
        history.pod(stage, 5, "Running", node="n1", live=False, arrival="1970-01-01T00:00:04Z")
    for stage, end in (("b", 5.1), ("c", 5.2)):
        history.pod(stage, end, "Succeeded", node="n1")
    history.run("d", 5.2, 5.5)
    for stage in "bcd":
        history.tracker.remove(f"r1-{stage}", 6)
    history.tracker.expire(100)
    assert history.requests == []


def test_instance_without_pods_at_the_first_list_is_not_dropped(history):
    """It was between two stages; the pods of its first ones had come and gone."""
    history.run("d", 5, 6)
    history.tracker.remove("r1-d", 7)
    history.tracker.expire(100)
    assert history.requests == []


def test_relist_counts_for_a_known_instance(history):
    """Its beginning is known, so its end counts, from any pod; no duration is invented."""
    for stage, end in (("a", 0.2), ("b", 0.3), ("c", 0.4)):
        history.run(stage, end - 0.1, end)
    history.pod("d", 0.9, "Succeeded", node="n1", live=False)
    assert history.results() == [("hit", pytest.approx(0.8))]
    assert len(history.stages) == 3


def test_relist_reports_the_end_of_a_known_pod(history):
    """The watch was down when the pod ended: it ends at the time of the list."""
    history.pod("a", 0)
    history.pod("a", 0.1, "Running", node="n1")
    history.pod("a", 2, "Succeeded", node="n1", live=False)
    assert history.stages[0].execute_s == pytest.approx(1.9)


def test_late_documents_do_not_count_an_ended_instance(history):
    """Any later event of an ended pod completes the instance, and counts nothing."""
    history.workflow = None
    for stage in "abcd":
        history.pod(stage, 5, "Succeeded", node="n1", live=False, arrival="1970-01-01T00:00:04Z")
    history.workflow = WORKFLOW
    history.pod("d", 60, "Succeeded", node="n1", arrival="1970-01-01T00:00:04Z")
    history.tracker.expire(1_000)
    assert history.requests == []


def test_pod_warms_the_function_that_its_workflow_names_now(history):
    """If the workflow appears or changes during the run, the node is warm for its function."""
    history.pod("a", 0, "Running", node="n7")
    history.function = "g"
    history.pod("a", 1, "Running", node="n7")
    history.tracker.expire(1_000)
    assert list(history.tracker.warm_nodes("default", "g")) == ["n7"]
    assert list(history.tracker.warm_nodes("default", "f")) == []


def test_empty_namespace_is_reported_once(history):
    """It is empty without function pods for the keep-alive; ended pods still count as pods."""
    history.run("a", 0, 1)
    history.tracker.expire(1_000)
    history.tracker.remove("r1-a", 1_000)
    history.tracker.expire(1_100)
    assert history.emptied == []
    history.tracker.expire(1_101)
    history.tracker.expire(2_000)
    assert history.emptied == ["default"]


def test_namespace_with_a_new_pod_is_not_empty(history):
    """The keep-alive starts again when that pod is deleted."""
    history.run("a", 0, 1)
    history.tracker.remove("r1-a", 1)
    history.pod("b", 100)
    history.tracker.expire(1_000)
    assert history.emptied == []


def test_stage_durations_come_from_reported_times(history):
    """Queue, start and execute lie between reports; without a report there is no duration."""
    history.run("a", 10, 11)
    ended = history.stages[0]
    assert ended.queue_s == pytest.approx(0.1)
    assert ended.start_s == pytest.approx(0.1)
    assert ended.execute_s == pytest.approx(0.8)
    history.pod("b", 12, "Running", node="n1", live=False)
    history.pod("b", 13, "Succeeded", node="n1")
    assert history.stages[1].execute_s is None


def test_stage_nodes_and_warm_nodes(history):
    """A predecessor's node is known after its end; warmth ends with the keep-alive."""
    history.run("a", 0, 1, node="n7")
    history.pod("b", 1)
    successor = {
        "metadata": {
            "namespace": "default",
            "labels": {
                "esg-scheduler.io/workflow": "diamond",
                "esg-scheduler.io/stage": "b",
                "esg-scheduler.io/request": "r1",
            },
        }
    }
    assert history.tracker.stage_nodes(function_pod(successor)) == {"a": "n7"}
    assert list(history.tracker.warm_nodes("default", "f")) == ["n7"]
    history.tracker.expire(102)
    assert list(history.tracker.warm_nodes("default", "f")) == []


def test_progress_of_an_instance(history):
    """Stages that ended are known, and when those that run end by the times of their plan."""
    history.run("a", 0, 1, node="n7")
    plan = '{"start_ms": 300, "stage_ms": 500}'
    history.pod("b", 1)
    history.pod("c", 1)
    waiting = function_pod(history.raw("b"))
    assert history.tracker.progress(waiting, 2) == InstanceProgress(frozenset({"a"}), {})
    history.pod("c", 2, node="n1", plan=plan)
    assert history.tracker.progress(waiting, 2.1).running_ms == {"c": pytest.approx(700)}
    history.pod("c", 2.5, "Running", node="n1", plan=plan)
    assert history.tracker.progress(waiting, 2.6).running_ms == {"c": pytest.approx(400)}
    history.pod("c", 3, "Succeeded", node="n1", plan=plan)
    assert history.tracker.progress(waiting, 3) == InstanceProgress(frozenset({"a", "c"}), {})


@pytest.mark.parametrize(
    "plan",
    ["", "[]", "{", '{"stage_ms": "long"}', '{"stage_ms": -1}', f'{{"stage_ms": 1{"0" * 400}}}'],
)
def test_a_stage_with_an_unknown_plan_ends_now(history, plan):
    """A pod that states no time delays nobody; a deleted one has not ended."""
    history.pod("b", 1)
    history.pod("c", 1, node="n1", plan=plan)
    waiting = function_pod(history.raw("b"))
    assert history.tracker.progress(waiting, 1).running_ms == {"c": pytest.approx(0)}
    history.tracker.remove("r1-c", 2)
    assert history.tracker.progress(waiting, 2) == InstanceProgress()


def test_node_stays_warm_while_a_pod_runs_there(history):
    """The keep-alive starts at the end of the last running pod, whether listed or watched."""
    history.pod("a", 0, "Running", node="n7")
    history.tracker.expire(1000)
    assert list(history.tracker.warm_nodes("default", "f")) == ["n7"]
    history.pod("a", 1000, "Succeeded", node="n7")
    history.tracker.expire(1099)
    assert list(history.tracker.warm_nodes("default", "f")) == ["n7"]
    history.tracker.expire(1101)
    assert list(history.tracker.warm_nodes("default", "f")) == []


def test_deleted_pod_leaves_its_node_warm(history):
    """A pod's function is loaded until the pod is deleted."""
    history.pod("a", 0, "Running", node="n7")
    (uid,) = history.tracker.uids()
    history.tracker.remove(uid, 500)
    history.tracker.expire(599)
    assert list(history.tracker.warm_nodes("default", "f")) == ["n7"]
    history.tracker.expire(601)
    assert list(history.tracker.warm_nodes("default", "f")) == []
