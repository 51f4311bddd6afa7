"""Ceilings of a pod: the vCPUs and GPU share it may get at most, fixed at admission.

At filter the search runs again, over the configurations within the ceilings, with the remaining
slack. Kubernetes counts the ceilings, not the grant: the scheduler's in-tree fit, the kubelet and
quotas all do. A ceiling above the grant reserves capacity that nothing can use; a ceiling that is
too low excludes the faster configuration that a pod needs after a wait.

In each dimension the ceiling is therefore the larger one of two configurations: the cheapest now,
and the cheapest after part of the slack has passed. The maximum over all K candidates would be
simpler and worse in both respects: the K next cheapest have other batches and larger shares, and
are not the faster ones that a late pod needs. The budget of a pod without deadline or arrival does
not shrink with time, so there the ceilings are those of the cheapest configuration.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from scheduler.model.plan import Plan
from scheduler.model.pod import FunctionPod

Planner = Callable[[FunctionPod], Plan]


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The ceilings of a pod.

    Attributes:
        cpu: vCPUs.
        gpu_percent: percent of a GPU.
        feasible: true if it meets its SLO with them.
        in_slice: true if the pod requests neither: it is a member of a pool (ADR 44).
    """

    cpu: int
    gpu_percent: int
    feasible: bool
    in_slice: bool = False


def pod_ceilings(
    pod: FunctionPod, planner: Planner, *, now_s: float, headroom_ratio: float
) -> Ceilings:
    """Compute the ceilings of a pod at ``now_s`` (seconds since the epoch).

    Args:
        pod: pod as created; its own requests already bound the plan.
        planner: function that returns the candidates for a pod, cheapest first; its errors pass
            through.
        now_s: current time on the clock of ``planner``.
        headroom_ratio: part of the slack that may pass before the pod is bound; 0: none.
    """
    plan = planner(pod)
    plans = [plan]
    has_deadline = pod.deadline_s is not None or pod.arrival_s is not None
    if has_deadline and plan.feasible and plan.budget_ms is not None and headroom_ratio > 0:
        slack_s = plan.budget_ms * (1 - headroom_ratio) / 1000
        late_plan = planner(replace(pod, deadline_s=now_s + slack_s))
        # If the late plan misses the SLO, even the fastest configuration would: no ceiling for it.
        plans.extend([late_plan] if late_plan.feasible else [])
    cheapest = [plan.candidates[0].configuration for plan in plans]
    return Ceilings(
        max(configuration.cpu for configuration in cheapest),
        max(configuration.gpu_percent for configuration in cheapest),
        plan.feasible,
        pod.is_member,
    )
