"""Plans are equal to those of CP-SAT and HiGHS, on workflows too large for brute force."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import lcm

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config

from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Plan, Prices
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.reduction import completion_set
from scheduler.search.reduction.node_reduction import reduced_frontier
from scheduler.search.rules import Rules
from tests.examples import examples
from tests.search.factories import BATCHES, Shape, fork_join, layered, noisy_catalogue
from tests.search.naive import longest_path_ms, unfinished_stages
from tests.search.solvers import CpSat, Highs, Problem, Solver, k_lowest
from workbench.profiles.builders import chain

# A request costs latency_ms * (10 cpu + gpu_percent) / batch dollars: whole numbers of a unit.
WHOLE = Prices(vcpu_hour_dollars=3.6e7, gpu_hour_dollars=3.6e8)
UNITS_PER_DOLLAR = lcm(*BATCHES)
ROUNDING = 1e-12

# Without the compiler a frontier of thousands of points takes a second; few examples suffice.
EXAMPLES = 2 if config.DISABLE_JIT else 20
solved = examples(EXAMPLES)
both = pytest.mark.parametrize("solver", [CpSat, Highs])

CHAINS = st.builds(chain, st.integers(5, 12))
FORK_JOINS = st.builds(fork_join, st.integers(5, 12))


def _check(
    draw: st.DrawFn, shape: Shape, counts: Sequence[int], solver: type[Solver]
) -> tuple[Plan, str]:
    """Compare a plan over one of these counts of configurations with the solver's.

    Returns the plan and its stage.
    """
    count, k = draw(st.sampled_from(counts)), draw(st.sampled_from((3, 1)))
    documents = noisy_catalogue(shape, count, draw(st.integers(0, 2**32)), digits=0)
    planner = Planner(documents, Rules(prices=WHOLE))
    stage = draw(st.sampled_from(("s0", "s1")))
    request = PlanRequest(namespace="default", workflow="w", stage=stage, slack_ms=0.0, k=k)
    fastest_ms = _fastest_ms(documents, request)
    limit_ms = round(fastest_ms * draw(st.floats(1.0, 2.5)))
    plan = planner.plan(replace(request, slack_ms=float(limit_ms)))
    problem = Problem.of(
        documents, request, limit_ms, WHOLE, units_per_ms=1, units_per_dollar=UNITS_PER_DOLLAR
    )
    assert plan.feasible
    assert all(c.path_ms <= limit_ms * (1 + ROUNDING) for c in plan.candidates)
    _assert_within_epsilon(plan, k_lowest(solver(problem), k))
    return plan, stage


def _fastest_ms(documents: Catalogue, request: PlanRequest) -> float:
    """Return the time of the unfinished stages, each at its fastest."""
    stages = unfinished_stages(documents.workflow("default", "w").spec.stages, request)
    times = tuple(
        min(c.latency_ms for c in documents.profile(s.function).spec.gpus[0].configurations)
        for s in stages
    )
    return max(longest_path_ms(stages, times, through=through) for through in (True, False))


def _assert_within_epsilon(plan: Plan, costs: list[int]) -> None:
    """Compare the number of candidates, and the n-th cost with 1 + epsilon times the true n-th."""
    planned = [candidate.path_cost_dollars * UNITS_PER_DOLLAR for candidate in plan.candidates]
    assert len({candidate.configuration for candidate in plan.candidates}) == len(planned)
    assert len(planned) == len(costs)
    for cost, minimum in zip(planned, costs, strict=True):
        assert minimum * (1 - ROUNDING) <= cost <= minimum * (1 + plan.epsilon) * (1 + ROUNDING)


@both
@solved
@given(shape=st.one_of(CHAINS, FORK_JOINS), data=st.data())
def test_chains_and_fork_joins(solver: type[Solver], shape: Shape, data: st.DataObject) -> None:
    """Frontiers are exact, and the K costs are those of the solvers."""
    plan, _ = _check(data.draw, shape, (40, 20, 8), solver)
    assert plan.exact


@pytest.mark.slow
@both
@solved
@given(shape=layered((2, 3)), data=st.data())
def test_any_order(solver: type[Solver], shape: Shape, data: st.DataObject) -> None:
    """Plans of any order are within their epsilon of the solvers' costs; the entry's are exact."""
    plan, stage = _check(data.draw, shape, (16, 8), solver)
    assert plan.exact or stage != "s0"


@pytest.mark.slow
@both
@solved
@given(shape=layered((4, 2)), data=st.data(), work_max=st.sampled_from((0, 1_000, 10_000)))
def test_little_work(
    solver: type[Solver], shape: Shape, data: st.DataObject, work_max: int
) -> None:
    """If a reduction ends early, the n-th of K costs is at most 1 + epsilon times the true n-th."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            completion_set, "reduced_frontier", partial(reduced_frontier, work_max=work_max)
        )
        _check(data.draw, shape, (24, 12), solver)
