"""Lower bound of the cost of requests in time, which no policy can pay less than.

Each stage runs one configuration, as part of a full batch that begins at once, for the mean time of
the profile. Nothing waits, nothing is idle, and shares need not fit on GPUs. The configurations are
those of the cheapest completion of the workflow within its SLO.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import Workflow
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.plan import Prices
from scheduler.search.completion import complete
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.rules import Rules

WorkflowKey = tuple[str, str]
_CHANGE_RATIO = 0.1  # of an SLO, by which the price of its time is found


@dataclass(frozen=True, slots=True)
class StageLimit:
    """Part of a stage in the least cost of a request.

    Attributes:
        dollars: cost of one request in the batch of its configuration there.
        dollars_per_ms: cost to the workflow of a millisecond less of the SLO.
    """

    dollars: float
    dollars_per_ms: float


def request_bounds_dollars(
    catalogue: Catalogue, prices: Prices, fleet: FleetCapacity | None = None
) -> dict[WorkflowKey, float]:
    """Return the least cost of a request of each workflow; inf where none can be in time.

    Args:
        catalogue: workflows and the profiles of all their functions.
        prices: prices of vCPUs and GPUs.
        fleet: the cluster's nodes. Default: of any size, with all GPU models of the profiles.

    Raises:
        UnknownDocumentError: a profile is missing.
        PlanningError: no node of the fleet can hold a stage.
    """
    planner = Planner(catalogue, Rules(prices=prices))
    return {
        key: _request_bound_dollars(planner, workflow, fleet)
        for key, workflow in catalogue.workflows.items()
    }


def stage_limits(
    catalogue: Catalogue, prices: Prices, fleet: FleetCapacity | None = None
) -> dict[WorkflowKey, dict[str, StageLimit]]:
    """Divide the least cost of a request among its stages, by name; empty where none is in time.

    The parts add up to `request_bounds_dollars`, whose arguments and errors these are.
    """
    planner = Planner(catalogue, Rules(prices=prices))
    return {
        key: _stage_limits(planner, workflow, fleet)
        for key, workflow in catalogue.workflows.items()
    }


def mean_bound_dollars(
    bounds_dollars: Mapping[WorkflowKey, float], requests: Mapping[WorkflowKey, float] | None = None
) -> float:
    """Return the mean bound of a request.

    Args:
        bounds_dollars: bound of each workflow; inf where none can be in time.
        requests: number of requests, or their rate, of each workflow. Default: the same of each.
    """
    keys = [key for key in bounds_dollars if requests is None or requests.get(key)]
    weights = None if requests is None else [requests[key] for key in keys]
    return fmean([bounds_dollars[key] for key in keys], weights)


def _request_bound_dollars(
    planner: Planner, workflow: Workflow, fleet: FleetCapacity | None
) -> float:
    plan = planner.plan(_request(workflow, fleet))
    if not plan.feasible:
        return inf
    return plan.candidates[0].path_cost_dollars / (1.0 + plan.epsilon)


def _stage_limits(
    planner: Planner, workflow: Workflow, fleet: FleetCapacity | None
) -> dict[str, StageLimit]:
    bound_dollars = _request_bound_dollars(planner, workflow, fleet)
    if bound_dollars == inf:
        return {}
    request = _request(workflow, fleet)
    completion = complete(planner, request)
    slo_ms = workflow.spec.slo.latency_ms
    change_ms = _CHANGE_RATIO * slo_ms
    changed = planner.plan(replace(request, slack_ms=slo_ms - change_ms))
    if not changed.feasible:
        changed = planner.plan(replace(request, slack_ms=slo_ms + change_ms))
    change_dollars = abs(changed.candidates[0].path_cost_dollars - completion.cost_dollars)
    # 1, but for the error of an inexact plan.
    ratio = bound_dollars / completion.cost_dollars if bound_dollars else 1.0
    return {
        run.stage: StageLimit(ratio * run.cost_dollars, change_dollars / change_ms)
        for run in completion.runs
    }


def _request(workflow: Workflow, fleet: FleetCapacity | None) -> PlanRequest:
    """Return the request for a plan of the whole workflow."""
    namespace, name = workflow.key
    entry = next(stage.name for stage in workflow.spec.stages if not stage.after)
    return PlanRequest(namespace=namespace, workflow=name, stage=entry, fleet=fleet, k=1)
