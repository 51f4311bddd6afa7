"""A* over a chain agrees with the frontier, and its result is valid if it stops early."""

from functools import reduce
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.search.chains.astar import ChainQuery, SearchResult, States
from scheduler.search.chains.astar_kernels import _pop, _push, search
from scheduler.search.chains.astar_run import chain_of, run_astar
from scheduler.search.frontiers.frontier import Frontier, in_series, pareto
from tests.examples import examples


def _stage(random: np.random.Generator, options: int) -> Frontier:
    """Create a stage; some have equal times or costs, some a free option."""
    digits = random.integers(0, 3)
    time_ms, cost = (np.round(random.uniform(1.0, 100.0, options), digits) for _ in range(2))
    cost[np.argmax(time_ms)] *= random.integers(0, 4) > 0
    return pareto(time_ms, cost)


def _long_stage(random: np.random.Generator, options: int) -> Frontier:
    """Create a stage with undominated options only."""
    time_ms = np.sort(random.uniform(1.0, 100.0, options))
    return pareto(time_ms, 1000.0 / time_ms ** random.uniform(0.3, 1.0))


def _expected(first: Frontier, later: list[Frontier], budget_ms: float) -> np.ndarray:
    """Return the minimum cost through each first configuration, by joined frontiers."""
    whole = reduce(in_series, later)
    costs = []
    for time_ms, cost in zip(first.time_ms, first.cost, strict=True):
        within = whole.cost[time_ms + whole.time_ms <= budget_ms]
        costs.append(cost + within.min() if len(within) else inf)
    return np.array(costs)


@examples(100)
@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.integers(1, 8),
    st.floats(0.9, 3.0),
    st.sampled_from((1, 3, 100)),
    st.sampled_from((10_000, 0, 1, 5)),
)
def test_the_k_costs_are_those_of_the_frontier(
    seed: int, stages: int, options: int, slack_factor: float, k: int, expansions_max: int
) -> None:
    """They are exact, or if the search stops early within 1 + epsilon times the true ones."""
    random = np.random.default_rng(seed)
    first, *later = [_stage(random, options) for _ in range(stages + 1)]
    chain = chain_of(later)
    budget_ms = slack_factor * float(first.time_ms[0] + chain.fastest_ms[0])
    run = run_astar(chain, ChainQuery(first.time_ms, first.cost, budget_ms, expansions_max), k)
    costs = np.sort(run.best.cost)[:k]
    true = np.sort(_expected(first, later, budget_ms))[:k]
    assert np.array_equal(np.isfinite(costs), np.isfinite(true))
    costs, true = costs[np.isfinite(costs)], true[np.isfinite(true)]
    assert (costs >= true * (1 - 1e-12)).all()
    assert (costs <= true * (1 + run.epsilon(k)) * (1 + 1e-12)).all()
    assert (run.open_states == 0) == (run.epsilon(k) == 0.0)
    assert run.open_states == 0 or expansions_max < 10_000
    assert (run.best.path_ms[np.isfinite(run.best.cost)] <= budget_ms * (1 + 1e-12)).all()


@pytest.mark.parametrize("expansions_max", [0, 1, 5, 30])
def test_an_early_stop_is_reported(expansions_max: int) -> None:
    """An exhausted search reports it, keeps its limit, and beats the fastest completions."""
    random = np.random.default_rng(3)
    first, *later = [_long_stage(random, 30) for _ in range(4)]
    chain = chain_of(later)
    query = ChainQuery(
        first.time_ms, first.cost, 3.0 * float(first.time_ms[0] + chain.fastest_ms[0]), 200_000
    )
    exact = run_astar(chain, query, 5)
    run = run_astar(chain, query._replace(expansions_max=expansions_max), 5)
    assert exact.open_states == 0 < run.open_states
    assert run.best.counts[0] <= expansions_max
    assert 0.0 < run.epsilon(5) < 10.0
    leaders = run.best.leaders
    assert (run.best.cost[leaders] >= exact.best.cost.min()).all()
    assert (run.best.cost[leaders] < first.cost[leaders] + chain.fastest_cost[0]).all()


def test_too_little_memory_is_reported() -> None:
    """Without memory for more states the search stops early with a valid result."""
    random = np.random.default_rng(3)
    first, *later = [_long_stage(random, 8) for _ in range(3)]
    chain = chain_of(later)
    budget_ms = 2.0 * float(first.time_ms[0] + chain.fastest_ms[0])
    states, best = States.of(len(first.time_ms) + 1), SearchResult.of(len(first.time_ms), 3)
    query = ChainQuery(first.time_ms, first.cost, budget_ms, 1000)
    assert search(chain, states, best, query) > 0
    assert (best.path_ms[best.leaders] <= budget_ms).all()


def test_states_leave_the_heap_in_order() -> None:
    """States are ordered by bound, then by age."""
    states = States.of(6)
    for state, bound in enumerate((2.0, 1.0, 1.0, 2.0, 0.0, 1.0)):
        states.bound[state] = bound
        _push(states, state, state)
    assert [_pop(states, size) for size in range(6, 0, -1)] == [4, 1, 2, 5, 0, 3]
