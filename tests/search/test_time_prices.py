"""Prices of time: the curve of the relaxation agrees with HiGHS and with naive twins."""

from itertools import combinations, pairwise, product
from math import isclose
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from scheduler.search.dag import Dag, members
from scheduler.search.frontiers.frontier import EMPTY, Frontier, pareto
from scheduler.search.reduction.event_network import EventNetwork
from scheduler.search.reduction.time_prices import lower_hull, prices_of_time
from tests.examples import examples
from tests.search.factories import TIMES_MS, rooted_dags

Points = list[tuple[float, float]]

quick = examples(60)
WHOLE = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=12)
WIDE = st.lists(st.tuples(TIMES_MS, st.floats(1e-9, 1.0)), min_size=1, max_size=5)


DAGS = st.builds(Dag.of, rooted_dags(stages_max=8))


def _frontiers(draw: st.DrawFn, dag: Dag, points: st.SearchStrategy[Points]) -> list[Frontier]:
    return [_of(draw(points)) for _ in dag.before[1:]]


def _of(points: Points) -> Frontier:
    return pareto(*(np.array(values, np.float64) for values in zip(*points, strict=True)))


class StagePrices(NamedTuple):
    """Rows of prices of stages, the first of which starts the others and takes no time."""

    row_ms: np.ndarray
    price: np.ndarray  # (rows, stages); column 0: of all stages together
    row_cost: np.ndarray  # sums of the minima of cost + price x time


def _stage_prices(dag: Dag, frontiers: list[Frontier]) -> StagePrices:
    """Compute the prices of stages 1.. with these options."""
    order = dag.reduced(range(1, len(dag.before)))
    network = EventNetwork.of(order, [len(f.cost) for f in frontiers])
    order_arcs = [EMPTY] * (len(network.stages) - len(frontiers))
    row_ms, by_slot, flow = prices_of_time(network.arcs, [*frontiers, *order_arcs])
    price = np.column_stack([flow, by_slot[:, : len(frontiers)]])
    minima = [
        (f.cost + price[:, v : v + 1] * f.time_ms).min(axis=1) for v, f in enumerate(frontiers, 1)
    ]
    return StagePrices(row_ms, price, np.sum(minima, axis=0))


def _row(prices: StagePrices, limit_ms: float) -> int:
    """Return the best row for a time limit."""
    return int(np.flatnonzero(prices.row_ms <= limit_ms)[0])


def _bound_dollars(prices: StagePrices, row: int, limit_ms: float) -> float:
    return float(prices.row_cost[row] - prices.price[row, 0] * limit_ms)


def _ends_ms(dag: Dag, frontiers: list[Frontier]) -> tuple[float, float]:
    """Return the times of the fastest completion and of that with each stage at its cheapest."""
    return tuple(
        dag.longest_after([0.0, *(float(f.time_ms[end]) for f in frontiers)])[0] for end in (0, -1)
    )


def _relaxed_dollars(dag: Dag, frontiers: list[Frontier], limit_ms: float) -> float:
    """Return the minimum cost by HiGHS if a stage may mix its options.

    The variables are the parts of the options, then the starts of the stages.
    """
    stage = np.repeat(np.arange(len(frontiers)), [len(f.cost) for f in frontiers])
    time_ms = np.concatenate([f.time_ms for f in frontiers])
    start = np.eye(len(frontiers))
    own = (stage == np.arange(len(frontiers))[:, None]).astype(float)
    order = [
        np.concatenate([time_ms * own[p - 1], start[p - 1] - start[v - 1]])
        for v in range(1, len(dag.before))
        for p in members(dag.before[v] & ~1)
    ]
    ends = [np.concatenate([time_ms * own[v], start[v]]) for v in range(len(frontiers))]
    solution = linprog(
        np.concatenate([np.concatenate([f.cost for f in frontiers]), np.zeros(len(frontiers))]),
        A_ub=np.array([*order, *ends]),
        b_ub=[0.0] * len(order) + [limit_ms] * len(ends),
        A_eq=np.hstack([own, np.zeros_like(start)]),
        b_eq=np.ones(len(frontiers)),
    )
    assert solution.status == 0, solution.message
    return float(solution.fun)


@quick
@given(DAGS, st.data())
def test_the_bound_is_the_optimum_of_the_relaxation(dag: Dag, data: st.DataObject) -> None:
    """For any time limit, the bound is the minimum cost if stages may mix their options."""
    frontiers = _frontiers(data.draw, dag, WHOLE)
    prices = _stage_prices(dag, frontiers)
    fastest_ms, cheapest_ms = _ends_ms(dag, frontiers)
    for limit_ms in (fastest_ms, cheapest_ms, data.draw(st.floats(fastest_ms, 1.1 * cheapest_ms))):
        bound = _bound_dollars(prices, _row(prices, limit_ms), limit_ms)
        assert isclose(bound, _relaxed_dollars(dag, frontiers, limit_ms), rel_tol=1e-7)


