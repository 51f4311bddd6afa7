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
        self.tracker = Tracker(
            workflow_of=lambda namespace, name: WORKFLOW if name == "diamond" else None,
            on_stage=lambda ended, raw: self.stages.append(ended),
            on_request=self.requests.append,
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
        self.tracker.see(raw, function_pod(raw), "f", at, live=live)

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


def test_instance_that_was_half_way_at_the_first_list_is_counted(story):
    """What ends while the service is there counts, with the arrival that the pods still tell."""
    for stage in "abc":
        story.pod(stage, 5, "Succeeded", node="n1", live=False)
    story.run("d", 5, 6)
    assert [ended.result for ended in story.requests] == ["miss"]


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
