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
    on_lost_slo: str = "cheapest",
) -> None:
    """Feasibility; on each GPU model and for each start, K, the K costs, and every completion."""
    found = naive.completions(catalogue, Prices(), request)
    keeping_up = naive.keeping_up(found, request.rate)
    models = {completion.model for completion in found}
    budget_ms = inf if plan.budget_ms is None else plan.budget_ms
    in_time = {
        (model, start_ms): naive.best_by_first(of_model, budget_ms - start_ms)
        for model in models
        for of_model in [[c for c in keeping_up if c.model == model]]
        for start_ms in request.starts_ms
    }
    assert plan.exact
    assert plan.feasible == any(in_time.values())
    assert plan.feasible == (plan.says == "")
    listed: dict[tuple[str, float], list[Candidate]] = {key: [] for key in in_time}
    for candidate in plan.candidates:
        listed[candidate.gpu_model, candidate.start_ms].append(candidate)
    for (model, start_ms), candidates in listed.items():
        expected, main = in_time[model, start_ms], "path_cost"
        if not plan.feasible:
            if start_ms < max(request.starts_ms):
                assert not candidates
                continue
            of_model = [c for c in keeping_up or found if c.model == model]
            fastest = on_lost_slo == "fastest"
            expected = naive.best_by_first(of_model, None, fastest=fastest)
            main = "path_ms" if fastest else "path_cost"
            if not keeping_up:
                expected.sort(key=lambda c: -c.throughput)
                main = "throughput"
        limit_ms = budget_ms if plan.feasible else inf
        _assert_best(candidates, expected, found, main=main, k=request.k, limit_ms=limit_ms)
    main = "path_cost" if plan.feasible or on_lost_slo == "cheapest" else "path_ms"
    if plan.feasible or keeping_up:
        values = [getattr(candidate, main) for candidate in plan.candidates]
        assert values == sorted(values)


def _assert_best(
    candidates: list[Candidate],
    expected: list[naive.Completion],
    found: list[naive.Completion],
    *,
    main: str,
    k: int,
    limit_ms: float,
) -> None:
    """The candidates are the K best of those expected, which are in order; ties may fall out."""
    by_key = {completion.key: completion for completion in expected}
    keys = [(candidate.gpu_model, point(candidate)) for candidate in candidates]
    assert len(set(keys)) == len(keys) == min(k, len(expected))
    own_main = "path_ms" if main == "path_ms" else "path_cost"
    for candidate, key, nth in zip(candidates, keys, expected, strict=False):
        own = by_key[key]
        path_ms = candidate.path_ms - candidate.start_ms
        told = {"path_ms": path_ms, "path_cost": candidate.path_cost_dollars}
        assert candidate.path_ms <= limit_ms * (1 + RELATIVE)
        if main != "throughput":
            assert _equal(told[own_main], getattr(own, own_main), candidate.start_ms)
        assert isclose(getattr(own, main), getattr(nth, main), rel_tol=RELATIVE)
        # Completions that differ by rounding alone in what is asked for: any of them will do.
        assert any(
            _equal(path_ms, c.path_ms, candidate.start_ms)
            and isclose(candidate.path_cost_dollars, c.path_cost_dollars, rel_tol=RELATIVE)
            for c in found
            if c.key == key
        )


def _equal(one: float, other: float, start_ms: float) -> bool:
    """Equal but for rounding; a time had the start added and taken off again."""
    return isclose(one, other, rel_tol=RELATIVE, abs_tol=start_ms * RELATIVE)
