"""FaST-GShare: the most efficient configuration, one for the rest, and 20 % without changes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.documents import rows
from tests.simulation.policies.asking import catalogue, question, rescaled, sizes, world
from workbench.simulation.policies.fast_gshare import FastGshare

# Of a part of 1,000 ms; by the plain prices they take 2, 3, 2.5 and 6 dollars an hour.
ONE = (1, 1, 10, 500.0)  # 2 requests/s
FOUR = (4, 1, 20, 400.0)  # 10 requests/s
MIDDLE = (1, 1, 15, 200.0)  # 5 requests/s
LARGE = (1, 1, 50, 125.0)  # 8 requests/s
SLOW = (16, 1, 10, 501.0)  # the most for its resources, but it does not keep the part
ROWS = [ONE, FOUR, MIDDLE, LARGE, SLOW]
A, B, C, D = (row[:3] for row in ROWS[:4])


def policy():
    return FastGshare(world(catalogue([ROWS])))


@pytest.mark.parametrize(
    ("rate_rps", "wanted"),
    [
        (20.0, {B: 2}),
        (22.0, {B: 2, A: 1}),
        (25.0, {B: 2, C: 1}),
        (28.0, {B: 3}),  # the smallest that serves 8 a second is of the same kind
        (1.5, {A: 1}),
    ],
)
def test_the_most_efficient_and_the_smallest_for_the_rest(rate_rps, wanted):
    assert rescaled(policy(), rate_rps) == wanted


KEPT = {B: 2, C: 1}  # serve 25 requests/s


@pytest.mark.parametrize("rate_rps", [20.9, 25.0, 31.2])
def test_within_20_percent_of_the_rate_nothing_changes(rate_rps):
    assert rescaled(policy(), rate_rps, KEPT) == KEPT


def test_above_20_percent_the_gap_is_closed():
    """7 of 32 are not served."""
    assert rescaled(policy(), 32.0, KEPT) == {B: 3, C: 1}


def test_below_20_percent_the_least_efficient_end():
    """As far as the rest still serves the rate."""
    assert rescaled(policy(), 20.5, KEPT) == KEPT
    assert rescaled(policy(), 20.0, KEPT) == {B: 2}
    assert rescaled(policy(), 5.0, KEPT) == {B: 1}


def test_a_free_container_takes_what_there_is():
    """The largest that fills; else the smallest."""
    mine = policy()
    rescaled(mine, 25.0)
    assert sizes(mine.candidates(question(queued=9))) == [B, C]
    assert sizes(mine.candidates(question(queued=2))) == [C, B]


@settings(max_examples=100, deadline=None)
@given(
    listed=rows(5),
    rates_rps=st.lists(st.floats(0.01, 1_000.0), min_size=1, max_size=4),
    last_rps=st.floats(0.01, 1_000.0),
)
def test_no_more_than_20_percent_are_missing_and_a_steady_rate_settles(listed, rates_rps, last_rps):
    """From any set that rates led to; one that was added may make one from before needless."""
    mine = FastGshare(world(catalogue([listed], slo_ms=1e6)))
    times_ms = {row[:3]: row[3] for row in listed}
    kept = {}
    for rate_rps in [*rates_rps, last_rps, last_rps]:
        kept = rescaled(mine, rate_rps, kept)
    served_rps = sum(n * 1_000 * size[0] / times_ms[size] for size, n in kept.items())
    assert served_rps >= 0.8 * last_rps * (1 - 1e-9)
    assert rescaled(mine, last_rps, kept) == kept
