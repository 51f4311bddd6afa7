"""Workflow instances: hit, miss and dropped, each counted once."""

import pytest

from scheduler.model.documents import Workflow
from scheduler.model.pod import function_pod
from scheduler.slo.tracker import Tracker

WORKFLOW = Workflow.model_validate(
    {
        "metadata": {"name": "diamond"},
        "spec": {
            "slo": {"latencyMs": 1000},
            "stages": [
                {"name": "a", "function": "f"},
                {"name": "b", "function": "g", "after": ["a"]},
                {"name": "c", "function": "g", "after": ["a"]},
                {"name": "d", "function": "f", "after": ["b", "c"]},
            ],
        },
    }
)


class Story:
    """Tells a tracker what a cluster would show, and keeps what it says."""

    def __init__(self) -> None:
        self.stages = []
        self.requests = []
        self.emptied = []
        self.workflow = WORKFLOW
        self.function = "f"
        self.tracker = Tracker(
            workflow_of=lambda namespace, name: self.workflow if name == "diamond" else None,
            on_stage=lambda ended, raw: self.stages.append(ended),
            on_request=self.requests.append,
            on_empty=self.emptied.append,
            abandoned_after_s=60,
            keep_alive_s=100,
        )

    def pod(self, stage, at, phase="Pending", *, node=None, request="r1", live=True, **annotations):
        raw = {
            "metadata": {
                "name": f"{request}-{stage}",
                "namespace": "default",
                "uid": f"{request}-{stage}",
                "creationTimestamp": "1970-01-01T00:00:00Z",
                "labels": {
                    "esg-scheduler.io/workflow": "diamond",
                    "esg-scheduler.io/stage": stage,
                    "esg-scheduler.io/request": request,
                },
                "annotations": {f"esg-scheduler.io/{k}": v for k, v in annotations.items()},
            },
            "spec": {"nodeName": node} if node else {},
            "status": {"phase": phase},
        }
        self.tracker.see(raw, function_pod(raw), self.function, at, live=live)

    def run(self, stage, start, end, node="n1", **more):
        self.pod(stage, start, **more)
        self.pod(stage, start + 0.1, node=node, **more)
        self.pod(stage, start + 0.2, "Running", node=node, **more)
        self.pod(stage, end, "Succeeded", node=node, **more)

    def results(self):
        return [(ended.result, ended.duration_s) for ended in self.requests]


@pytest.fixture
def story():
    return Story()


def test_whole_instance_within_its_slo_is_a_hit(story):
    """The duration runs from the first pod's creation to the last stage's end."""
    for stage, start, end in (("a", 0, 0.3), ("b", 0.3, 0.6), ("c", 0.3, 0.7), ("d", 0.7, 0.95)):
        story.run(stage, start, end)
    assert story.results() == [("hit", pytest.approx(0.95))]


def test_late_instance_is_a_miss(story):
    """One that ends after its SLO is a miss, with its duration."""
    for stage, end in (("a", 0.3), ("b", 0.6), ("c", 0.7), ("d", 1.2)):
        story.run(stage, end - 0.3, end)
    assert story.results() == [("miss", pytest.approx(1.2))]


def test_arrival_annotation_counts_from_before_the_pod(story):
    """Time that the request waited before its first pod was made counts."""
    arrival = "1970-01-01T00:00:00.500Z"
    for stage, end in (("a", 1.0), ("b", 1.2), ("c", 1.3), ("d", 1.4)):
        story.run(stage, end - 0.3, end, arrival=arrival)
    assert story.results() == [("hit", pytest.approx(0.9))]


def test_deadline_annotation_wins_over_the_slo(story):
    """A creator's own deadline decides between hit and miss."""
    for stage, end in (("a", 0.3), ("b", 0.6), ("c", 0.7), ("d", 0.9)):
        story.run(stage, end - 0.3, end, deadline="1970-01-01T00:00:00.800Z")
    assert story.results() == [("miss", pytest.approx(0.9))]


def test_parts_of_an_instance_count_for_nothing_until_it_is_whole(story):
    """Three of four stages are no request."""
    for stage in "abc":
        story.run(stage, 0, 0.5)
    assert story.requests == []
    assert len(story.stages) == 3


