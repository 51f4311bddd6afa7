"""A* by itself: both bounds against the frontier, and what it answers when it must stop early."""

from math import inf, isclose

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Prices
from scheduler.search.astar import EXACT, EXHAUSTED, _dive, _pop, _push, search
from scheduler.search.astar_run import graph_of, run_astar
from scheduler.search.dag import Dag
from scheduler.search.frontier import Frontier, in_series, pareto
from scheduler.search.graph import BY_CHAINS, Answer, Scratch
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.rules import Rules
from tests.search import naive
from tests.search.agreement import point
from tests.search.documents import N_SHAPE, catalogues

LONG_N_SHAPE = ((), (0,), (0,), (1, 2), (2,), (3, 4), (4,), (5, 6), (6,))


def _stage(random: np.random.Generator, options: int) -> Frontier:
    return pareto(random.uniform(1.0, 100.0, options), random.uniform(1.0, 100.0, options))


def _long_stage(random: np.random.Generator, options: int) -> Frontier:
    """A stage whose options are all undominated."""
    time_ms = np.sort(random.uniform(1.0, 100.0, options))
    return pareto(time_ms, 1000.0 / time_ms ** random.uniform(0.3, 1.0))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.integers(1, 8),
    st.floats(0.9, 3.0),
    st.sampled_from((1, 3, 100)),
    st.booleans(),
)
def test_a_chain_by_either_bound(
    seed: int, stages: int, options: int, slack: float, k: int, additive: bool
) -> None:
    """On a chain, A* finds the K costs that the frontier gives, with the paper's bound as well."""
    random = np.random.default_rng(seed)
    first = _stage(random, options)
    tail = [_stage(random, options) for _ in range(stages)]
    whole = tail[-1]
    for frontier in reversed(tail[:-1]):
        whole = in_series(frontier, whole)
    budget_ms = slack * float(first.time_ms[0] + whole.time_ms[0])
    dag = Dag.of([[v - 1] if v else [] for v in range(stages + 1)])
    run = run_astar(
        graph_of(dag, tail, additive=additive),
        first.time_ms,
        first.cost,
        budget_ms,
        k,
        10_000,
        additive=additive,
    )
    expected = []
    for time_ms, cost in zip(first.time_ms, first.cost, strict=True):
        within = whole.cost[time_ms + whole.time_ms <= budget_ms]
        expected.append(cost + within.min() if len(within) else inf)
    assert run.status == EXACT
    assert np.allclose(
        np.sort(run.answer.cost)[:k], np.sort(np.array(expected))[:k], rtol=1e-12, atol=0
    )


def test_the_chain_bound_expands_fewer_states_than_the_additive_one() -> None:
    """Frontiers of chains know what time costs; the sum of the cheapest options does not."""
    random = np.random.default_rng(7)
    first, *tail = [_long_stage(random, 32) for _ in range(4)]
    graph = graph_of(Dag.of([[], [0], [1], [2]]), tail)
    by_chain, by_sum = (
        run_astar(graph, first.time_ms, first.cost, 120.0, 5, 100_000, additive=additive).answer
        for additive in (False, True)
    )
    assert np.allclose(by_chain.cost.min(), by_sum.cost.min())
    assert 10 * int(by_chain.counts[0]) < int(by_sum.counts[0])


@settings(max_examples=60, deadline=None)
@given(catalogues(after=N_SHAPE, configurations_max=4), st.integers(0, 3), st.data())
def test_early_stop_answers_with_real_completions(
    catalogue: Catalogue, expansions_max: int, data: st.DataObject
) -> None:
    """Out of expansions, each candidate is a completion that exists and meets the budget."""
    request = PlanRequest(namespace="default", workflow="w", stage="s0", k=3)
    found = naive.completions(catalogue, Prices(), request)
    slack_ms = data.draw(st.sampled_from(found)).path_ms
    planner = Planner(catalogue, Rules(expansions_max=expansions_max))
    request = PlanRequest(namespace="default", workflow="w", stage="s0", k=3, slack_ms=slack_ms)
    plan = planner.plan(request)
    assert plan.feasible
    assert plan.candidates
    assert plan.effort.expanded <= expansions_max
    for candidate in plan.candidates:
        assert candidate.path_ms <= slack_ms * (1 + 1e-11)
        assert any(
            isclose(candidate.path_cost_dollars, c.path_cost_dollars, rel_tol=1e-11)
            and isclose(candidate.path_ms, c.path_ms, rel_tol=1e-11)
            for c in found
            if c.first == point(candidate)
        )
    if plan.exact:
        best = naive.best_by_first(found, slack_ms)
        assert isclose(
            plan.candidates[0].path_cost_dollars, best[0].path_cost_dollars, rel_tol=1e-11
        )


