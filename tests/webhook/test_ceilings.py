"""The ceilings are what the pod needs now, and what it will need when it had to wait."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from scheduler.model import names
from scheduler.model.plan import Plan
from scheduler.model.pod import FunctionPod, function_pod
from scheduler.webhook.ceilings import CeilingPlanner, ceilings
from tests.webhook.pods import NOW, admission, admitted, candidate, plan, pod

LATE = 90.0  # ms of slack below which the planner here takes something faster


def by_slack(now: Plan, late: Plan) -> Callable[[FunctionPod], Plan]:
    """A planner with one answer for much slack, and one for little."""

    def planning(pod_: FunctionPod) -> Plan:
        slack_ms = pod_.slack_ms(100.0, NOW)
        return late if slack_ms is not None and slack_ms < LATE else now

    return planning


def waiting_pod() -> FunctionPod:
    """A pod of a request that arrived just now."""
    arrival = datetime.fromtimestamp(NOW, UTC).isoformat()
    return function_pod(pod(annotations={names.ANNOTATION_ARRIVAL: arrival}))


def test_the_cheapest_candidate_is_the_ceiling_of_a_pod_that_cannot_be_late() -> None:
    """Without arrival or deadline the budget never shrinks, so nothing faster will be needed."""
    planning = by_slack(plan(candidate(2, 28), candidate(8, 100)), plan(candidate(8, 100)))
    most = ceilings(function_pod(pod()), planning, now=NOW, headroom_ratio=0.2)
    assert most == CeilingPlanner(2, 28, feasible=True)


@pytest.mark.parametrize(
    ("late", "headroom_ratio", "expected"),
    [
        (plan(candidate(4, 14)), 0.2, CeilingPlanner(4, 28, feasible=True)),
        (plan(candidate(1, 42)), 0.2, CeilingPlanner(2, 42, feasible=True)),
        (plan(candidate(4, 42)), 0.0, CeilingPlanner(2, 28, feasible=True)),
        (plan(candidate(4, 42)), 0.05, CeilingPlanner(2, 28, feasible=True)),
        (plan(candidate(8, 100), feasible=False), 0.2, CeilingPlanner(2, 28, feasible=True)),
    ],
    ids=["more vCPUs", "larger share", "switched off", "still early", "lost by then"],
)
def test_a_pod_that_can_be_late_may_become_faster(
    late: Plan, headroom_ratio: float, expected: CeilingPlanner
) -> None:
    """Each dimension is the larger of what it needs now and after part of its slack."""
    planning = by_slack(plan(candidate(2, 28), candidate(8, 100)), late)
    most = ceilings(waiting_pod(), planning, now=NOW, headroom_ratio=headroom_ratio)
    assert most == expected


def test_an_infeasible_plan_gives_its_first_candidate() -> None:
    """There is nothing to wait for any more: the fastest configuration, no more."""
    planning = by_slack(plan(candidate(8, 100), feasible=False, budget_ms=-5), plan())
    most = ceilings(waiting_pod(), planning, now=NOW, headroom_ratio=0.2)
    assert most == CeilingPlanner(8, 100, feasible=False)


def test_the_creators_ceiling_bounds_the_plan() -> None:
    """The planner is asked with the ceiling that the creator set, in the request's namespace."""
    asked = []

    def planning(pod_: FunctionPod) -> Plan:
        asked.append(pod_)
        return plan(candidate(1, 20))

    raw = pod({"name": "m", "resources": {"limits": {names.RESOURCE_GPU_PERCENT: "20"}}})
    admitted(admission(planning), raw)
    assert [(p.gpu_percent_ceiling, p.namespace) for p in asked] == [(20, "space")]
