"""A frontier made by A*, piece by piece: real, near the least cost, within its budget of work."""

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
    LONGER_SEARCHES,
    PIECE_SEARCHES,
    SWEEP_SEARCHES,
    RefinedFrontier,
    RefinementPass,
)
from scheduler.search.graph import Graph
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.rules import Rules
from tests.search import naive
from tests.search.agreement import point
from tests.search.documents import N_SHAPE
from tests.search.factories import prepared, swept
from tests.search.noisy import documents, unbeaten_rows
from tests.search.shapes import Shape, layered

ENOUGH = 20_000
RELATIVE = 1e-11
SHAPES = layered((2, 3))
thorough = settings(max_examples=4 if config.DISABLE_JIT else 60, deadline=None)


def _stages(shape: Sequence[Sequence[int]], seed: int, options: int) -> list[Frontier]:
    """Of all but the first stage; now and then a time or a cost comes twice.

    Now and then, too, the slowest option of every stage is for nothing, as prices may be 0.
    """
    random = np.random.default_rng(seed)
    for_nothing = random.integers(0, 4) == 0
    found = []
    for _ in shape[1:]:
        time_ms = np.round(random.uniform(1.0, 100.0, options), random.integers(0, 3))
        cost = time_ms ** -random.uniform(0.3, 1.0) * random.lognormal(0.0, 0.2, options)
        cost[np.argmax(time_ms)] *= not for_nothing
        found.append(pareto(time_ms, cost))
    return found


def _graph(shape: Sequence[Sequence[int]], seed: int, options: int) -> Graph:
    return graph_of(Dag.of(shape), _stages(shape, seed, options))


def _swept(graph: Graph, expansions_max: int) -> RefinedFrontier:
    result = swept(RefinementPass(graph, expansions_max)).swept
    assert result is not None
    return result


def _least(graph: Graph, limit_ms: float) -> float:
    """The least cost within a time, by a search of its own."""
    nothing = np.zeros(1)
    return float(run_astar(graph, nothing, nothing, limit_ms, 1, ENOUGH).answer.cost[0])


def _at(frontier: Frontier, limit_ms: float) -> float:
    """What a frontier tells for a time."""
    return float(frontier.cost[np.searchsorted(frontier.time_ms, limit_ms, side="right") - 1])


@thorough
@given(SHAPES, st.integers(0, 2**32), st.integers(1, 12), st.data())
def test_nothing_is_missing(shape: Shape, seed: int, options: int, data: st.DataObject) -> None:
    """With states enough, the frontier tells the least cost for any time, and no epsilon."""
    graph = _graph(shape, seed, options)
    found = _swept(graph, ENOUGH)
    fastest_ms, cheapest_ms = found.frontier.time_ms[[0, -1]].tolist()
    assert isclose(fastest_ms, graph.after_ms[0], rel_tol=RELATIVE)
    assert isclose(found.frontier.cost[-1], graph.row_cost[0], rel_tol=RELATIVE)
    assert (found.frontier.epsilon, found.least) == (0.0, found.frontier)
    for at in data.draw(st.lists(st.floats(0.0, 1.1), min_size=1, max_size=5)):
        limit_ms = fastest_ms + at * (cheapest_ms - fastest_ms)
        assert isclose(_at(found.frontier, limit_ms), _least(graph, limit_ms), rel_tol=RELATIVE)


@thorough
@given(SHAPES, st.integers(0, 2**32), st.integers(4, 16), st.sampled_from((1, 2, 4, 8)), st.data())
def test_epsilon_is_kept(
    shape: Shape, seed: int, options: int, expansions_max: int, data: st.DataObject
) -> None:
    """With too few states, what is told is at most 1 + epsilon times the least cost, at any time.

    And what is told to be the least is no more than that.
    """
    graph = _graph(shape, seed, options)
    found = _swept(graph, expansions_max)
    frontier, least = found.frontier, found.least
    fastest_ms, cheapest_ms = frontier.time_ms[[0, -1]].tolist()
    for at in data.draw(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=5)):
        limit_ms = fastest_ms + at * (cheapest_ms - fastest_ms)
        true = _least(graph, limit_ms)
        assert true * (1 - RELATIVE) <= _at(frontier, limit_ms)
        assert _at(frontier, limit_ms) <= true * (1.0 + frontier.epsilon) * (1 + RELATIVE)
        assert _at(least, limit_ms) <= true * (1 + RELATIVE)


@thorough
@given(SHAPES, st.integers(0, 2**32), st.integers(4, 16), st.sampled_from((1, 4, ENOUGH)))
def test_epsilon_is_not_loose(shape: Shape, seed: int, options: int, expansions_max: int) -> None:
    """At some time it is what lies between what is told and the least; 0 where they are one."""
    found = _swept(_graph(shape, seed, options), expansions_max)
    frontier, least = found.frontier, found.least
    assert (frontier.epsilon == 0.0) == (least is frontier)
    ends_ms = [*(frontier.time_ms[1:] * (1.0 - 2e-12)).tolist(), np.inf]
    gaps = [
        told / max(true, 1e-300) if told > true else 1.0
        for told, true in ((_at(frontier, end_ms), _at(least, end_ms)) for end_ms in ends_ms)
    ]
    assert isclose(1.0 + frontier.epsilon, max(gaps), rel_tol=RELATIVE)