@quick
@given(DAGS, st.data())
def test_prices_are_a_flow(dag: Dag, data: st.DataObject) -> None:
    """In each row the prices are a flow along the edges: a stage passes on its price."""
    frontiers = _frontiers(data.draw, dag, WHOLE)
    prices = _stage_prices(dag, frontiers)
    edges = [(p, v) for v in range(1, len(dag.before)) for p in members(dag.before[v])]
    exits = [v for v, after in enumerate(dag.following) if not after]
    into = [[float(v == w) for _, w in edges] for v in range(1, len(dag.before))]
    out_of = [[float(v == p) for p, _ in edges] for v in range(len(dag.before)) if v not in exits]
    for price in prices.price[1:]:
        amounts = [*price[1:], *(price[v] for v in range(len(price)) if v not in exits)]
        flow = linprog(np.zeros(len(edges)), A_eq=into + out_of, b_eq=amounts / price[0])
        assert flow.status == 0, flow.message
        assert isclose(sum(price[exits]), price[0])


@quick
@given(DAGS, st.data())
def test_rows_go_from_the_cheapest_to_the_fastest(dag: Dag, data: st.DataObject) -> None:
    """Times fall from row to row, and prices rise from 0."""
    frontiers = _frontiers(data.draw, dag, WHOLE)
    prices = _stage_prices(dag, frontiers)
    fastest_ms, cheapest_ms = _ends_ms(dag, frontiers)
    assert prices.row_ms[0] == cheapest_ms
    assert isclose(prices.row_ms[-1], fastest_ms)
    assert not prices.price[0].any()
    assert (np.diff(prices.row_ms) <= 0.0).all()
    assert (np.diff(prices.price[:, 0]) > 0.0).all()


def test_thirds_leave_no_capacity():
    """1 - 1/3 - 2/3 leaves 1e-17 in floating point, which is no further row."""
    dag = Dag.of([[], [0], [1], [0], [2]])
    points = [[(1, 2), (4, 1)], [(7, 26), (16, 2), (17, 1)], [(1, 1)], [(1, 17), (7, 1)]]
    prices = _stage_prices(dag, [_of(stage) for stage in points])
    assert prices.price[:, 0] == pytest.approx([0, 1 / 3, 1, 8 / 3])


@quick
@given(st.builds(Dag.of, rooted_dags(stages_max=4)), st.data())
def test_no_row_exceeds_the_true_minimum(dag: Dag, data: st.DataObject) -> None:
    """For any row and time, from 1 microsecond to 1 hour, no completion costs less."""
    frontiers = _frontiers(data.draw, dag, WIDE)
    prices = _stage_prices(dag, frontiers)
    for options in product(*(range(len(f.cost)) for f in frontiers)):
        pairs = list(zip(frontiers, options, strict=True))
        path_ms = dag.longest_after([0.0, *(float(f.time_ms[o]) for f, o in pairs)])[0]
        cost = sum(float(f.cost[o]) for f, o in pairs)
        bounds = prices.row_cost - prices.price[:, 0] * path_ms
        assert (bounds <= cost + 1e-13 * (cost + prices.row_cost)).all()


@pytest.mark.parametrize("series", [True, False])
@quick
@given(st.lists(WIDE, min_size=1, max_size=5), st.floats(0.0, 1.0))
def test_wide_curves(series: bool, stages: list[Points], position_ratio: float) -> None:
    """From 1 microsecond to 1 hour the bound is exact up to a rounding of the time.

    A chain buys time where it is cheapest, branches buy it all at once.
    """
    frontiers = [_of(points) for points in stages]
    dag = Dag.of([[], *([v if series else 0] for v in range(len(frontiers)))])
    prices = _stage_prices(dag, frontiers)
    fastest_ms, cheapest_ms = _ends_ms(dag, frontiers)
    limit_ms = fastest_ms + position_ratio * (cheapest_ms - fastest_ms)
    minimum = _chain_dollars if series else _branches_dollars
    bound = _bound_dollars(prices, _row(prices, limit_ms * (1 + 1e-11)), limit_ms)
    scale = sum(f.cost[0] for f in frontiers) + prices.price[-1, 0] * cheapest_ms
    rounding = 1e-13 * float(scale)
    assert bound <= minimum(frontiers, limit_ms) + rounding
    assert bound >= minimum(frontiers, limit_ms + 1e-11 * cheapest_ms) - rounding


