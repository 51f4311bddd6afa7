"""A* with both bounds agrees with the frontier, and its result is valid if it stops early."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.search.astar import _pop, _push, complete_greedily, search
from scheduler.search.astar_run import graph_of, run_astar
from scheduler.search.dag import Dag
from scheduler.search.frontier import Frontier, in_series, pareto
from scheduler.search.graph import BY_CHAINS, Query, Scratch, SearchResult
from tests.search.factories import N_SHAPE

LONG_N_SHAPE = ((), (0,), (0,), (1, 2), (2,), (3, 4), (4,), (5, 6), (6,))


def _stage(random: np.random.Generator, options: int) -> Frontier:
    return pareto(random.uniform(1.0, 100.0, options), random.uniform(1.0, 100.0, options))


def _long_stage(random: np.random.Generator, options: int) -> Frontier:
    """Create a stage with undominated options only."""
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
    seed: int, stages: int, options: int, slack_factor: float, k: int, additive: bool
) -> None:
    """On a chain, A* finds the K costs of the frontier, also with the paper's bound."""
    random = np.random.default_rng(seed)
    first = _stage(random, options)
    downstream = [_stage(random, options) for _ in range(stages)]
    whole = downstream[-1]
    for frontier in reversed(downstream[:-1]):
        whole = in_series(frontier, whole)
    budget_ms = slack_factor * float(first.time_ms[0] + whole.time_ms[0])
    dag = Dag.of([[v - 1] if v else [] for v in range(stages + 1)])
    query = Query(first.time_ms, first.cost, budget_ms, 10_000, additive)
    run = run_astar(graph_of(dag, downstream, additive=additive), query, k)
    expected = []
    for time_ms, cost in zip(first.time_ms, first.cost, strict=True):
        within = whole.cost[time_ms + whole.time_ms <= budget_ms]
        expected.append(cost + within.min() if len(within) else inf)
    assert run.open_states == 0
    assert np.allclose(
        np.sort(run.best.cost)[:k], np.sort(np.array(expected))[:k], rtol=1e-12, atol=0
    )


def test_the_chain_bound_expands_fewer_states_than_the_additive_one() -> None:
    """Frontiers of chains include the price of time; the sum of the cheapest options does not."""
    random = np.random.default_rng(7)
    first, *downstream = [_long_stage(random, 32) for _ in range(4)]
    graph = graph_of(Dag.of([[], [0], [1], [2]]), downstream)
    by_chain, by_sum = (
        run_astar(graph, Query(first.time_ms, first.cost, 120.0, 100_000, additive), 5).best
        for additive in (False, True)
    )
    assert np.allclose(by_chain.cost.min(), by_sum.cost.min())
    assert 10 * int(by_chain.counts[0]) < int(by_sum.counts[0])


@pytest.mark.parametrize("expansions_max", [0, 1, 5, 200])
def test_an_early_stop_is_reported(expansions_max: int) -> None:
    """An exhausted search reports it, keeps its limit, and beats the fastest completions."""
    random = np.random.default_rng(3)
    first, *downstream = [_long_stage(random, 30) for _ in LONG_N_SHAPE]
    graph = graph_of(Dag.of(LONG_N_SHAPE), downstream)
    budget_ms = 3.0 * float(first.time_ms[0] + graph.after_ms[0])
    query = Query(first.time_ms, first.cost, budget_ms, 20_000)
    exact = run_astar(graph, query, 5)
    assert exact.open_states == 0
    assert exact.epsilon(5) == 0.0
    run = run_astar(graph, query._replace(expansions_max=expansions_max), 5)
    best = run.best
    assert run.open_states > 0
    true, approximate = np.sort(exact.best.cost)[:5], np.sort(best.cost)[:5]
    assert 0.0 < run.epsilon(5) < 0.5
    assert (approximate <= (1.0 + run.epsilon(5)) * true).all()
    assert best.counts[0] <= expansions_max
    leaders = best.leaders
    assert (best.cost[leaders] >= exact.best.cost.min()).all()
    assert (best.cost[leaders] < first.cost[leaders] + graph.fastest_cost[1]).all()
    assert (best.path_ms[leaders] <= budget_ms).all()


def test_too_little_memory_is_reported() -> None:
    """Without memory for more states the search stops early with a valid result."""
    random = np.random.default_rng(3)
    first, *downstream = [_long_stage(random, 8) for _ in N_SHAPE]
    graph = graph_of(Dag.of(N_SHAPE), downstream)
    budget_ms = 2.0 * float(first.time_ms[0] + graph.after_ms[0])
    states = Scratch.of(len(first.time_ms) + 1, len(N_SHAPE))
    best = SearchResult.of(len(first.time_ms), 3)
    open_states = search(graph, states, best, Query(first.time_ms, first.cost, budget_ms, 1000))
    assert open_states > 0
    assert (best.path_ms[best.leaders] <= budget_ms).all()


def test_states_leave_the_heap_in_order() -> None:
    """States are ordered by bound, then by time, then by age."""
    keys = [(2.0, 5.0), (1.0, 7.0), (1.0, 6.0), (2.0, 5.0), (0.0, 9.0), (1.0, 6.0)]
    states = Scratch.of(len(keys), 1)
    for state, (bound, low_ms) in enumerate(keys):
        states.bound[state] = bound
        states.low_ms[state] = low_ms
        _push(states, state, state)
    assert [_pop(states, size) for size in range(len(keys), 0, -1)] == [4, 2, 5, 1, 0, 3]


def test_a_late_greedy_completion_is_not_recorded() -> None:
    """A completion over the budget is not part of the result."""
    random = np.random.default_rng(1)
    _, *downstream = [_long_stage(random, 4) for _ in N_SHAPE]
    graph = graph_of(Dag.of(N_SHAPE), downstream)
    states, best = Scratch.of(1, len(N_SHAPE)), SearchResult.of(1, 1)
    for row in (
        states.stage,
        states.first,
        states.row,
        states.cost,
        states.low_ms,
        states.finish_ms,
    ):
        row[0] = 0
    query = Query(np.zeros(1), np.zeros(1), 0.5 * float(graph.after_ms[0]), 0)
    complete_greedily(graph, states, best, query, 0, BY_CHAINS)
    assert best.leader_count[0] == 0
