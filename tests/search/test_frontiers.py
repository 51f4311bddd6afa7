"""Frontiers are compared with a naive twin: all pairs without the dominated ones."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.search.frontiers.frontier import EMPTY, Frontier, in_parallel, in_series, pareto
from tests.examples import examples

Points = list[tuple[float, float]]

VALUES = st.one_of(st.sampled_from((1.0, 2.0, 3.0)), st.floats(0.001, 1e6))
POINTS = st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=12)
quick = examples(100)


def _naive(points: Points) -> Points:
    """Return the points that no other point dominates."""
    undominated: Points = []
    for time_ms, cost in sorted(set(points)):
        if not undominated or cost < undominated[-1][1]:
            undominated.append((time_ms, cost))
    return undominated


def _of(points: Points) -> Frontier:
    return pareto(np.array([t for t, _ in points]), np.array([c for _, c in points]))


def _points(frontier: Frontier) -> Points:
    return list(zip(frontier.time_ms.tolist(), frontier.cost.tolist(), strict=True))


@quick
@given(POINTS)
def test_pareto(points: Points) -> None:
    """A frontier has only undominated points, by rising time."""
    assert _points(_of(points)) == _naive(points)


@quick
@given(POINTS, POINTS)
def test_in_series(first: Points, second: Points) -> None:
    """A series has the undominated sums of all pairs."""
    pairs = [(a + c, b + d) for (a, b), (c, d) in product(_naive(first), _naive(second))]
    joined = in_series(_of(first), _of(second))
    assert _points(joined) == _naive(pairs)
    assert joined.epsilon == 0.0


@quick
@given(POINTS, POINTS)
def test_in_parallel(first: Points, second: Points) -> None:
    """Parallel frontiers have the longer time and the sum of the costs, of all pairs."""
    pairs = [(max(a, c), b + d) for (a, b), (c, d) in product(_naive(first), _naive(second))]
    joined = in_parallel(_of(first), _of(second))
    assert _points(joined) == _naive(pairs)
    assert joined.epsilon == 0.0


@quick
@given(POINTS)
def test_the_empty_frontier_is_neutral(points: Points) -> None:
    """A frontier joined with the empty one is unchanged."""
    frontier = _of(points)
    assert _points(in_series(frontier, EMPTY)) == _points(frontier)
    assert _points(in_parallel(EMPTY, frontier)) == _points(frontier)


@quick
@given(st.integers(0, 2**32), st.integers(2, 40), st.sampled_from((in_series, in_parallel)))
def test_thinning_keeps_its_error_bound(seed: int, points_max: int, join: object) -> None:
    """A thinned frontier has few points, all real, both ends, and a valid epsilon."""
    assert callable(join)
    random = np.random.default_rng(seed)
    sides = [pareto(random.uniform(1, 9, 300), random.uniform(1, 9, 300)) for _ in range(2)]
    for side in range(2):  # a hyperbola has many undominated points
        time_ms = np.sort(sides[side].time_ms)
        sides[side] = pareto(time_ms, 100.0 / time_ms)
    exact = join(*sides)
    thin = join(*sides, points_max)
    assert len(thin.time_ms) <= points_max
    assert set(_points(thin)) <= set(_points(exact))
    assert _points(thin)[0] == _points(exact)[0]
    assert _points(thin)[-1] == _points(exact)[-1]
    assert (thin.epsilon > 0.0) == (len(thin.time_ms) < len(exact.time_ms))
    thinned = thin.cost[np.searchsorted(thin.time_ms, exact.time_ms, side="right") - 1]
    assert (thinned <= exact.cost * (1.0 + thin.epsilon) * (1 + 1e-12)).all()
