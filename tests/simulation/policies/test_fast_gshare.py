"""FaST-GShare: the most efficient configuration, one for the rest, and 20 % without changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.search.factories import rows
from tests.simulation.policies.factories import (
    catalogue,
    context,
    desired_containers,
    request,
    sizes,
)
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
    return FastGshare(context(catalogue([ROWS])))


@pytest.mark.parametrize(
    ("rate_rps", "expected"),
    [
        (20.0, {B: 2}),
        (22.0, {B: 2, A: 1}),
        (25.0, {B: 2, C: 1}),
        (28.0, {B: 3}),  # the smallest that serves 8 a second is of the same kind
        (1.5, {A: 1}),
    ],
)
def test_the_most_efficient_and_the_smallest_for_the_rest(rate_rps, expected):
    assert desired_containers(policy(), rate_rps) == expected


def test_a_gap_of_whole_containers_but_for_its_last_digit_is_closed():
    """Its rounded rest exceeds what the only configuration serves."""
    full = (8, 1, 10, 91.57005693615353)
    mine = FastGshare(context(catalogue([[full]])))
    assert desired_containers(mine, 4630.334567724802) == {full[:3]: 53}


RUNNING = {B: 2, C: 1}  # serve 25 requests/s


@pytest.mark.parametrize("rate_rps", [20.9, 25.0, 31.2])
def test_within_20_percent_of_the_rate_nothing_changes(rate_rps):
    assert desired_containers(policy(), rate_rps, RUNNING) == RUNNING


def test_above_20_percent_the_gap_is_closed():
    """7 of 32 are not served."""
    assert desired_containers(policy(), 32.0, RUNNING) == {B: 3, C: 1}


def test_below_20_percent_the_least_efficient_end():
    """Only while the others still serve the rate."""
    assert desired_containers(policy(), 20.5, RUNNING) == RUNNING
    assert desired_containers(policy(), 20.0, RUNNING) == {B: 2}
    assert desired_containers(policy(), 5.0, RUNNING) == {B: 1}


def test_a_free_container_takes_what_there_is():
    """The largest that fills; else the smallest."""
    tested = policy()
    desired_containers(tested, 25.0)
    assert sizes(tested.candidates(request(queued=9))) == [B, C]
    assert sizes(tested.candidates(request(queued=2))) == [C, B]


@examples(100)
@given(
    listed=rows(5),
    rates_rps=st.lists(st.floats(0.01, 1_000.0), min_size=1, max_size=4),
    last_rps=st.floats(0.01, 1_000.0),
)
def test_no_more_than_20_percent_are_missing_and_a_steady_rate_settles(listed, rates_rps, last_rps):
    """From any set that rates led to; one that was added may make one from before needless."""
    tested = FastGshare(context(catalogue([listed], slo_ms=1e6)))
    times_ms = {row[:3]: row[3] for row in listed}
    containers = {}
    for rate_rps in [*rates_rps, last_rps, last_rps]:
        containers = desired_containers(tested, rate_rps, containers)
    served_rps = sum(n * 1_000 * size[0] / times_ms[size] for size, n in containers.items())
    assert served_rps >= 0.8 * last_rps * (1 - 1e-9)
    assert desired_containers(tested, last_rps, containers) == containers
