"""A planned stage: its completion beside its parts of the SLO, and remarks."""

from dataclasses import replace
from itertools import pairwise
from math import isclose

import pytest

from scheduler.search.planned_stage import PlannedStage, planned_stage
from scheduler.search.planner import Planner, PlanRequest, Rules
from tests.search.factories import CHAIN, catalogue

ROWS = [(1, 1, 10, 100.0), (1, 1, 20, 60.0), (2, 1, 20, 80.0)]


def planned(
    slack_ms: float | None = None, rules: Rules | None = None, later_waits_ms: float = 0.0
) -> PlannedStage:
    """Plan the second of four stages in a row, in a workflow of 1,000 ms."""
    documents = catalogue(CHAIN, [ROWS] * 4)
    planner = Planner(documents, rules or Rules())
    request = PlanRequest(
        namespace="default",
        workflow="w",
        stage="s1",
        slack_ms=slack_ms,
        margin_ratio=0.25,
        later_waits_ms=later_waits_ms,
    )
    return planned_stage(planner, request, documents.workflow("default", "w"))


def test_stages_follow_one_another_and_so_do_their_parts_of_the_slo():
    """The last part ends with the SLO, as seen from now."""
    stage = planned(slack_ms=600.0)
    rows = stage.as_json()["completion"]
    assert [row["stage"] for row in rows] == ["s1", "s2", "s3"]
    for before, row in pairwise(rows):
        assert isclose(before["to_ms"], row["from_ms"])
        assert isclose(before["budget_to_ms"], row["budget_from_ms"])
    assert isclose(rows[-1]["budget_to_ms"], 600.0)
    assert stage.workflow == "default/w"
    assert stage.covers_workflow
    assert stage.in_time
    assert isclose(stage.to_plan_ms, 600.0 / 1.25)
    assert not stage.remarks()


def test_the_plan_has_no_time_that_is_held_for_waits():
    """Requests wait at later stages meanwhile."""
    stage = planned(slack_ms=600.0, later_waits_ms=100.0)
    assert stage.plan.later_waits_ms == 100.0
    assert isclose(stage.to_plan_ms, 500.0 / 1.25)


def test_a_plan_that_cannot_be_in_time_says_so():
    """The remark is the planner's message."""
    stage = planned(slack_ms=100.0)
    assert not stage.in_time
    (remark,) = stage.remarks()
    assert remark == f"{stage.plan.message[:1].upper()}{stage.plan.message[1:]}."


def test_later_stages_that_are_late_are_told():
    """The stage meets its budget, and the stages behind it do not meet theirs."""
    stage = planned(slack_ms=600.0)
    late = replace(stage, slack_ms=stage.completion.path_ms - 10.0)
    (remark,) = late.remarks()
    assert remark == (
        "The current stage meets its budget, but the later stages do not: the completion ends "
        "10.0 ms late."
    )


@pytest.mark.parametrize(("epsilon", "text"), [(0.0123, "1.23 %"), (0.5, "50 %")])
def test_a_plan_that_is_not_exact_states_its_bound(epsilon: float, text: str):
    """An inexact plan costs at most so much more."""
    stage = planned(slack_ms=600.0)
    (remark,) = replace(stage, plan=stage.plan._replace(epsilon=epsilon)).remarks()
    assert remark == f"The plan is not exact: at most {text} above the minimum cost."
