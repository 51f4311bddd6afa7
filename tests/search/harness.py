"""Comparison of plans with brute force."""

from math import inf, isclose

from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Candidate, Plan, Prices
from scheduler.search.planner import PlanRequest
from tests.search import naive

RELATIVE = 1e-11  # sums in another order


def plan_request(**fields: object) -> PlanRequest:
    """Create a request for the first stage of workflow "w"."""
    return PlanRequest(**{"namespace": "default", "workflow": "w", "stage": "s0", **fields})  # type: ignore[arg-type]


def point(candidate: Candidate) -> naive.Point:
    """Return the configuration of a candidate as the naive twin identifies it."""
    c = candidate.configuration
    return c.batch, c.cpu, c.gpu_percent


def assert_agrees(
    catalogue: Catalogue,
    request: PlanRequest,
    plan: Plan,
    *,
    on_lost_slo: str = "cheapest",
) -> None:
    """Compare feasibility; per GPU model and start time K, the K costs and every completion.

    The costs are those of brute force within the plan's epsilon.
    """
    completions = naive.completions(catalogue, Prices(), request)
    serving = naive.serving_rate(completions, request.rate_rps)
    models = {completion.model for completion in completions}
    budget_ms = inf if plan.budget_ms is None else plan.budget_ms
    in_time = {
        (model, start_ms): naive.best_by_first(of_model, budget_ms, start_ms)
        for model in models
        for of_model in [[c for c in serving if c.model == model]]
        for start_ms in request.starts_ms
    }
    assert plan.feasible == any(in_time.values())
    assert plan.feasible == (plan.message == "")
    listed: dict[tuple[str, float], list[Candidate]] = {key: [] for key in in_time}
    for candidate in plan.candidates:
        listed[candidate.gpu_model, candidate.start_ms].append(candidate)
    for (model, start_ms), candidates in listed.items():
        expected, main = in_time[model, start_ms], "path_cost_dollars"
        if not plan.feasible:
            if start_ms < max(request.starts_ms):
                assert not candidates
                continue
            of_model = [c for c in serving or completions if c.model == model]
            fastest = on_lost_slo == "fastest"
            expected = naive.best_by_first(of_model, None, fastest=fastest)
            main = "path_ms" if fastest else "path_cost_dollars"
            if not serving:
                expected.sort(key=lambda c: -c.requests_per_ms)
                main = "requests_per_ms"
        limit_ms = budget_ms if plan.feasible else inf
        _assert_best(
            plan, candidates, expected, completions, main=main, k=request.k, limit_ms=limit_ms
        )
    main = "path_cost_dollars" if plan.feasible or on_lost_slo == "cheapest" else "path_ms"
    if plan.feasible or serving:
        values = [getattr(candidate, main) for candidate in plan.candidates]
        assert values == sorted(values)


def _assert_best(
    plan: Plan,
    candidates: list[Candidate],
    expected: list[naive.NaiveCompletion],
    completions: list[naive.NaiveCompletion],
    *,
    main: str,
    k: int,
    limit_ms: float,
) -> None:
    """Compare the candidates with the K best of those expected, in order; ties may differ."""
    by_key = {completion.key: completion for completion in expected}
    keys = [(candidate.gpu_model, point(candidate)) for candidate in candidates]
    assert len(set(keys)) == len(keys) == min(k, len(expected))
    own_main = "path_ms" if main == "path_ms" else "path_cost_dollars"
    for candidate, key, nth in zip(candidates, keys, expected, strict=False):
        own = by_key[key]
        path_ms = candidate.path_ms - candidate.start_ms
        planned = {"path_ms": path_ms, "path_cost_dollars": candidate.path_cost_dollars}
        assert candidate.path_ms <= limit_ms * (1 + RELATIVE)
        if plan.exact:
            if main != "requests_per_ms":
                assert _equal(
                    planned[own_main], getattr(own, own_main), start_ms=candidate.start_ms
                )
            assert isclose(getattr(own, main), getattr(nth, main), rel_tol=RELATIVE)
        elif main == "path_cost_dollars":
            minimum = nth.path_cost_dollars
            limit = minimum * (1 + plan.epsilon)
            assert minimum * (1 - RELATIVE) <= planned[main] <= limit * (1 + RELATIVE)
        # Of completions whose order depends on rounding alone, any one is correct.
        assert any(
            _equal(path_ms, c.path_ms, start_ms=candidate.start_ms)
            and isclose(candidate.path_cost_dollars, c.path_cost_dollars, rel_tol=RELATIVE)
            for c in completions
            if c.key == key
        )


def _equal(x: float, y: float, *, start_ms: float) -> bool:
    """Compare up to rounding; the start was added to a time and subtracted again."""
    return isclose(x, y, rel_tol=RELATIVE, abs_tol=start_ms * RELATIVE)
