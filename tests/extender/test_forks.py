"""Branches of a fork: each is planned together with what else of its instance is unfinished."""

import pytest

from scheduler.model.documents import Workflow
from tests.extender.factories import node, pod, profile
from tests.extender.harness import embedded

CHEAP, FAST = 20, 90
# Two branches and a stage that joins them. Within 620 ms either the branches or the last stage can
# run at the cheap configuration. The saving at two branches is larger than that at the last stage,
# the saving at one of them is smaller.
FORK = Workflow.model_validate(
    {
        "metadata": {"name": "fork", "namespace": "default"},
        "spec": {
            "slo": {"latencyMs": 620},
            "stages": [
                {"name": "left", "function": "branch"},
                {"name": "right", "function": "branch"},
                {"name": "last", "function": "last", "after": ["left", "right"]},
            ],
        },
    }
)
DOCUMENTS = (
    profile("branch", (CHEAP, 400), (FAST, 100)),
    profile("last", (CHEAP, 400), (FAST, 105)),
    FORK,
)


@pytest.fixture
def extender(clock):
    """A service over two nodes."""
    nodes = [node("n1", 2), node("n2", 2)]
    with embedded(nodes=nodes, documents=DOCUMENTS, clock=clock, margin_ratio=0) as extender:
        yield extender


def branch(stage, request="r"):
    return pod(workflow="fork", stage=stage, request=request)


@pytest.mark.parametrize("request_label", ["r", None])
def test_branches_are_planned_together(extender, request_label):
    """Both branches run cheaply, as one plan of all three stages has it."""
    for stage in ("left", "right"):
        granted = extender.place(branch(stage, request_label), "n1")
        assert granted["gpu_percent"] == CHEAP


def test_a_branch_does_not_hurry_for_a_sibling_that_runs_longer(extender, clock):
    """While the other branch runs for 400 ms, no configuration can start the last stage earlier."""
    assert extender.place(branch("left"), "n1")["gpu_percent"] == CHEAP
    clock.now_s += 0.05
    # 570 ms are left: 350 ms until the other branch ends, then 105 ms.
    assert extender.place(branch("right"), "n1")["gpu_percent"] == CHEAP


def test_a_branch_is_planned_alone_when_its_sibling_has_ended(extender):
    """The last stage then costs less than the branch saves."""
    sibling = branch("left")
    extender.place(sibling, "n1")
    extender.finish(sibling)
    assert extender.place(branch("right"), "n1")["gpu_percent"] == FAST
