"""What time costs: the curves of ``esg plan --plot``, by asking the planner often."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from scheduler.model.catalogue import Catalogue
from scheduler.search.completion import complete
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.rules import Rules
from workbench.reports.planned import TOLERANCE, Curve

_SAMPLES = 128


def curves(catalogue: Catalogue, rules: Rules, request: PlanRequest) -> tuple[Curve, ...]:
    """The exact curve, and where the rules are the paper's, theirs after it; none if nothing fits.

    From the fastest completion to the cheapest, for the shortest of the starts. Times are as
    planned: a margin is no part of them.
    """
    # Asked with no time at all, it tells the fastest completion.
    exact = Planner(catalogue, replace(rules, policy="exact", on_lost_slo="fastest"))
    asked = replace(request, k=1, starts_ms=(min(request.starts_ms),), margin_ratio=0.0)
    cheapest = exact.plan(replace(asked, slack_ms=inf))
    if not cheapest.feasible:
        return ()
    fastest = exact.plan(replace(asked, slack_ms=0.0))
    times_ms = _spaced(fastest.candidates[0].path_ms, cheapest.candidates[0].path_ms)
    found = [_exact(exact, asked, times_ms)]
    if rules.policy == "esg":
        found.append(_in_groups(Planner(catalogue, rules), asked, times_ms))
    return tuple(found)


def _spaced(least_ms: float, most_ms: float) -> list[float]:
    """Times from the least to the most, each the same multiple of the one before."""
    if most_ms <= least_ms * (1 + TOLERANCE):
        return [least_ms]
    ratio = most_ms / least_ms
    return [least_ms * ratio ** (i / (_SAMPLES - 1)) for i in range(_SAMPLES)]


def _exact(planner: Planner, request: PlanRequest, times_ms: list[float]) -> Curve:
    plans = [planner.plan(replace(request, slack_ms=time_ms)) for time_ms in times_ms]
    best = [(plan.candidates[0].path_ms, plan.candidates[0].path_cost_dollars) for plan in plans]
    return Curve("exact", tuple(_falling(best)), max(plan.epsilon for plan in plans))


def _falling(points: list[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Those that none before is as good as: what fits in less time fits in more."""
    least = inf
    for time_ms, cost in points:
        if cost < least:
            least = cost
            yield time_ms, cost


def _in_groups(planner: Planner, request: PlanRequest, times_ms: list[float]) -> Curve:
    found = [complete(planner, replace(request, slack_ms=time_ms)) for time_ms in times_ms]
    return Curve(
        "esg",
        tuple(
            (time_ms, whole.cost_dollars if whole.path_ms <= time_ms * (1 + TOLERANCE) else None)
            for time_ms, whole in zip(times_ms, found, strict=True)
        ),
    )
