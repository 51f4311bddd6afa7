"""Node reduction has the frontier of brute force, real options, and a true epsilon."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config

from scheduler.search.dag import Dag, members
from scheduler.search.frontiers.arrays import Matrix
from scheduler.search.frontiers.frontier import Frontier, pareto
from scheduler.search.frontiers.reduction_arrays import FIX
from scheduler.search.reduction import node_reduction
from scheduler.search.reduction.event_network import EventNetwork
from scheduler.search.reduction.node_reduction import ReducedFrontier, reduced_frontier
from scheduler.search.reduction.time_prices import TimePrices, prices_of_time
from tests.examples import examples
from tests.search.factories import (
    CHAIN,
    N_OF_MODULES,
    N_SHAPE,
    Shape,
    any_order,
    dags,
    fork_join,
    layered,
)

RELATIVE = 1e-10
UNLIMITED = 10**15
LAYERED = layered((2, 3))
thorough = examples(10 if config.DISABLE_JIT else 150)


def _stages(count: int, seed: int, options: int) -> list[Frontier]:
    """Create a frontier for each stage; some have equal times or costs, some a free option."""
    random = np.random.default_rng(seed)
    free = random.integers(0, 4) == 0
    stages = []
    for _ in range(count):
        time_ms = np.round(random.uniform(1.0, 100.0, options), random.integers(0, 3))
        cost = time_ms ** -random.uniform(0.3, 1.0) * random.lognormal(0.0, 0.2, options)
        cost[np.argmax(time_ms)] *= not free
        stages.append(pareto(time_ms, cost))
    return stages


def _time_ms(dag: Dag, times_ms: Sequence[float]) -> float:
    """Return the longest path."""
    ends_ms: list[float] = []
    for own_ms, before in zip(times_ms, dag.preceding, strict=True):
        ends_ms.append(max((ends_ms[p] for p in members(before)), default=0.0) + own_ms)
    return max(ends_ms)


def _brute_force(dag: Dag, stages: Sequence[Frontier]) -> Frontier:
    """Return the frontier of all combinations of options."""
    lists = [list(zip(f.time_ms.tolist(), f.cost.tolist(), strict=True)) for f in stages]
    completions = [
        (_time_ms(dag, [time_ms for time_ms, _ in choice]), sum(cost for _, cost in choice))
        for choice in product(*lists)
    ]
    return pareto(*np.array(completions).T)


def _costs(frontier: Frontier, times_ms: np.ndarray) -> np.ndarray:
    """Return the cost of a frontier within each time."""
    at = np.searchsorted(frontier.time_ms, times_ms * (1 + RELATIVE), side="right") - 1
    return np.where(at >= 0, frontier.cost[at], np.inf)


def _check_options(dag: Dag, stages: Sequence[Frontier], reduced: ReducedFrontier) -> None:
    """Check that the options of each point give its time and cost."""
    frontier, options = reduced
    assert options.shape == (len(frontier.time_ms), len(stages))
    points = zip(frontier.time_ms, frontier.cost, options, strict=True)
    for time_ms, cost, row in points:
        real_ms = _time_ms(dag, [f.time_ms[o] for f, o in zip(stages, row, strict=True)])
        real = sum(f.cost[o] for f, o in zip(stages, row, strict=True))
        assert real_ms <= time_ms * (1 + RELATIVE)
        assert real == pytest.approx(cost, rel=RELATIVE)


def _check_epsilon(reduced: ReducedFrontier, exact: Frontier) -> None:
    """Check that the cost at any time is at least the minimum, and at most 1 + epsilon times it."""
    frontier = reduced.frontier
    times_ms = np.union1d(frontier.time_ms, exact.time_ms)
    costs, minima = _costs(frontier, times_ms), _costs(exact, times_ms)
    assert np.all(costs >= minima * (1 - RELATIVE))
    assert np.all(costs <= minima * (1 + frontier.epsilon) * (1 + RELATIVE))
    assert np.all(np.diff(frontier.time_ms) > 0)
    assert np.all(np.diff(frontier.cost) < 0)


@thorough
@given(dags(5), st.integers(0, 2**32), st.integers(1, 5))
def test_equals_brute_force(shape: Shape, seed: int, options: int) -> None:
    """The frontier of any order is exact, and its options are real completions."""
    dag, stages = Dag.of(shape), _stages(len(shape), seed, options)
    reduced = reduced_frontier(dag, stages, UNLIMITED)
    assert reduced.frontier.epsilon == 0.0
    _check_epsilon(reduced, _brute_force(dag, stages))
    _check_options(dag, stages, reduced)


def test_a_stage_that_is_faster_for_next_to_nothing() -> None:
    """A price of time far below the others is rounded away, and no completion with it."""
    dag = Dag.of([[], [], [], [0, 1], [1, 2], [0, 2]])
    stages = [
        pareto(np.array(times_ms), np.array(costs))
        for times_ms, costs in (
            ((7_600.0,), (1.0,)),
            ((450.0, 2.5e6), (1.0, 0.0)),
            ((0.002, 15_500.0), (1e-9 + 1e-19, 1e-9)),
            ((15.0, 27.0), (1.0, 0.0)),
            ((0.002,), (1e-9,)),
            ((0.002, 0.07), (1.0 + 1e-10, 1.0)),
        )
    ]
    reduced = reduced_frontier(dag, stages, UNLIMITED)
    _check_epsilon(reduced, _brute_force(dag, stages))
    _check_options(dag, stages, reduced)


@examples(5 if config.DISABLE_JIT else 60)
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_fewer_prices_than_the_curve_has(seed: int, rows: int) -> None:
    """Rows of prices save work alone: without the last ones the frontier is the same."""
    dag, stages = Dag.of(N_SHAPE), _stages(len(N_SHAPE), seed, 5)

    def first_prices(*arguments: Any) -> TimePrices:
        row_ms, price, flow = prices_of_time(*arguments)
        return TimePrices(row_ms[:rows], Matrix(price[:rows]), flow[:rows])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_reduction, "prices_of_time", first_prices)
        reduced = reduced_frontier(dag, stages, UNLIMITED)
    _check_epsilon(reduced, _brute_force(dag, stages))
    _check_options(dag, stages, reduced)


@pytest.mark.slow
@thorough
@given(LAYERED, st.integers(0, 2**32))
def test_equals_brute_force_with_several_fixed_arcs(shape: Shape, seed: int) -> None:
    """The same holds for layers of two stages, which need several fixed arcs."""
    dag, stages = Dag.of(shape), _stages(len(shape), seed, 3)
    reduced = reduced_frontier(dag, stages, UNLIMITED)
    _check_epsilon(reduced, _brute_force(dag, stages))
    _check_options(dag, stages, reduced)


@thorough
@given(LAYERED, st.integers(0, 2**32), st.integers(4, 16), st.sampled_from((0, 1_000, 10_000)))
def test_epsilon_is_an_upper_bound(shape: Shape, seed: int, options: int, work_max: int) -> None:
    """With too little work, epsilon limits the excess at any time."""
    dag, stages = Dag.of(shape), _stages(len(shape), seed, options)
    reduced = reduced_frontier(dag, stages, work_max)
    _check_epsilon(reduced, reduced_frontier(dag, stages, UNLIMITED).frontier)
    _check_options(dag, stages, reduced)


@pytest.mark.parametrize(("slot_points", "points"), [(3, 4_096), (16, 16)])
def test_short_memory_is_part_of_epsilon(
    slot_points: int, points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frontier without memory for all its points is thinned, and states it."""
    shape = [[], [0], [0], [1, 2], [2], [3], [3, 4], [5, 6], [6]]
    dag, stages = Dag.of(shape), _stages(len(shape), 0, 8)
    exact = reduced_frontier(dag, stages, UNLIMITED).frontier
    monkeypatch.setattr(node_reduction, "SLOT_POINTS_MAX", slot_points)
    monkeypatch.setattr(node_reduction, "POINTS_MAX", points)
    reduced = reduced_frontier(dag, stages, UNLIMITED)
    assert reduced.frontier.epsilon > 0.0
    _check_epsilon(reduced, exact)
    _check_options(dag, stages, reduced)


def test_more_work_has_a_smaller_epsilon() -> None:
    """Epsilon falls to 0 as the limit of the work rises."""
    shape = any_order(12, 11)
    dag, stages = Dag.of(shape), _stages(len(shape), 1, 16)
    epsilons = [
        reduced_frontier(dag, stages, work_max).frontier.epsilon
        for work_max in (0, 10_000, UNLIMITED)
    ]
    assert epsilons[0] >= epsilons[1] > epsilons[2] == 0.0


@pytest.mark.parametrize(
    ("shape", "fixed"),
    [((()), 0), (CHAIN, 0), (fork_join(6), 0), (N_SHAPE, 1), (N_OF_MODULES, 1)],
    ids=["one stage", "chain", "fork", "N", "N of modules"],
)
def test_only_other_orders_fix_arcs(shape: Sequence[Sequence[int]], fixed: int) -> None:
    """A series-parallel order needs no combinations; an N, of stages or modules, needs one arc."""
    order = shape or [[]]
    network = EventNetwork.of(Dag.of(order), [4] * len(order))
    network.join()
    operations = network.reduced().operations
    assert sum(kind == FIX for kind, *_ in operations) == fixed
