"""Series end with their subject: a workflow, a stage, a function or a namespace."""

import pytest

from scheduler.extender.state import State
from scheduler.metrics import Metrics
from scheduler.model.documents import FunctionProfile, Workflow, to_manifest
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


class Story:
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
def story():
    return Story()


def of(namespace, workflow, stage):
    return {
        ("esg_batch_size", namespace, workflow, stage),
        ("esg_stage_duration_seconds", namespace, workflow, stage),
        ("esg_cost_dollars", namespace, workflow, None),
    }


def test_series_end_with_the_workflow(story):
    """Only existing workflows have series, however many come and go."""
    story.runs(workflow="chain", stage="half")
    assert story.series() == of("default", "chain", "half")
    story.documents(HALF, TENTH)
    assert story.series() == set()


def test_series_end_with_the_stage(story):
    """The series of a stage end when its workflow has it no more."""
    for stage in ("half", "tenth"):
        story.runs(workflow="chain", stage=stage)
    story.documents(HALF, TENTH, workflow("chain", 1_000, "tenth"))
    assert story.series() == of("default", "chain", "tenth")


def test_a_grant_to_a_stage_that_went_makes_no_series(story):
    """The document may be deleted while the Binding is written."""
    story.state.pods.upsert(raw := pod(workflow="chain", stage="half"))
    story.documents(HALF, TENTH)
    story.metrics.batch_granted(story.state.pods.pending[raw["metadata"]["uid"]].function_pod, 1)
    assert story.series() == set()


def test_series_of_a_lone_function_end_with_its_namespace(story):
    """When a namespace has had no function pod for the keep-alive; other namespaces keep theirs."""
    story.runs(function="half", namespace="left")
    story.runs(function="half", namespace="busy")
    story.later(590)
    story.runs(function="half", namespace="busy")
    both = of("left", "half", "half") | of("busy", "half", "half")
    chain = {("esg_cost_dollars", "default", "chain", None)}
    assert story.series() == both | chain
    story.later(20)
    assert story.series() == of("busy", "half", "half") | chain


def test_series_of_a_lone_function_end_with_its_profile(story):
    """A function that was deleted has no series, wherever its pods are."""
    story.runs(function="half")
    story.documents(TENTH)
    assert story.series() == set()


def test_a_workflow_of_a_lone_functions_name_keeps_its_series(story):
    """They have the same labels, so the series of either remain."""
    story.documents(HALF, workflow("half", 1_000, "half"))
    story.runs(function="half")
    story.runs(workflow="half", stage="half")
    story.later(1_000)
    assert story.series() == of("default", "half", "half")
