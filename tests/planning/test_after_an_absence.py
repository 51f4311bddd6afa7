"""Counts after a start or a relist: nothing that was not observed counts."""

from datetime import UTC, datetime

import pytest

from scheduler.model.documents import Workflow, to_manifest
from scheduler.planning.metrics import Metrics
from scheduler.planning.state import State
from scheduler.settings import Settings
from tests.extender.factories import DOCUMENTS, pod
from tests.extender.harness import Clock

STAGES = ("half", "elastic")  # of the workflow `chain`, whose SLO is a second
RESULTS = ("hit", "miss", "dropped")


class RelistHarness:
    """A service's state; the test delivers lists and events."""

    def __init__(self):
        self.clock = Clock()
        self.metrics = Metrics()
        self.state = State(Settings(), self.metrics, clock=self.clock)
        workflows = [document for document in DOCUMENTS if isinstance(document, Workflow)]
        profiles = [document for document in DOCUMENTS if not isinstance(document, Workflow)]
        self.state.documents.workflows.replace(map(to_manifest, workflows))
        self.state.documents.profiles.replace(map(to_manifest, profiles))

    def pod(self, stage, phase, *, age_s=200.0, **annotations):
        raw = pod(
            workflow="chain", stage=stage, request="r", uid=f"r-{stage}", annotations=annotations
        )
        created = datetime.fromtimestamp(self.clock.now_s - age_s, UTC)
        raw["metadata"]["creationTimestamp"] = created.strftime("%Y-%m-%dT%H:%M:%SZ")
        raw["spec"]["nodeName"] = "n1"
        raw["status"]["phase"] = phase
        return raw

    def lists(self, *pods):
        self.state.pods.replace(pods)

    def shows(self, raw, after_s):
        self.clock.now_s += after_s
        self.state.pods.upsert(raw)

    def hour_passes(self):
        for raw in [self.pod(stage, "Succeeded") for stage in STAGES]:
            self.state.pods.delete(raw)
        self.clock.now_s += 3_600
        self.state.tracker.expire(self.clock.now_s)

    def counted(self):
        counts = {
            result: self.metrics.registry.get_sample_value(
                "esg_workflow_requests_total",
                {"namespace": "default", "workflow": "chain", "result": result},
            )
            for result in RESULTS
        }
        return {result: count for result, count in counts.items() if count}

    def durations(self):
        return [
            sample.labels["phase"]
            for family in self.metrics.stage_durations.collect()
            for sample in family.samples
            if sample.name.endswith("_count")
        ]


@pytest.fixture
def harness():
    return RelistHarness()


def test_what_was_over_before_the_start_is_not_counted(harness):
    """Neither when it is listed, nor at its pods' later events, nor at their deletion."""
    ended = [harness.pod(stage, "Succeeded") for stage in STAGES]
    harness.lists(*ended)
    harness.shows(ended[0], after_s=5)
    harness.hour_passes()
    assert harness.counted() == {}


def test_a_restart_in_the_middle_drops_nothing(harness):
    """The first stage's pod is deleted before the start; the second one succeeds after it."""
    harness.lists(harness.pod("elastic", "Running"))
    harness.shows(harness.pod("elastic", "Succeeded"), after_s=0.1)
    harness.hour_passes()
    assert harness.counted() == {}


def test_a_relist_makes_nothing_up(harness):
    """Pods that were created while the watch was away have neither durations nor an arrival."""
    harness.lists()
    harness.clock.now_s += 300
    harness.lists(harness.pod("half", "Succeeded"), harness.pod("elastic", "Running"))
    harness.shows(harness.pod("elastic", "Succeeded"), after_s=0.3)
    harness.hour_passes()
    assert harness.counted() == {}
    assert harness.durations() == []


def test_a_relist_keeps_the_arrival_that_an_annotation_tells(harness):
    """The creator's annotation counts, even if the pods' creation was not observed."""
    harness.lists()
    harness.clock.now_s += 300
    arrival = datetime.fromtimestamp(harness.clock.now_s - 0.5, UTC).isoformat()
    harness.lists(*(harness.pod(stage, "Running", age_s=0.5, arrival=arrival) for stage in STAGES))
    for stage in STAGES:
        harness.shows(harness.pod(stage, "Succeeded", age_s=0.5, arrival=arrival), after_s=0.2)
    harness.hour_passes()
    assert harness.counted() == {"hit": 1}


def test_what_ends_while_the_watch_is_away_counts(harness):
    """An instance that was known before is ended by a relist, when that shows it."""
    harness.lists()
    for stage in STAGES:
        harness.shows(harness.pod(stage, "Running"), after_s=0)
    harness.clock.now_s += 0.5
    harness.lists(*(harness.pod(stage, "Succeeded") for stage in STAGES))
    harness.hour_passes()
    assert harness.counted() == {"hit": 1}
    assert harness.durations().count("execute") == 2


def test_a_list_is_believed_about_how_new_it_is(harness):
    """After etcd was restored from a backup, all new versions are older than those received."""
    raw = harness.pod("half", "Running")
    raw["metadata"]["resourceVersion"] = "900"
    harness.lists(raw)
    raw["metadata"]["resourceVersion"] = "500"
    harness.lists(raw)
    assert harness.state.pods.version == 500
