"""A refined frontier is real, near the minimum cost, and within its expansion limit."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import isclose

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config

from scheduler.model.plan import Prices
from scheduler.search.astar_run import graph_of, run_astar
from scheduler.search.dag import Dag
from scheduler.search.frontier import Frontier, pareto
from scheduler.search.frontier_refinement import (
    LONG_SEARCHES,
    PASS_SEARCHES,
    STEP_SEARCHES,
    RefinedFrontier,
    RefinementPass,
)
from scheduler.search.graph import Graph, Query
from scheduler.search.planner import Planner
from scheduler.search.rules import Rules
from tests.search import naive
from tests.search.factories import N_SHAPE, Shape, layered, noisy_catalogue, undominated_rows
from tests.search.harness import finished, plan_request, point, refine

ENOUGH = 20_000
RELATIVE = 1e-11
SHAPES = layered((2, 3))
thorough = settings(max_examples=4 if config.DISABLE_JIT else 60, deadline=None)


def _stages(shape: Sequence[Sequence[int]], seed: int, options: int) -> list[Frontier]:
    """Create all but the first stage; some have equal times or costs.

    In a quarter of the cases the slowest option of every stage is free, as prices may be 0.
    """
    random = np.random.default_rng(seed)
    free = random.integers(0, 4) == 0
    stages = []
    for _ in shape[1:]:
        time_ms = np.round(random.uniform(1.0, 100.0, options), random.integers(0, 3))
        cost = time_ms ** -random.uniform(0.3, 1.0) * random.lognormal(0.0, 0.2, options)
        cost[np.argmax(time_ms)] *= not free
        stages.append(pareto(time_ms, cost))
    return stages


def _graph(shape: Sequence[Sequence[int]], seed: int, options: int) -> Graph:
    return graph_of(Dag.of(shape), _stages(shape, seed, options))


def _refined(graph: Graph, expansions_max: int) -> RefinedFrontier:
    return finished(RefinementPass(graph, expansions_max)).result


def _minimum_dollars(graph: Graph, limit_ms: float) -> float:
    """Search for the minimum cost within a time limit."""
    current = np.zeros(1)
    return float(run_astar(graph, Query(current, current, limit_ms, ENOUGH), 1).best.cost[0])


def _cost_dollars(frontier: Frontier, limit_ms: float) -> float:
    """Return the cost of a frontier within a time limit."""
    return float(frontier.cost[np.searchsorted(frontier.time_ms, limit_ms, side="right") - 1])


@thorough
@given(SHAPES, st.integers(0, 2**32), st.integers(1, 12), st.data())
def test_a_complete_pass_is_exact(
    shape: Shape, seed: int, options: int, data: st.DataObject
) -> None:
    """With enough states the frontier has the minimum cost for any time, and epsilon 0."""
    graph = _graph(shape, seed, options)
    refined = _refined(graph, ENOUGH)
    frontier = refined.frontier
    fastest_ms, cheapest_ms = frontier.time_ms[[0, -1]].tolist()
    assert isclose(fastest_ms, graph.after_ms[0], rel_tol=RELATIVE)
    assert isclose(frontier.cost[-1], graph.row_cost[0], rel_tol=RELATIVE)
    assert (frontier.epsilon, refined.lower_bound) == (0.0, frontier)
    for at in data.draw(st.lists(st.floats(0.0, 1.1), min_size=1, max_size=5)):
        limit_ms = fastest_ms + at * (cheapest_ms - fastest_ms)
        minimum = _minimum_dollars(graph, limit_ms)
        assert isclose(_cost_dollars(frontier, limit_ms), minimum, rel_tol=RELATIVE)


@thorough
@given(SHAPES, st.integers(0, 2**32), st.integers(4, 16), st.sampled_from((1, 2, 4, 8)), st.data())
def test_epsilon_is_an_upper_bound(
    shape: Shape, seed: int, options: int, expansions_max: int, data: st.DataObject
) -> None:
    """With too few states, the cost is at most 1 + epsilon times the minimum, at any time.

    The lower bound is at most the minimum.
    """
    graph = _graph(shape, seed, options)
    refined = _refined(graph, expansions_max)
    frontier, lower_bound = refined.frontier, refined.lower_bound
    fastest_ms, cheapest_ms = frontier.time_ms[[0, -1]].tolist()
    for at in data.draw(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=5)):
        limit_ms = fastest_ms + at * (cheapest_ms - fastest_ms)
        true, cost = _minimum_dollars(graph, limit_ms), _cost_dollars(frontier, limit_ms)
        assert true * (1 - RELATIVE) <= cost
        assert cost <= true * (1.0 + frontier.epsilon) * (1 + RELATIVE)
        assert _cost_dollars(lower_bound, limit_ms) <= true * (1 + RELATIVE)


@thorough
@given(SHAPES, st.integers(0, 2**32), st.integers(4, 16), st.sampled_from((1, 4, ENOUGH)))
def test_epsilon_is_not_loose(shape: Shape, seed: int, options: int, expansions_max: int) -> None:
    """Epsilon is reached at some time; it is 0 if the frontier is its own lower bound."""
    refined = _refined(_graph(shape, seed, options), expansions_max)
    frontier, lower_bound = refined.frontier, refined.lower_bound
    assert (frontier.epsilon == 0.0) == (lower_bound is frontier)
    ends_ms = [*(frontier.time_ms[1:] * (1.0 - 2e-12)).tolist(), np.inf]
    gaps = [
        cost / max(bound, 1e-300) if cost > bound else 1.0
        for end_ms in ends_ms
        for cost, bound in [(_cost_dollars(frontier, end_ms), _cost_dollars(lower_bound, end_ms))]
    ]
    assert isclose(1.0 + frontier.epsilon, max(gaps), rel_tol=RELATIVE)


@thorough
@given(SHAPES, st.integers(0, 2**32), st.integers(1, 12), st.sampled_from((1, 4, ENOUGH)))
def test_each_point_is_real(shape: Shape, seed: int, options: int, expansions_max: int) -> None:
    """The options of a point have its time, by the longest path, and its cost."""
    stages = _stages(shape, seed, options)
    dag = Dag.of(shape)
    refined = _refined(graph_of(dag, stages), expansions_max)
    for time_ms, cost, chosen in zip(
        refined.frontier.time_ms, refined.frontier.cost, refined.options.tolist(), strict=True
    ):
        pairs = list(zip(stages, chosen, strict=True))
        longest_ms = dag.longest_after([0.0, *(float(s.time_ms[o]) for s, o in pairs)])[0]
        assert isclose(time_ms, longest_ms, rel_tol=RELATIVE)
        assert isclose(cost, sum(s.cost[o] for s, o in pairs), rel_tol=RELATIVE)


@pytest.mark.parametrize("expansions_max", [1, 8, 64])
def test_the_work_has_a_bound(expansions_max: int) -> None:
    """Only the last search of a step or a pass may exceed its expansion limit."""
    refinement = RefinementPass(_graph(N_SHAPE, 3, 60), expansions_max)
    last = LONG_SEARCHES * expansions_max
    steps = 0
    while not refinement.complete:
        before = refinement.expanded
        refinement.step()
        steps += 1
        assert refinement.expanded - before < STEP_SEARCHES * expansions_max + last
    assert refinement.expanded < PASS_SEARCHES * expansions_max + last
    assert 1 < steps <= PASS_SEARCHES / STEP_SEARCHES + 1
    expanded = refinement.expanded
    refinement.step()
    assert refinement.expanded == expanded


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from((5, 1, 2, 50)),
    st.sampled_from((1, 2)),
    st.sampled_from((1.0, 1.01)),
    st.data(),
)
def test_plans_by_an_incomplete_pass(
    seed: int, k: int, expansions_max: int, factor: float, data: st.DataObject
) -> None:
    """The n-th of K distinct candidates in time costs at most 1 + epsilon times the true n-th."""
    known = noisy_catalogue(N_SHAPE, 5, seed, rows_of=undominated_rows)
    request = plan_request(k=k)
    planner = Planner(known, Rules(expansions_max=expansions_max))
    refine(planner, request)
    completions = naive.completions(known, Prices(), request)
    slack_ms = factor * data.draw(st.sampled_from(completions)).path_ms
    plan = planner.plan(replace(request, slack_ms=slack_ms))
    true = [c.path_cost_dollars for c in naive.best_by_first(completions, slack_ms)[:k]]
    planned = [c.path_cost_dollars for c in plan.candidates]
    assert plan.feasible
    assert len({point(candidate) for candidate in plan.candidates}) == len(planned) == len(true)
    assert all(c.path_ms <= slack_ms * (1 + RELATIVE) for c in plan.candidates)
    for cost, minimum in zip(planned, true, strict=True):
        assert minimum * (1 - RELATIVE) <= cost <= minimum * (1 + plan.epsilon) * (1 + RELATIVE)


@pytest.mark.parametrize("factor", [1.0, 1.3, 1.7, 100.0])
def test_each_plan_has_its_own_epsilon(factor: float) -> None:
    """After an incomplete pass it is 0 with ample time, and above 0 for some limits."""
    planner = Planner(
        noisy_catalogue(N_SHAPE, 12, rows_of=undominated_rows), Rules(expansions_max=1)
    )
    request = plan_request(slack_ms=factor * planner.fastest_ms("default", "w"))
    refine(planner, request)
    assert planner.plan(request).exact == (factor == 100.0)


def test_plans_improve_with_the_refinement() -> None:
    """The first plan is by the fastest and the cheapest completion; later ones cost less."""
    planner = Planner(
        noisy_catalogue(N_SHAPE, 8, rows_of=undominated_rows), Rules(expansions_max=100)
    )
    request = plan_request(slack_ms=1.4 * planner.fastest_ms("default", "w"))
    plans = [planner.plan(request)]
    while planner.refine_once():
        plans.append(planner.plan(request))
    costs = [plan.candidates[0].path_cost_dollars for plan in plans]
    assert all(plan.feasible for plan in plans)
    assert len(plans) > 2
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0] <= costs[-1] * (1 + plans[0].epsilon)
    assert plans[-1].exact


def test_without_expansions_two_completions_are_known() -> None:
    """If no state may be expanded, the fastest completion is one of the known ones."""
    graph = _graph(N_SHAPE, 3, 8)
    refinement = finished(RefinementPass(graph, 0))
    assert refinement.expanded == 0
    assert isclose(refinement.result.frontier.time_ms[0], graph.after_ms[0], rel_tol=RELATIVE)


def test_large_graphs_expand_fewer_states() -> None:
    """A state of a graph with more options takes longer, so fewer are expanded."""
    counts = []
    for options in (30, 150):
        time_ms = np.linspace(1.0, 100.0, options)
        stages = [pareto(time_ms, time_ms**-power) for power in (0.4, 0.6, 0.8, 1.0)]
        counts.append(finished(RefinementPass(graph_of(Dag.of(N_SHAPE), stages), 4)).expanded)
    assert counts[1] < counts[0]


def test_one_thread_at_a_time() -> None:
    """Several threads have the same result as one."""
    graph = _graph(N_SHAPE, 3, 12)
    alone, shared = finished(RefinementPass(graph, 64)), RefinementPass(graph, 64)
    with ThreadPoolExecutor(8) as pool:
        while not shared.complete:
            list(pool.map(lambda _: shared.step(), range(8)))
    assert shared.expanded == alone.expanded
    assert np.array_equal(shared.result.frontier.cost, alone.result.frontier.cost)
