"""Curves of ``esg plan --plot``: minimum cost against time, exact and in groups."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.search.cost_curves import curves
from scheduler.search.planner import Planner, PlanRequest, Rules
from scheduler.search.reduction.node_reduction import TOLERANCE_MIN
from tests.examples import examples
from tests.search.factories import N_SHAPE, catalogue, catalogues

RELATIVE = 1e-9
quick = examples(25)
# One microsecond in an hour lowers the cost: both ends of the curve are almost at one time.
NEARLY_ONE_TIME = catalogue(
    ((), (0,)), [[(1, 1, 10, 3_600_000.0)], [(1, 1, 20, 1.0), (1, 1, 10, 1.001)]]
)
# A stage parallel to the requested one takes longer than it.
SLOW_SIBLING = catalogue(((), ()), [[(1, 1, 10, 1.0), (1, 1, 20, 0.5)], [(1, 1, 10, 2.0)]])
REQUEST = PlanRequest(namespace="default", workflow="w", stage="s0")


@quick
@given(catalogues(configurations_max=4))
@example(NEARLY_ONE_TIME)
@example(SLOW_SIBLING)
def test_the_exact_curve_agrees_with_the_planner(documents: Catalogue) -> None:
    """It falls from the fastest completion to the cheapest; the planner returns both ends."""
    check_ends(documents, RELATIVE)


@quick
@given(catalogues(after=N_SHAPE, configurations_max=4))
def test_a_reduced_curve_agrees_within_the_tolerance_of_the_reduction(
    documents: Catalogue,
) -> None:
    """Completions of an order that is not series-parallel may cost that much more (ADR 21)."""
    check_ends(documents, TOLERANCE_MIN)


def check_ends(documents: Catalogue, tolerance_ratio: float) -> None:
    """Compare the ends of the exact curve with plans for their times."""
    (curve,) = curves(documents, Rules(), REQUEST)
    for (time_ms, cost), (next_ms, next_cost) in pairwise(curve.points):
        assert time_ms < next_ms
        assert next_cost < cost
    planner = Planner(documents)
    for time_ms, cost in (curve.points[0], curve.points[-1]):
        best = planner.plan(replace(REQUEST, slack_ms=time_ms)).candidates[0]
        assert best.path_cost_dollars == pytest.approx(cost, rel=tolerance_ratio)
    assert not planner.plan(replace(REQUEST, slack_ms=curve.points[0][0] * 0.999)).feasible
    unlimited = planner.plan(replace(REQUEST, slack_ms=1e15)).candidates[0]
    assert curve.points[-1][1] == pytest.approx(unlimited.path_cost_dollars, rel=tolerance_ratio)


@quick
@given(catalogues(configurations_max=4), st.integers(1, 3), st.floats(0.0, 1.0))
def test_planning_in_groups_is_never_cheaper(
    documents: Catalogue, group_size: int, margin_ratio: float
) -> None:
    """At every time the cost in groups is at least the exact minimum."""
    rules = Rules(policy="esg", group_size=group_size)
    exact, grouped = curves(documents, rules, replace(REQUEST, margin_ratio=margin_ratio))
    assert [line.name for line in (exact, grouped)] == [
        "minimum cost (exact)", "planned in groups (esg)",
    ]  # fmt: skip
    for time_ms, cost in grouped.points:
        minimum_cost = [c for t, c in exact.points if t <= time_ms * (1 + RELATIVE)][-1]
        if cost is not None:
            assert cost >= minimum_cost * (1 - RELATIVE)


@quick
@given(catalogues(configurations_max=4), st.floats(0.0, 1000.0))
def test_a_start_time_shifts_the_curve(documents: Catalogue, start_ms: float) -> None:
    """It is later by that time, or by less where another stage that can begin takes longer."""
    (base,) = curves(documents, Rules(), REQUEST)
    (shifted,) = curves(documents, Rules(), replace(REQUEST, starts_ms=(start_ms, start_ms + 5)))
    (workflow,) = documents.workflows.values()
    has_siblings = sum(not stage.after for stage in workflow.spec.stages) > 1
    for end in (0, -1):
        base_ms, base_cost = base.points[end]
        shifted_ms, shifted_cost = shifted.points[end]
        if has_siblings:
            assert base_ms * (1 - RELATIVE) <= shifted_ms <= (base_ms + start_ms) * (1 + RELATIVE)
        else:
            assert shifted_ms == pytest.approx(base_ms + start_ms)
            assert shifted_cost == pytest.approx(base_cost)


@quick
@given(catalogues(configurations_max=4))
def test_an_unserved_rate_has_no_curve(documents: Catalogue) -> None:
    """If no configuration serves the rate, no time is enough."""
    assert curves(documents, Rules(), replace(REQUEST, rate_rps=1e12)) == ()
