"""Queues of a workflow: the wait at the stages behind one."""

from itertools import count
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.dispatch.workflow_queues import WorkflowQueues
from workbench.profiles.builders import workflow

WAITS_MS = [7.0, 30.0, 0.0, 11.0, 90.0, 2.0]


@st.composite
def stages(draw):
    """Stages before each stage, in any order of the stages."""
    size = draw(st.integers(1, len(WAITS_MS)))
    order = draw(st.permutations(range(size)))
    after = [[] for _ in range(size)]
    for place, stage in enumerate(order):
        after[stage] = sorted(draw(st.sets(st.sampled_from(order[:place])))) if place else []
    return after


@pytest.mark.replaces
@given(after=stages())
def test_the_wait_at_later_stages_is_that_of_the_longest_way(after):
    """Parallel ways wait at the same time."""

    def longest_ms(stage):
        """Return the longest wait on a way that begins behind a stage, way by way."""
        later = [i for i, before in enumerate(after) if stage in before]
        return max((WAITS_MS[i] + longest_ms(i) for i in later), default=0.0)

    functions = {("default", f"f{i}"): wait_ms for i, wait_ms in enumerate(WAITS_MS)}
    state = WorkflowQueues(
        workflow(after),
        "cheapest",
        count(),
        lambda key: SimpleNamespace(due_wait_ms=functions[key], has_due_rows=True),
    )
    for stage in range(len(after)):
        assert state.later_wait_ms(stage) == longest_ms(stage)
