"""The planner answers what CP-SAT and HiGHS answer, on workflows too large for brute force."""

from collections.abc import Sequence
from dataclasses import replace
from math import lcm

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba import config

from scheduler.model.plan import Plan, Prices
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.rules import Rules
from tests.search.factories import prepared
from tests.search.noisy import BATCHES, documents
from tests.search.shapes import Shape, chain, fork_join, layered
from tests.search.solvers import CpSat, Highs, Problem, Solver, k_least

# A request costs latency_ms * (10 cpu + gpu_percent) / batch dollars: whole numbers of a unit.
WHOLE = Prices(vcpu_hour_dollars=3.6e7, gpu_hour_dollars=3.6e8)
UNITS_PER_DOLLAR = lcm(*BATCHES)
ROUNDING = 1e-12

# Without the compiler a frontier of thousands of points takes a second; brute force covers it all.
EXAMPLES = 2 if config.DISABLE_JIT else 20
solved = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
both = pytest.mark.parametrize("solver", [CpSat, Highs])

CHAINS = st.builds(chain, st.integers(5, 12))
FORK_JOINS = st.builds(fork_join, st.integers(5, 12))


def _check(
    draw: st.DrawFn, shape: Shape, counts: Sequence[int], solver: type[Solver], expansions_max: int
) -> Plan:
    """Ask both over one of these counts of configurations, and compare; return the plan.

    At once, or when all is prepared.
    """
    count, k = draw(st.sampled_from(counts)), draw(st.sampled_from((3, 1)))
    known = documents(shape, count, draw(st.integers(0, 2**32)), digits=0)
    planner = Planner(known, Rules(prices=WHOLE, expansions_max=expansions_max))
    stage = draw(st.sampled_from(("s0", "s1")))
    request = PlanRequest(namespace="default", workflow="w", stage=stage, slack_ms=0.0, k=k)
    fastest_ms = planner.plan(request).candidates[0].path_ms
    if draw(st.booleans()):
        prepared(planner, request)
    limit_ms = round(fastest_ms * draw(st.floats(1.0, 2.5)))
    plan = planner.plan(replace(request, slack_ms=float(limit_ms)))
    problem = Problem.of(known, stage, limit_ms, WHOLE, per_ms=1, per_dollar=UNITS_PER_DOLLAR)
    assert plan.feasible
    assert all(c.path_ms <= limit_ms * (1 + ROUNDING) for c in plan.candidates)
    assert plan.effort.expanded <= max(count, expansions_max)
    _assert_within_epsilon(plan, k_least(solver(problem), k))
    return plan


def _assert_within_epsilon(plan: Plan, costs: list[int]) -> None:
    """As many as there are, all distinct, and the n-th at most 1 + epsilon times the true n-th."""
    told = [candidate.path_cost_dollars * UNITS_PER_DOLLAR for candidate in plan.candidates]
    assert len({candidate.configuration for candidate in plan.candidates}) == len(told)
    assert len(told) == len(costs)
    for cost, least in zip(told, costs, strict=True):
        assert least * (1 - ROUNDING) <= cost <= least * (1 + plan.epsilon) * (1 + ROUNDING)


@both
@solved
@given(shape=st.one_of(CHAINS, FORK_JOINS), data=st.data())
def test_chains_and_fork_joins(solver: type[Solver], shape: Shape, data: st.DataObject) -> None:
    """Frontiers are exact whatever may be expanded, and the K costs are those of the solvers."""
    assert _check(data.draw, shape, (40, 20, 8), solver, expansions_max=0).exact


@both
@solved
@given(shape=layered((2, 3)), data=st.data())
def test_any_order(solver: type[Solver], shape: Shape, data: st.DataObject) -> None:
    """With expansions enough A* is exact, and the K costs are those of the solvers."""
    assert _check(data.draw, shape, (16, 8), solver, expansions_max=20_000).exact


@both
@solved
@given(shape=layered((4, 2)), data=st.data(), expansions_max=st.sampled_from((5, 0, 1, 25)))
def test_a_small_budget(
    solver: type[Solver], shape: Shape, data: st.DataObject, expansions_max: int
) -> None:
    """Cut short, the n-th of the K told costs at most 1 + epsilon times the true n-th."""
    _check(data.draw, shape, (24, 12), solver, expansions_max)
