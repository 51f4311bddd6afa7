"""Explanation of a pod: its grant, or the decision that would be taken now."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from scheduler.extender.scheduling import Scheduler
from scheduler.model.grant import grant_of
from scheduler.model.pod_fields import PodError
from scheduler.planning.pods import describe
from scheduler.server.errors import RefusedError

_NODES_MAX = 2_000  # an explanation is for a person; beyond that the counts alone are complete


def explain(
    scheduler: Scheduler,
    raw: Mapping[str, Any],
    nodes: list[str],
    *,
    require_ready: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Explain a pod: its grant where it is bound; else plan, candidates and every node's answer.

    ``require_ready`` raises a RefusedError while no decision can be taken.
    """
    pod = describe(raw)
    explanation: dict[str, Any] = {"pod": f"{pod.namespace}/{pod.name}", "uid": pod.uid}
    if node := (raw.get("spec") or {}).get("nodeName"):
        return explanation | {"node": node} | _granted(raw)
    explanation["ours"] = bool(pod.function_pod or pod.problem)
    if pod.function_pod is None:
        return explanation | {"error": pod.problem}
    try:
        require_ready()
        decision = scheduler.schedule(pod, nodes)
    except RefusedError as error:
        return explanation | {"error": str(error)}
    plan, placement, refusals = decision.plan, decision.placement, decision.refusals
    return explanation | {
        "error": "",
        "plan": plan and plan.as_json() | {"exact": plan.exact},
        "selected_candidate": placement and placement.candidate_index,
        "feasible_nodes": decision.feasible[:_NODES_MAX],
        "infeasible_nodes": {
            name: refusal.reason for name, refusal in list(refusals.items())[:_NODES_MAX]
        },
        "reasons": dict(Counter(refusal.reason for refusal in refusals.values())),
    }


def _granted(raw: Mapping[str, Any]) -> dict[str, Any]:
    try:
        grant = grant_of(raw)
    except PodError as error:
        return {"granted": None, "error": str(error)}
    if grant is None:
        return {"granted": None, "error": ""}
    return {
        "granted": {
            "gpu": grant.gpu_uuid,
            "gpu_percent": grant.gpu_percent,
            "memory_mib": grant.memory_mib,
            "batch": grant.batch,
            "pool": grant.pool,
            "group": grant.group,
            "plan": dict(grant.plan),
        },
        "error": "",
    }
