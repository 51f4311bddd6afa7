"""Series end with their subject: a workflow, a stage, a function or a namespace."""

import pytest

from scheduler.model.documents import FunctionProfile, Workflow, to_manifest
from scheduler.planning.metrics import Metrics
from scheduler.planning.state import State
from scheduler.settings import Settings
from tests.extender.factories import pod, profile, workflow
from tests.extender.harness import Clock

GRANT = {
    "gpu": "GPU-n1-0",
    "gpu-percent": "50",
    "gpu-memory": "0=4000M",
    "batch": "1",
    "plan": '{"cpu": 1}',
}
HALF, TENTH = profile("half", (50, 100)), profile("tenth", (10, 100))


class SeriesHarness:
    """A service's state over a few documents; pods run one after the other."""

    def __init__(self):
        self.clock = Clock()
        self.metrics = Metrics()
        self.state = State(Settings(), self.metrics, clock=self.clock)
        self.documents(HALF, TENTH, workflow("chain", 1_000, "half", "tenth"))
        self.state.pods.replace(())

    def documents(self, *documents):
        for handler, kind in (
            (self.state.documents.workflows, Workflow),
            (self.state.documents.profiles, FunctionProfile),
        ):
            handler.replace(
                to_manifest(document) for document in documents if isinstance(document, kind)
            )

    def runs(self, *, namespace="default", **what):
        """A pod is granted its batch, runs for a second, ends and is deleted."""
        raw = pod(**what, annotations=GRANT)
        raw["metadata"]["namespace"] = namespace
        self.state.pods.upsert(raw)
        uid = raw["metadata"]["uid"]
        self.metrics.batch_granted(self.state.pods.pending[uid].function_pod, 1)
        raw["spec"]["nodeName"] = "n1"
        for phase in ("Running", "Succeeded"):
            raw["status"]["phase"] = phase
            self.state.pods.upsert(raw)
            self.clock.now_s += 1
        self.state.pods.delete(raw)

    def series(self):
        """(namespace, workflow, stage) of all series of batches, durations or cost."""
        return {
            (
                family.name,
                *(sample.labels.get(label) for label in ("namespace", "workflow", "stage")),
            )
            for collected in (
                self.metrics.batch_sizes,
                self.metrics.stage_durations,
                self.metrics.cost,
            )
            for family in collected.collect()
            for sample in family.samples
        }

    def later(self, seconds):
        self.clock.now_s += seconds
        self.state.tracker.expire(self.clock.now_s)


@pytest.fixture
def harness():
    return SeriesHarness()


def of(namespace, workflow, stage):
    return {
        ("esg_batch_size", namespace, workflow, stage),
        ("esg_stage_duration_seconds", namespace, workflow, stage),
        ("esg_cost_dollars", namespace, workflow, None),
    }


def test_series_end_with_the_workflow(harness):
    """Only existing workflows have series, however many come and go."""
    harness.runs(workflow="chain", stage="half")
    assert harness.series() == of("default", "chain", "half")
    harness.documents(HALF, TENTH)
    assert harness.series() == set()


def test_series_end_with_the_stage(harness):
    """The series of a stage end when its workflow has it no more."""
    for stage in ("half", "tenth"):
        harness.runs(workflow="chain", stage=stage)
    harness.documents(HALF, TENTH, workflow("chain", 1_000, "tenth"))
    assert harness.series() == of("default", "chain", "tenth")


def test_a_grant_to_a_stage_that_went_makes_no_series(harness):
    """The document may be deleted while the Binding is written."""
    harness.state.pods.upsert(raw := pod(workflow="chain", stage="half"))
    harness.documents(HALF, TENTH)
    harness.metrics.batch_granted(
        harness.state.pods.pending[raw["metadata"]["uid"]].function_pod, 1
    )
    assert harness.series() == set()


def test_series_of_a_lone_function_end_with_its_namespace(harness):
    """When a namespace has had no function pod for the keep-alive; other namespaces keep theirs."""
    harness.runs(function="half", namespace="left")
    harness.runs(function="half", namespace="busy")
    harness.later(590)
    harness.runs(function="half", namespace="busy")
    assert harness.series() == of("left", "half", "half") | of("busy", "half", "half")
    harness.later(20)
    assert harness.series() == of("busy", "half", "half")


def test_series_of_a_lone_function_end_with_its_profile(harness):
    """A function that was deleted has no series, wherever its pods are."""
    harness.runs(function="half")
    harness.documents(TENTH)
    assert harness.series() == set()


def test_a_workflow_of_a_lone_functions_name_keeps_its_series(harness):
    """They have the same labels, so the series of either remain."""
    harness.documents(HALF, workflow("half", 1_000, "half"))
    harness.runs(function="half")
    harness.runs(workflow="half", stage="half")
    harness.later(1_000)
    assert harness.series() == of("default", "half", "half")
