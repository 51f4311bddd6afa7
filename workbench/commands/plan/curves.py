"""Curves of ``esg plan --plot``: cost against time, from many calls of the planner."""

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
    # With a slack of 0 each stage gets its fastest configuration.
    exact = Planner(catalogue, replace(rules, policy="exact", on_lost_slo="fastest"))
    whole = replace(request, k=1, starts_ms=(min(request.starts_ms),), margin_ratio=0.0)
    unlimited = replace(whole, slack_ms=inf)
    if not exact.plan(unlimited).feasible:
        return ()
    fastest = complete(exact, replace(whole, slack_ms=0.0))
    times_ms = _spaced(fastest.path_ms, complete(exact, unlimited).path_ms)
    lines = [_exact(exact, whole, times_ms)]
    if rules.policy == "esg":
        lines.append(_in_groups(Planner(catalogue, rules), whole, times_ms))
    return tuple(lines)


def _spaced(shortest_ms: float, longest_ms: float) -> list[float]:
    """Space times geometrically from the shortest to the longest."""
    if longest_ms <= shortest_ms * (1 + TOLERANCE):
        # Too near for times in between; the costs of both ends may still differ by more.
        return sorted({shortest_ms, longest_ms})
    ratio = longest_ms / shortest_ms
    return [shortest_ms * ratio ** (i / (_SAMPLES - 1)) for i in range(_SAMPLES)]


def _exact(planner: Planner, request: PlanRequest, times_ms: list[float]) -> Curve:
    # All unfinished stages have to end, also those that are parallel to the requested one.
    completions = [complete(planner, replace(request, slack_ms=time_ms)) for time_ms in times_ms]
    points = _falling([(end.path_ms, end.cost_dollars) for end in completions])
    return Curve("exact", tuple(points), max(end.epsilon for end in completions))


def _falling(points: list[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Drop points that an earlier one matches: what fits in less time fits in more."""
    cheapest = inf
    for time_ms, cost in points:
        if cost < cheapest:
            cheapest = cost
            yield time_ms, cost


def _in_groups(planner: Planner, request: PlanRequest, times_ms: list[float]) -> Curve:
    completions = [complete(planner, replace(request, slack_ms=time_ms)) for time_ms in times_ms]
    return Curve(
        "esg",
        tuple(
            (time_ms, plan.cost_dollars if plan.path_ms <= time_ms * (1 + TOLERANCE) else None)
            for time_ms, plan in zip(times_ms, completions, strict=True)
        ),
    )