def test_abandoned_instance_is_dropped_once(story):
    """No living pod, nothing happening: dropped; and forgotten when its pods are gone."""
    story.run("a", 0, 0.5)
    story.tracker.sweep(60)
    assert story.requests == []
    story.tracker.sweep(61)
    story.tracker.sweep(62)
    assert story.results() == [("dropped", None)]


def test_waiting_pod_keeps_its_instance(story):
    """A pod that waits for room for minutes is not abandoned."""
    story.pod("a", 0)
    story.tracker.sweep(1_000)
    assert story.requests == []


def test_failed_stage_that_is_retried_is_no_drop(story):
    """An engine makes the pod anew; what counts is that the stage succeeds in the end."""
    story.pod("a", 0)
    story.pod("a", 0.1, "Failed", node="n1")
    story.tracker.gone("r1-a", 0.2)
    for stage, end in (("a", 0.4), ("b", 0.6), ("c", 0.7), ("d", 0.9)):
        story.run(stage, end - 0.2, end)
    story.tracker.sweep(100)
    assert [result for result, _ in story.results()] == ["hit"]


def test_instance_that_was_over_at_the_first_list_is_not_counted_again(story):
    """A restarted service does not repeat what its predecessor counted."""
    for stage in "abcd":
        story.pod(stage, 5, "Succeeded", node="n1", live=False)
    story.pod("d", 6, "Succeeded", node="n1")
    assert story.requests == []
    assert story.stages == []


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"arrival": "1970-01-01T00:00:05.500Z"}, [("hit", pytest.approx(0.5))]),
        ({"arrival": "1970-01-01T00:00:04.500Z"}, [("miss", pytest.approx(1.5))]),
        ({"deadline": "1970-01-01T00:00:06.500Z"}, [("hit", None)]),
        ({"deadline": "1970-01-01T00:00:05.500Z"}, [("miss", None)]),
        ({}, []),
    ],
)
def test_instance_that_was_half_way_when_it_was_found(story, told, expected):
    """It counts if an annotation says when it arrived or is due; no creation in whole seconds does.

    Nor does the creation of a later pod, which is not when the instance arrived.
    """
    for stage in "abc":
        story.pod(stage, 5, "Succeeded", node="n1", live=False, **told)
    story.run("d", 5.2, 6)
    story.tracker.sweep(100)
    assert story.results() == expected


def test_instance_whose_earlier_pods_were_gone_when_it_was_found_is_not_dropped(story):
    """Nobody knows that stage any more, so nobody can say that the instance is not whole."""
    for stage in "bc":
        story.pod(stage, 5, "Running", node="n1", live=False, arrival="1970-01-01T00:00:04Z")
    for stage, end in (("b", 5.1), ("c", 5.2)):
        story.pod(stage, end, "Succeeded", node="n1")
    story.run("d", 5.2, 5.5)
    for stage in "bcd":
        story.tracker.gone(f"r1-{stage}", 6)
    story.tracker.sweep(100)
    assert story.requests == []


def test_instance_that_was_between_two_stages_at_the_first_list_is_not_dropped(story):
    """It had no pod then; those of its first stages had come and gone."""
    story.run("d", 5, 6)
    story.tracker.gone("r1-d", 7)
    story.tracker.sweep(100)
    assert story.requests == []


def test_what_a_relist_shows_of_an_instance_that_is_known_counts(story):
    """Its beginning was seen, so its end counts, from whichever pod; no duration is made up."""
    for stage, end in (("a", 0.2), ("b", 0.3), ("c", 0.4)):
        story.run(stage, end - 0.1, end)
    story.pod("d", 0.9, "Succeeded", node="n1", live=False)
    assert story.results() == [("hit", pytest.approx(0.8))]
    assert len(story.stages) == 3


def test_the_end_of_a_pod_that_is_known_is_seen_by_a_relist(story):
    """The watch was away when it ended: it counts as ended when it is seen."""
    story.pod("a", 0)
    story.pod("a", 0.1, "Running", node="n1")
    story.pod("a", 2, "Succeeded", node="n1", live=False)
    assert story.stages[0].execute_s == pytest.approx(1.9)


