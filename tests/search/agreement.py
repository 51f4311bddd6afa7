"""Whether a plan is what brute force says."""

from math import inf, isclose

from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Candidate, Plan, Prices
from scheduler.search.planner import PlanRequest
from tests.search import naive

RELATIVE = 1e-11  # sums in another order


def point(candidate: Candidate) -> naive.Point:
    c = candidate.configuration
    return c.batch, c.cpu, c.gpu_percent


def assert_agrees(
    catalogue: Catalogue,
    request: PlanRequest,
    plan: Plan,
    *,
    on_lost_slo: str = "fastest",
) -> None:
    """Feasibility, K, the K costs in order, and each candidate's own best completion."""
    found = naive.completions(catalogue, Prices(), request)
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
        assert candidate.path_ms <= budget * (1 + RELATIVE)
        main = "path_ms" if fastest else "path_cost"
        assert isclose(getattr(candidate, main), getattr(own, main), rel_tol=RELATIVE)
        # Completions that differ by rounding alone in what is asked for: any of them will do.
        assert any(
            isclose(candidate.path_ms, c.path_ms, rel_tol=RELATIVE)
            and isclose(candidate.path_cost, c.path_cost, rel_tol=RELATIVE)
            for c in found
            if c.key == key and isclose(getattr(c, main), getattr(own, main), rel_tol=RELATIVE)
        )
        if not plan.feasible and not keeping_up:
            assert isclose(own.throughput, nth.throughput, rel_tol=RELATIVE)
        elif fastest:
            assert isclose(candidate.path_ms, nth.path_ms, rel_tol=RELATIVE)
        else:
            assert isclose(candidate.path_cost, nth.path_cost, rel_tol=RELATIVE)
