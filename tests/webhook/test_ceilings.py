"""Ceilings: the cheapest configuration now and after part of the slack has passed."""

from datetime import UTC, datetime

import pytest

from scheduler.model import names
from scheduler.model.pod import function_pod
from scheduler.webhook.ceilings import Ceilings, pod_ceilings
from tests.webhook.factories import NOW_S, admission, admitted, candidate, plan, pod

LATE_MS = 90.0  # slack below which the planner chooses a faster configuration


def by_slack(early, late):
    """Create a planner with one plan for much slack, and one for little."""

    def planner(pod_):
        slack_ms = pod_.slack_ms(100.0, NOW_S)
        return late if slack_ms is not None and slack_ms < LATE_MS else early

    return planner


def waiting_pod():
    """Create a pod of a request that arrives now."""
    arrival = datetime.fromtimestamp(NOW_S, UTC).isoformat()
    return function_pod(pod(annotations={names.ANNOTATION_ARRIVAL: arrival}))


def test_cheapest_candidate_is_the_ceiling_of_a_pod_without_deadline():
    """Without arrival or deadline the budget never shrinks, so nothing faster will be needed."""
    planner = by_slack(plan(candidate(2, 28), candidate(8, 100)), plan(candidate(8, 100)))
    ceilings = pod_ceilings(function_pod(pod()), planner, now_s=NOW_S, headroom_ratio=0.2)
    assert ceilings == Ceilings(2, 28, feasible=True)


@pytest.mark.parametrize(
    ("late", "headroom_ratio", "expected"),
    [
        (plan(candidate(4, 14)), 0.2, Ceilings(4, 28, feasible=True)),
        (plan(candidate(1, 42)), 0.2, Ceilings(2, 42, feasible=True)),
        (plan(candidate(4, 42)), 0.0, Ceilings(2, 28, feasible=True)),
        (plan(candidate(4, 42)), 0.05, Ceilings(2, 28, feasible=True)),
        (plan(candidate(8, 100), feasible=False), 0.2, Ceilings(2, 28, feasible=True)),
    ],
    ids=["more vCPUs", "larger share", "switched off", "still early", "lost by then"],
)
def test_pod_with_deadline_gets_room_for_a_faster_configuration(late, headroom_ratio, expected):
    """Each dimension is the larger of its need now and after part of its slack."""
    planner = by_slack(plan(candidate(2, 28), candidate(8, 100)), late)
    ceilings = pod_ceilings(waiting_pod(), planner, now_s=NOW_S, headroom_ratio=headroom_ratio)
    assert ceilings == expected


def test_infeasible_plan_gives_its_first_candidate():
    """A wait cannot help any more: the ceilings are those of the fastest configuration."""
    planner = by_slack(plan(candidate(8, 100), feasible=False, budget_ms=-5), plan())
    ceilings = pod_ceilings(waiting_pod(), planner, now_s=NOW_S, headroom_ratio=0.2)
    assert ceilings == Ceilings(8, 100, feasible=False)


def test_creators_ceiling_bounds_the_plan():
    """The planner gets the ceiling that the creator set, in the request's namespace."""
    planned = []

    def planner(pod_):
        planned.append(pod_)
        return plan(candidate(1, 20))

    raw = pod({"name": "m", "resources": {"limits": {names.RESOURCE_GPU_PERCENT: "20"}}})
    admitted(admission(planner), raw)
    assert [(p.gpu_percent_ceiling, p.namespace) for p in planned] == [(20, "space")]