@thorough
@given(SHAPES, st.integers(0, 2**32), st.integers(1, 12), st.sampled_from((1, 4, ENOUGH)))
def test_each_point_can_be_had(shape: Shape, seed: int, options: int, expansions_max: int) -> None:
    """The options of a point take its time, by the longest path, and cost what it costs."""
    stages = _stages(shape, seed, options)
    dag = Dag.of(shape)
    found = _swept(graph_of(dag, stages), expansions_max)
    for time_ms, cost, chosen in zip(
        found.frontier.time_ms, found.frontier.cost, found.options.tolist(), strict=True
    ):
        taken = list(zip(stages, chosen, strict=True))
        longest_ms = dag.longest_after([0.0, *(float(s.time_ms[o]) for s, o in taken)])[0]
        assert isclose(time_ms, longest_ms, rel_tol=RELATIVE)
        assert isclose(cost, sum(s.cost[o] for s, o in taken), rel_tol=RELATIVE)


@pytest.mark.parametrize("expansions_max", [1, 8, 64])
def test_the_work_has_a_bound(expansions_max: int) -> None:
    """No piece and no sweep expands more states than it may, but for the last search of each."""
    sweep = RefinementPass(_graph(N_SHAPE, 3, 60), expansions_max)
    last = LONGER_SEARCHES * expansions_max
    pieces = 0
    while sweep.swept is None:
        before = sweep.expanded
        sweep.carry_on()
        pieces += 1
        assert sweep.expanded - before < PIECE_SEARCHES * expansions_max + last
    assert sweep.expanded < SWEEP_SEARCHES * expansions_max + last
    assert 1 < pieces <= SWEEP_SEARCHES / PIECE_SEARCHES + 1
    expanded = sweep.expanded
    sweep.carry_on()
    assert sweep.expanded == expanded


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from((5, 1, 2, 50)),
    st.sampled_from((1, 2)),
    st.sampled_from((1.0, 1.01)),
    st.data(),
)
def test_plans_by_a_sweep_cut_short(
    seed: int, k: int, expansions_max: int, factor: float, data: st.DataObject
) -> None:
    """The n-th of K distinct candidates in time costs at most 1 + epsilon times the true n-th."""
    known = documents(N_SHAPE, 5, seed, rows_of=unbeaten_rows)
    request = PlanRequest(namespace="default", workflow="w", stage="s0", k=k)
    planner = Planner(known, Rules(expansions_max=expansions_max))
    assert prepared(planner, request).prepared
    found = naive.completions(known, Prices(), request)
    slack_ms = factor * data.draw(st.sampled_from(found)).path_ms
    plan = planner.plan(replace(request, slack_ms=slack_ms))
    true = [c.path_cost_dollars for c in naive.best_by_first(found, slack_ms)[:k]]
    told = [c.path_cost_dollars for c in plan.candidates]
    assert plan.feasible
    assert len({point(candidate) for candidate in plan.candidates}) == len(told) == len(true)
    assert all(c.path_ms <= slack_ms * (1 + RELATIVE) for c in plan.candidates)
    for cost, least in zip(told, true, strict=True):
        assert least * (1 - RELATIVE) <= cost <= least * (1 + plan.epsilon) * (1 + RELATIVE)


@pytest.mark.parametrize("factor", [1.0, 1.3, 1.7, 100.0])
def test_each_question_has_its_own_epsilon(factor: float) -> None:
    """Cut short, it is at most the largest at any time; and 0 where time is no object."""
    planner = Planner(documents(N_SHAPE, 12, rows_of=unbeaten_rows), Rules(expansions_max=1))
    request = PlanRequest(namespace="default", workflow="w", stage="s0")
    swept = prepared(planner, request).swept
    slack_ms = factor * planner.fastest_ms("default", "w")
    plan = planner.plan(replace(request, slack_ms=slack_ms))
    assert swept is not None
    assert 0.0 <= plan.epsilon <= swept.frontier.epsilon
    assert swept.frontier.epsilon > 0.0
    assert plan.exact == (factor == 100.0)


def test_questions_prepare_the_stage() -> None:
    """A* answers the first ones, a frontier those after them: the same, and with less effort."""
    planner = Planner(documents(N_SHAPE, 8, rows_of=unbeaten_rows), Rules(expansions_max=100))
    slack_ms = 1.4 * planner.fastest_ms("default", "w")
    request = PlanRequest(namespace="default", workflow="w", stage="s0", slack_ms=slack_ms)
    tail = planner.stage(request).tail
    plans = []
    while not tail.prepared:
        plans.append(planner.plan(request))
    last = planner.plan(request)
    assert len(plans) > 2
    assert last.exact
    for plan in plans:
        assert [c.configuration for c in plan.candidates] == [
            c.configuration for c in last.candidates
        ]
    assert last.effort.expanded < plans[0].effort.expanded


def test_without_states_nothing_is_begun() -> None:
    """Where no state may be expanded, questions go on being answered one by one."""
    sweep = RefinementPass(_graph(N_SHAPE, 3, 8), 0)
    sweep.carry_on()
    assert (sweep.swept, sweep.expanded) == (None, 0)


def test_large_graphs_expand_fewer_states() -> None:
    """A state of a graph with more options takes longer, and the time counts."""
    counts = []
    for options in (30, 150):
        time_ms = np.linspace(1.0, 100.0, options)
        stages = [pareto(time_ms, time_ms**-power) for power in (0.4, 0.6, 0.8, 1.0)]
        counts.append(swept(RefinementPass(graph_of(Dag.of(N_SHAPE), stages), 4)).expanded)
    assert counts[1] < counts[0]


def test_one_thread_at_a_time() -> None:
    """Several threads carry on, and what comes out is what one makes of it."""
    graph = _graph(N_SHAPE, 3, 12)
    alone, shared = swept(RefinementPass(graph, 64)), RefinementPass(graph, 64)
    with ThreadPoolExecutor(8) as pool:
        while shared.swept is None:
            list(pool.map(lambda _: shared.carry_on(), range(8)))
    assert alone.swept is not None
    assert shared.expanded == alone.expanded
    assert np.array_equal(shared.swept.frontier.cost, alone.swept.frontier.cost)