@pytest.mark.parametrize("expansions_max", [0, 1, 5, 200])
def test_early_stop_is_said(expansions_max: int) -> None:
    """An exhausted search says so, keeps to its budget, and beats the fastest completions."""
    random = np.random.default_rng(3)
    first, *tail = [_long_stage(random, 30) for _ in LONG_N_SHAPE]
    graph = graph_of(Dag.of(LONG_N_SHAPE), tail)
    budget_ms = 3.0 * float(first.time_ms[0] + graph.after_ms[0])
    exact = run_astar(graph, first.time_ms, first.cost, budget_ms, 5, 20_000)
    assert exact.status == EXACT
    assert exact.epsilon(5) == 0.0
    best = exact.answer
    run = run_astar(graph, first.time_ms, first.cost, budget_ms, 5, expansions_max)
    answer = run.answer
    assert run.status == EXHAUSTED
    true, told = np.sort(best.cost)[:5], np.sort(answer.cost)[:5]
    assert 0.0 < run.epsilon(5) < 0.5
    assert (told <= (1.0 + run.epsilon(5)) * true).all()
    assert answer.counts[0] <= expansions_max
    leaders = answer.leaders
    assert (answer.cost[leaders] >= best.cost.min()).all()
    assert (answer.cost[leaders] < first.cost[leaders] + graph.fastest_cost[1]).all()
    assert (answer.path_ms[leaders] <= budget_ms).all()


def test_too_little_memory_is_said() -> None:
    """Without room for more states the search stops early, and still answers."""
    random = np.random.default_rng(3)
    first, *tail = [_long_stage(random, 8) for _ in N_SHAPE]
    graph = graph_of(Dag.of(N_SHAPE), tail)
    budget_ms = 2.0 * float(first.time_ms[0] + graph.after_ms[0])
    states = Scratch.of(len(first.time_ms) + 1, len(N_SHAPE))
    answer = Answer.of(len(first.time_ms), 3)
    status = search(graph, states, answer, first.time_ms, first.cost, budget_ms, 1000, False)
    assert status == EXHAUSTED
    assert (answer.path_ms[answer.leaders] <= budget_ms).all()


def test_states_leave_the_heap_in_order() -> None:
    """States come by their bound, then by their time, then by their age."""
    keys = [(2.0, 5.0), (1.0, 7.0), (1.0, 6.0), (2.0, 5.0), (0.0, 9.0), (1.0, 6.0)]
    states = Scratch.of(len(keys), 1)
    for state, (bound, low_ms) in enumerate(keys):
        states.bound[state] = bound
        states.low_ms[state] = low_ms
        _push(states, state, state)
    assert [_pop(states, size) for size in range(len(keys), 0, -1)] == [4, 2, 5, 1, 0, 3]


def test_a_dive_into_lost_time_notes_nothing() -> None:
    """A completion over the budget is no completion."""
    random = np.random.default_rng(1)
    _, *tail = [_long_stage(random, 4) for _ in N_SHAPE]
    graph = graph_of(Dag.of(N_SHAPE), tail)
    states, answer = Scratch.of(1, len(N_SHAPE)), Answer.of(1, 1)
    for row in (
        states.stage,
        states.first,
        states.row,
        states.cost,
        states.low_ms,
        states.finish_ms,
    ):
        row[0] = 0
    _dive(graph, states, answer, 0, 0.5 * float(graph.after_ms[0]), BY_CHAINS, False)
    assert answer.found[0] == 0
