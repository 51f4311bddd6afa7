"""Orion: steps from the minimum up, by what they gain for what they cost."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.search.factories import FEW_TIMES_MS, dags
from tests.simulation.policies.factories import catalogue, context, size, sizes
from workbench.simulation.policies.end_to_end import EndToEnd, log_normal
from workbench.simulation.policies.orion import TAIL, Orion, sized, steps

# In dollars an hour a vCPU costs 1, and so do 10 % of a GPU. By the step, what it gains in ms and
# costs in addition (dollars an hour x ms):
FIRST = [
    (1, 1, 10, 100.0),
    (1, 2, 10, 90.0),  # 10 for 90 x 3 - 100 x 2 = 70: 0.14
    (1, 1, 20, 80.0),  # 20 for 80 x 3 - 100 x 2 = 40: 0.5
    (1, 2, 20, 75.0),
]
SECOND = [
    (1, 1, 10, 200.0),
    (1, 2, 10, 150.0),  # 50 for 150 x 3 - 200 x 2 = 50: 1
    (1, 1, 20, 190.0),  # 10 for 190 x 3 - 200 x 2 = 170: 0.06
    (1, 2, 20, 140.0),
]


def chosen(stages, slo_ms, **changes):
    """Return the sizes that Orion chooses for the stages."""
    tested = Orion(context(catalogue(stages, slo_ms=slo_ms), **changes))
    return sizes(fixed.candidate for fixed in tested.fixed.values())


@pytest.mark.parametrize(
    ("slo_ms", "expected"),
    [
        (300.0, [(1, 1, 10), (1, 1, 10)]),
        (299.0, [(1, 1, 10), (1, 2, 10)]),
        (249.0, [(1, 1, 20), (1, 2, 10)]),
        (229.0, [(1, 1, 20), (1, 2, 20)]),  # 10 for 110: 0.091; the first stage's vCPU: 5 for 60
        (219.0, [(1, 2, 20), (1, 2, 20)]),
    ],
)
def test_the_single_step_that_gains_most_for_what_it_costs(slo_ms, expected):
    assert chosen([FIRST, SECOND], slo_ms) == expected


def test_a_step_that_costs_nothing_comes_first():
    """60 x 3 is less than 100 x 2; four times the share gains more, but for 50 x 5."""
    rows = [(1, 1, 10, 100.0), (1, 2, 10, 60.0), (1, 1, 40, 50.0), (1, 2, 40, 40.0)]
    assert chosen([rows], 99.0) == [(1, 2, 10)]


def test_where_no_step_gains_it_goes_on_from_the_lowest_seen():
    hill = [(1, 1, 10, 100.0), (1, 2, 10, 120.0), (1, 4, 10, 50.0)]
    assert chosen([hill], 60.0) == [(1, 4, 10)]


def test_where_nothing_keeps_the_slo_the_lowest_is_taken():
    assert chosen([FIRST, SECOND], 10.0) == [(1, 2, 20), (1, 2, 20)]


def test_the_tail_keeps_the_slo_not_the_mean():
    """With noise of 0.1 the 95th percentile of 100 ms is 100 x exp(0.1645 - 0.005) = 117 ms."""
    rows = [(1, 1, 10, 100.0), (1, 2, 10, 90.0)]
    assert chosen([rows], 111.0, noise_ratio=0.1) == [(1, 2, 10)]
    assert chosen([rows], 123.0, noise_ratio=0.1) == [(1, 1, 10)]


def test_a_larger_batch_is_a_step():
    """In a profile where two take less time than one; they fill in 1 ms."""
    rows = [(1, 1, 10, 100.0), (2, 1, 10, 60.0)]
    assert chosen([rows], 99.0, rate_rps=1_000.0) == [(2, 1, 10)]


@pytest.mark.parametrize(("steps_max", "expected"), [(0, 0), (1, 1), (2, 2)])
def test_the_search_ends_when_its_steps_run_out(steps_max, expected):
    documents = catalogue([[(1, 2**i, 10, 100.0 / (i + 1)) for i in range(4)]], slo_ms=1.0)
    whole = EndToEnd(context(documents), documents.workflow("default", "w"))
    assert sized(whole, np.ones((1, 1)), steps_max) == (expected,)


def test_steps_are_one_level_of_one_thing():
    rows = [(b, c, p, 10.0) for b in (1, 2, 4) for c in (1, 2) for p in (10, 50, 100)]
    documents = catalogue([rows])
    whole = EndToEnd(context(documents), documents.workflow("default", "w"))
    listed = whole.options[0]
    at = rows.index((2, 1, 10, 10.0))
    assert [size(listed[i]) for i in steps(listed, at)] == [(4, 1, 10), (2, 2, 10), (2, 1, 50)]
    assert not list(steps(listed, rows.index((4, 2, 100, 10.0))))


def test_a_hole_in_the_profile_is_passed_by_the_nearest():
    """More vCPUs are there with another share alone."""
    rows = [(1, 1, 50, 10.0), (1, 2, 10, 10.0), (1, 2, 40, 10.0), (1, 2, 100, 10.0)]
    documents = catalogue([rows])
    whole = EndToEnd(context(documents), documents.workflow("default", "w"))
    listed = whole.options[0]
    assert [size(listed[i]) for i in steps(listed, 0)] == [(1, 2, 40), (1, 2, 100)]


def test_later_stages_are_started_so_that_they_are_up_in_time():
    """After 100 ms the second stage begins, after 300 ms the third."""
    rows = [[(1, 1, 10, t)] for t in (100.0, 200.0, 50.0)]
    delays = {}
    for cold_start_ms in (30.0, 150.0):
        tested = Orion(context(catalogue(rows, cold_start_ms=cold_start_ms)))
        delays[cold_start_ms] = [
            tested.prewarm_delay_ms(("default", "w", f"s{i}")) for i in range(3)
        ]
    assert delays == {30.0: [None, 70.0, 270.0], 150.0: [None, 0.0, 150.0]}


def test_they_are_up_in_95_of_100_requests():
    tested = Orion(context(catalogue([[(1, 1, 10, 100.0)]] * 2), noise_ratio=0.2))
    begins_ms = 100.0 * log_normal(0.2, (20_000, 1), np.random.default_rng(7))
    late = (begins_ms < tested.prewarm_delay_ms(("default", "w", "s1"))).mean()
    assert late == pytest.approx(0.05, abs=0.02)


@examples(60)
@given(st.data(), st.floats(1.0, 40.0), st.sampled_from([0.0, 0.1]))
def test_it_keeps_the_slo_where_any_configuration_does(data, slo_ms, noise_ratio):
    """And costs no less than the cheapest that does; else its percentile is the lowest of all."""
    after = data.draw(dags(2))
    grid = list(product((1,), (1, 2), (10, 20, 50)))
    times = st.lists(st.sampled_from(FEW_TIMES_MS), min_size=len(grid), max_size=len(grid))
    stages = [[(*at, t) for at, t in zip(grid, data.draw(times), strict=True)] for _ in after]
    documents = catalogue(stages, after=after, slo_ms=slo_ms)
    whole = EndToEnd(context(documents), documents.workflow("default", "w"))
    noise = log_normal(noise_ratio, (50, len(after)), np.random.default_rng(1))
    choices = list(product(range(len(grid)), repeat=len(after)))
    tails_ms = {c: np.quantile(whole.times_ms(c, noise), TAIL) for c in choices}
    choice = sized(whole, noise, steps_max=len(choices))
    keeping = [c for c, tail_ms in tails_ms.items() if tail_ms <= slo_ms]
    if keeping:
        assert tails_ms[choice] <= slo_ms
        assert whole.cost_dollars(choice) >= min(map(whole.cost_dollars, keeping))
    else:
        assert tails_ms[choice] == min(tails_ms.values())
