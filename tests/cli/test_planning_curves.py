"""The curves of ``esg plan --plot``: what time costs, exactly and in groups."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.search.planner import Planner, PlanRequest, Rules
from tests.search.factories import N_SHAPE, catalogues
from workbench.commands.plan_curves import curves

RELATIVE = 1e-9
quick = settings(max_examples=25, deadline=None)
REQUEST = PlanRequest(namespace="default", workflow="w", stage="s0")


@quick
@given(st.one_of(catalogues(configurations_max=4), catalogues(after=N_SHAPE, configurations_max=4)))
def test_the_exact_curve_is_the_planner_s(known: Catalogue) -> None:
    """It falls from the fastest completion to the cheapest, and a plan is on it or above."""
    (curve,) = curves(known, Rules(), REQUEST)
    for (time_ms, cost), (later_ms, less) in pairwise(curve.points):
        assert time_ms < later_ms
        assert less < cost
    planner = Planner(known)
    for time_ms, cost in (curve.points[0], curve.points[-1]):
        best = planner.plan(replace(REQUEST, slack_ms=time_ms)).candidates[0]
        assert best.path_cost_dollars == pytest.approx(cost, rel=RELATIVE)
    assert not planner.plan(replace(REQUEST, slack_ms=curve.points[0][0] * 0.999)).feasible
    endless = planner.plan(replace(REQUEST, slack_ms=1e15)).candidates[0]
    assert curve.points[-1][1] == pytest.approx(endless.path_cost_dollars, rel=RELATIVE)


@quick
@given(catalogues(configurations_max=4), st.integers(1, 3), st.floats(0.0, 1.0))
def test_groups_cost_no_less(known: Catalogue, group_size: int, margin_ratio: float) -> None:
    """At every time that both keep, the paper's way is at or above the exact curve."""
    rules = Rules(policy="esg", group_size=group_size)
    exact, grouped = curves(known, rules, replace(REQUEST, margin_ratio=margin_ratio))
    for time_ms, cost in grouped.points:
        least = [c for t, c in exact.points if t <= time_ms * (1 + RELATIVE)][-1]
        if cost is not None:
            assert cost >= least * (1 - RELATIVE)


@quick
@given(catalogues(configurations_max=4), st.floats(0.0, 1000.0))
def test_a_start_comes_before(known: Catalogue, start_ms: float) -> None:
    """The curve for a start that takes time is that of no start, so much later."""
    (now,) = curves(known, Rules(), REQUEST)
    (later,) = curves(known, Rules(), replace(REQUEST, starts_ms=(start_ms, start_ms + 5)))
    for end in (0, -1):
        assert later.points[end][0] == pytest.approx(now.points[end][0] + start_ms)
        assert later.points[end][1] == pytest.approx(now.points[end][1])


@quick
@given(catalogues(configurations_max=4))
def test_no_curve_where_nothing_keeps_up(known: Catalogue) -> None:
    """At a rate that no configuration serves, no time is enough."""
    assert curves(known, Rules(), replace(REQUEST, rate=1e12)) == ()