def test_documents_that_come_late_do_not_count_what_was_over(story):
    """Any later event of a pod that had ended makes the instance whole, and ends nothing."""
    story.workflow = None
    for stage in "abcd":
        story.pod(stage, 5, "Succeeded", node="n1", live=False, arrival="1970-01-01T00:00:04Z")
    story.workflow = WORKFLOW
    story.pod("d", 60, "Succeeded", node="n1", arrival="1970-01-01T00:00:04Z")
    story.tracker.sweep(1_000)
    assert story.requests == []


def test_a_pod_warms_the_function_that_its_workflow_says_now(story):
    """When the workflow comes or changes while the pod runs, its node is warm for that function."""
    story.pod("a", 0, "Running", node="n7")
    story.function = "g"
    story.pod("a", 1, "Running", node="n7")
    story.tracker.sweep(1_000)
    assert list(story.tracker.warm_nodes("default", "g")) == ["n7"]
    assert list(story.tracker.warm_nodes("default", "f")) == []


def test_a_namespace_without_pods_is_told_once(story):
    """When no function pod has been there for the keep-alive; pods that ended are still there."""
    story.run("a", 0, 1)
    story.tracker.sweep(1_000)
    story.tracker.gone("r1-a", 1_000)
    story.tracker.sweep(1_100)
    assert story.emptied == []
    story.tracker.sweep(1_101)
    story.tracker.sweep(2_000)
    assert story.emptied == ["default"]


def test_a_namespace_where_a_pod_comes_in_time_is_not_empty(story):
    """The keep-alive begins again when that pod is gone."""
    story.run("a", 0, 1)
    story.tracker.gone("r1-a", 1)
    story.pod("b", 100)
    story.tracker.sweep(1_000)
    assert story.emptied == []


def test_stage_durations_are_made_of_what_was_seen(story):
    """Queue, start and execute lie between the moments seen; what was not seen has none."""
    story.run("a", 10, 11)
    ended = story.stages[0]
    assert ended.queue_s == pytest.approx(0.1)
    assert ended.start_s == pytest.approx(0.1)
    assert ended.execute_s == pytest.approx(0.8)
    story.pod("b", 12, "Running", node="n1", live=False)
    story.pod("b", 13, "Succeeded", node="n1")
    assert story.stages[1].execute_s is None


def test_nodes_of_the_stages_and_warm_nodes_are_known(story):
    """Where a predecessor ran is known after it ended; warmth ends with the keep-alive."""
    story.run("a", 0, 1, node="n7")
    story.pod("b", 1)
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
    assert story.tracker.stage_nodes(function_pod(successor)) == {"a": "n7"}
    assert list(story.tracker.warm_nodes("default", "f")) == ["n7"]
    story.tracker.sweep(102)
    assert list(story.tracker.warm_nodes("default", "f")) == []


def test_a_node_stays_warm_as_long_as_a_pod_runs_there(story):
    """Warmth is counted from the end of the last pod that runs, however it came."""
    story.pod("a", 0, "Running", node="n7")
    story.tracker.sweep(1000)
    assert list(story.tracker.warm_nodes("default", "f")) == ["n7"]
    story.pod("a", 1000, "Succeeded", node="n7")
    story.tracker.sweep(1099)
    assert list(story.tracker.warm_nodes("default", "f")) == ["n7"]
    story.tracker.sweep(1101)
    assert list(story.tracker.warm_nodes("default", "f")) == []


def test_a_pod_that_is_deleted_leaves_its_node_warm(story):
    """What ran until it was deleted was loaded until then."""
    story.pod("a", 0, "Running", node="n7")
    (uid,) = story.tracker.uids()
    story.tracker.gone(uid, 500)
    story.tracker.sweep(599)
    assert list(story.tracker.warm_nodes("default", "f")) == ["n7"]
    story.tracker.sweep(601)
    assert list(story.tracker.warm_nodes("default", "f")) == []
