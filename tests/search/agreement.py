"""Whether a plan is what brute force says."""

from math import inf, isclose

from tests.search import naive
from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Candidate, Plan, Prices
from scheduler.search.planner import PlanRequest

RELATIVE = 1e-11


def point(candidate: Candidate) -> naive.Point:
    c = candidate.configuration
    return c.batch, c.cpu, c.gpu_percent


def assert_agrees(
    catalogue: Catalogue,
    request: PlanRequest,
    plan: Plan,
    *,
    prices: Prices = Prices(),
    on_lost_slo: str = "fastest",
) -> None:
    """Feasibility, K, the K costs in order, and each candidate's own best completion."""
    found = naive.completions(catalogue, prices, request)
    in_time = naive.best_by_first(naive.keeping_up(found, request.rate), plan.budget_ms)
    assert plan.feasible == bool(in_time)
    assert plan.exact
    keeping_up = naive.keeping_up(found, request.rate)
    fastest = not plan.feasible and on_lost_slo == "fastest"
    if plan.feasible:
        expected = in_time
    elif keeping_up:
        expected = naive.best_by_first(keeping_up, None, fastest=fastest)
    else:
        expected = naive.best_by_first(found, None, fastest=fastest)
        expected.sort(key=lambda c: -c.throughput)
    by_key = {completion.key: completion for completion in expected}
    keys = [(candidate.gpu_model, point(candidate)) for candidate in plan.candidates]
    assert len(set(keys)) == len(keys) == min(request.k, len(expected))
    budget = inf if plan.budget_ms is None or not plan.feasible else plan.budget_ms
    for candidate, key, nth in zip(plan.candidates, keys, expected, strict=False):
        own = by_key[key]
        assert isclose(candidate.path_cost, own.path_cost, rel_tol=RELATIVE)
        assert candidate.path_ms <= budget * (1 + RELATIVE)
        ways = [
            c.path_ms
            for c in found
            if c.key == key and isclose(c.path_cost, own.path_cost, rel_tol=RELATIVE)
        ]
        assert min(ways) * (1 - RELATIVE) <= candidate.path_ms
        assert any(isclose(candidate.path_ms, way, rel_tol=RELATIVE) for way in ways)
        if not plan.feasible and not keeping_up:
            assert isclose(own.throughput, nth.throughput, rel_tol=RELATIVE)
        elif fastest:
            assert isclose(candidate.path_ms, nth.path_ms, rel_tol=RELATIVE)
        else:
            assert isclose(candidate.path_cost, nth.path_cost, rel_tol=RELATIVE)
