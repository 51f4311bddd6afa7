"""Branches of a fork: each is planned together with what else of its instance is unfinished."""

from datetime import UTC, datetime

import pytest

from tests.extender.factories import node, pod, profile
from tests.extender.harness import embedded
from workbench.profiles.builders import graph

CHEAP, FAST = 20, 90
# Two branches and a stage that joins them. Within 620 ms either the branches or the last stage can
# run at the cheap configuration. The saving at two branches is larger than that at the last stage,
# the saving at one of them is smaller.
FORK = graph(
    {"left": ["branch"], "right": ["branch"], "last": ["last", "left", "right"]},
    name="fork",
    slo_ms=620,
)
# A branch of two stages beside one of three, which needs 300 ms.
UNEVEN = graph(
    {
        "first": ["branch"],
        "second": ["branch", "first"],
        "one": ["branch"],
        "two": ["branch", "one"],
        "three": ["branch", "two"],
    },
    name="uneven",
    slo_ms=620,
)
DOCUMENTS = (
    profile("branch", (CHEAP, 400), (FAST, 100)),
    profile("last", (CHEAP, 400), (FAST, 105)),
    FORK,
    UNEVEN,
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


def test_without_the_instance_a_late_branch_is_planned_alone(extender, clock):
    """Its sibling may have ended without a report, so the SLO is not lost."""
    clock.now_s += 10
    deadline = datetime.fromtimestamp(clock.now_s + 0.21, UTC).isoformat()
    last = pod(workflow="fork", stage="last", annotations={"deadline": deadline})
    assert extender.place(last, "n1")["plan"]["feasible"]
    second = pod(workflow="uneven", stage="second", annotations={"deadline": deadline})
    granted = extender.place(second, "n1")
    assert granted["plan"]["feasible"]
    assert granted["gpu_percent"] == FAST