def _chain_dollars(frontiers: list[Frontier], limit_ms: float) -> float:
    """Shorten the cheapest completion of a chain along the flattest segments."""
    cost = sum(float(f.cost[-1]) for f in frontiers)
    over_ms = sum(float(f.time_ms[-1]) for f in frontiers) - limit_ms
    segments = []
    for frontier in frontiers:
        hull = lower_hull(frontier)
        for a, b in pairwise(hull):
            saved_ms = float(frontier.time_ms[b] - frontier.time_ms[a])
            segments.append((float(frontier.cost[a] - frontier.cost[b]) / saved_ms, saved_ms))
    for per_ms, saved_ms in sorted(segments):
        cost += per_ms * max(0.0, min(saved_ms, over_ms))
        over_ms -= saved_ms
    return cost


def _branches_dollars(frontiers: list[Frontier], limit_ms: float) -> float:
    """Sum the costs of the hulls at the limit."""
    hulls = [(f, lower_hull(f)) for f in frontiers]
    return sum(float(np.interp(limit_ms, f.time_ms[hull], f.cost[hull])) for f, hull in hulls)


@quick
@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), min_size=1, max_size=30))
def test_the_hull(points: list[tuple[int, int]]) -> None:
    """The hull has both ends and the points below every line between two other points."""
    frontier = _of(points)
    listed = list(zip(frontier.time_ms.tolist(), frontier.cost.tolist(), strict=True))
    expected = [
        i
        for i, (time, cost) in enumerate(listed)
        if all(
            cost * (d - c) < a * (d - time) + b * (time - c)
            for (c, a), (d, b) in combinations(listed, 2)
            if c < time < d
        )
    ]
    assert lower_hull(frontier).tolist() == expected


def test_one_configuration_has_no_price() -> None:
    """Without a choice time has no price, and the bound is the cost."""
    dag = Dag.of([[], [0], [1]])
    prices = _stage_prices(dag, [_of([(2.0, 3.0)]), _of([(5.0, 1.0), (5.0, 4.0)])])
    assert prices.row_ms.tolist() == [7.0]
    assert prices.price.tolist() == [[0.0, 0.0, 0.0]]
    assert prices.row_cost.tolist() == [4.0]


def test_prices_by_hand() -> None:
    """The first ms are saved in the second stage, at 1 dollar; the next in the first, at 3."""
    dag = Dag.of([[], [0], [1]])
    prices = _stage_prices(dag, [_of([(1.0, 8.0), (2.0, 5.0)]), _of([(4.0, 6.0), (6.0, 4.0)])])
    assert prices.row_ms.tolist() == [8.0, 6.0, 5.0]
    assert prices.price.tolist() == [[0.0] * 3, [1.0] * 3, [3.0] * 3]
    assert [_bound_dollars(prices, row, t) for row, t in ((0, 9.0), (1, 7.0), (2, 5.5))] == [
        9,
        10,
        12.5,
    ]


HOUR_MS = 3_600_000.0
DIAMOND = ((), (0,), (1,), (1,), (2, 3))


def _branches_within_an_hour(difference_ms: float) -> tuple[Dag, list[Frontier]]:
    """Create two branches with a small difference, between stages from 1 ms to 1 hour."""
    return Dag.of(DIAMOND), [
        _of([(1.0, 9.0), (HOUR_MS / 2, 5.0), (HOUR_MS, 4.0)]),
        _of([(0.001, 1.0)]),
        _of([(0.001 + difference_ms, 1.0)]),
        _of([(1.0, 8.0), (1000.0, 5.0)]),
    ]


def test_a_microsecond_within_an_hour() -> None:
    """A small difference is not lost: the curve ends at the fastest completion."""
    dag, frontiers = _branches_within_an_hour(0.001)
    fastest_ms, _ = _ends_ms(dag, frontiers)
    assert isclose(_stage_prices(dag, frontiers).row_ms[-1], fastest_ms)


def test_a_nanosecond_within_an_hour() -> None:
    """A difference below the rounding may end the curve early; its rows are still bounds."""
    dag, frontiers = _branches_within_an_hour(2e-6)
    prices = _stage_prices(dag, frontiers)
    for limit_ms in (2.1, 500.0, HOUR_MS / 2, 2 * HOUR_MS):
        exact = _relaxed_dollars(dag, frontiers, limit_ms)
        assert (prices.row_cost - prices.price[:, 0] * limit_ms <= exact + 1e-6).all()
