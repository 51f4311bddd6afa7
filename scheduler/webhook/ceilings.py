"""How much a pod may be given at most: its ceilings, fixed when it is admitted.

At filter the search runs again, over the configurations within the ceilings, with the slack that is
left by then. Kubernetes counts the ceilings, not what is granted: the scheduler's in-tree fit, the
kubelet and quotas all do. So what a ceiling has above the grant is room that nobody can use, and
what it lacks is a faster configuration that the pod cannot take when it had to wait.

The ceilings are therefore those of the cheapest configuration now, and of the cheapest one once a
part of the slack has been waited away, whichever is the larger in each dimension. The largest of
all K candidates would be simpler, and worse in both respects: the K next cheapest are other batches
and larger shares, not the faster ones that a late pod needs. A pod without deadline or arrival has
the same budget whenever it is asked about, so there the cheapest configuration is the ceiling.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from scheduler.model.plan import Plan
from scheduler.model.pod import FunctionPod

Planning = Callable[[FunctionPod], Plan]


@dataclass(frozen=True, slots=True)
class CeilingPlanner:
    """What a pod may be given at most, and whether it keeps its SLO with that."""

    cpu: int  # vCPUs
    gpu_percent: int
    feasible: bool


def ceilings(
    pod: FunctionPod, planning: Planning, *, now: float, headroom_ratio: float
) -> CeilingPlanner:
    """The ceilings of a pod at ``now`` (seconds since the epoch).

    Args:
        pod: as its creator made it; what it requests itself bounds the plan already.
        planning: gives the candidates for a pod, cheapest first; its errors pass through.
        now: the time that ``planning`` goes by, too.
        headroom_ratio: the part of the slack that may be waited away; 0: none.
    """
    plan = planning(pod)
    plans = [plan]
    waits = pod.deadline_s is not None or pod.arrival_s is not None
    if waits and plan.feasible and plan.budget_ms is not None and headroom_ratio > 0:
        left_s = plan.budget_ms * (1 - headroom_ratio) / 1000
        late = planning(replace(pod, deadline_s=now + left_s))
        # When the SLO is lost by then, the fastest configuration of all would no longer save it.
        plans.extend([late] if late.feasible else [])
    cheapest = [each.candidates[0].configuration for each in plans]
    return CeilingPlanner(
        max(configuration.cpu for configuration in cheapest),
        max(configuration.gpu_percent for configuration in cheapest),
        plan.feasible,
    )
