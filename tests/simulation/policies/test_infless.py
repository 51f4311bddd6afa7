"""INFless: throughput for resources, batches that fill in time, and a band without changes."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.plan import Prices
from scheduler.search.planner import Planner
from tests.examples import examples
from tests.search.factories import dags, rows
from tests.simulation.policies.factories import (
    catalogue,
    context,
    desired_containers,
    request,
    sizes,
)
from workbench.simulation.policies.infless import Infless

# Of a part of 1,000 ms. By the plain prices they take 2, 3, 3 and 6 dollars an hour.
ONE = (1, 1, 10, 500.0)  # 2 requests/s
FOUR = (4, 1, 20, 400.0)  # 10 requests/s; 6.67 fill it within 600 ms
SLOW = (8, 1, 20, 600.0)  # more than half of the part
LATE = (1, 1, 50, 1_001.0)
ROWS = [ONE, FOUR, SLOW, LATE]
A, B = ONE[:3], FOUR[:3]


def policy(listed=ROWS, **changes):
    return Infless(context(catalogue([listed]), **changes))


def test_the_most_throughput_for_its_resources_as_long_as_its_batches_fill():
    """25 requests/s: two of four, then 5 are left, which fill no batch of four in time."""
    assert desired_containers(policy(), 25.0) == {B: 2, A: 3}


def test_a_rate_that_fills_no_batch_is_served_one_by_one():
    assert desired_containers(policy(), 6.5) == {A: 4}


def test_where_nothing_is_served_one_by_one_the_batch_that_fills_first():
    assert desired_containers(policy([FOUR, SLOW]), 0.5) == {B: 1}


def test_no_configuration_over_the_stages_part():
    """If the part is too short for all configurations, the fastest runs."""
    assert desired_containers(policy([LATE]), 1.0) == {LATE[:3]: 2}
    assert desired_containers(policy([LATE, (2, 1, 20, 900.0)]), 1.0) == {(2, 1, 20): 1}


RUNNING = {B: 2, A: 3}  # serve 13.3 to 26 requests/s; the band ends at 0.8 x 13.3 + 0.2 x 26 = 15.9


@pytest.mark.parametrize("rate_rps", [15.9, 20.0, 26.0])
def test_within_the_band_nothing_changes(rate_rps):
    assert desired_containers(policy(), rate_rps, RUNNING) == RUNNING


def test_above_the_band_what_is_missing_is_added():
    assert desired_containers(policy(), 29.0, RUNNING) == {B: 2, A: 5}


def test_below_the_band_the_least_efficient_end():
    """All that serve one by one; the rest still serves the rate."""
    assert desired_containers(policy(), 15.8, RUNNING) == {B: 2}
    assert desired_containers(policy(), 9.0, RUNNING) == {B: 1}


def test_what_keeps_the_part_no_more_ends():
    """Containers under a configuration that the policy would not choose."""
    assert desired_containers(policy(), 4.0, {A: 2, LATE[:3]: 5}) == {A: 2}


def test_a_queue_keeps_the_smallest_container_when_nothing_arrives():
    assert desired_containers(policy(), 0.0) == {A: 1}


def test_the_first_rescaling_goes_by_the_workloads_rate():
    assert desired_containers(policy(rate_rps=25.0), 0.0, now_ms=0.0) == {B: 2, A: 3}


def test_what_waits_counts_until_the_next_rescaling():
    """65 jobs and 10 s are 6.5 requests/s."""
    assert desired_containers(policy(), 0.0, queued=65) == {A: 4}


def test_a_batch_runs_when_it_is_full_or_its_time_out_is_over():
    """A batch of four may fill for 1,000 - 400 ms."""
    tested = policy()
    desired_containers(tested, 25.0)
    assert sizes(tested.candidates(request(queued=4))) == [B, A]
    assert sizes(tested.candidates(request(queued=3, waited_ms=599.9))) == [A]
    assert sizes(tested.candidates(request(queued=3, waited_ms=600.0))) == [A, B]


def test_a_queue_asks_again_when_the_time_out_is_over():
    tested = policy()
    desired_containers(tested, 20.0)
    queue_state = request(queued=3, waited_ms=100.0, now_ms=7_000.0)
    assert tested.candidates(queue_state) == []
    assert tested.retry_at_ms(queue_state) == 7_500.0


def test_before_the_first_rescaling_nothing_runs():
    tested = policy()
    assert tested.candidates(request()) == []
    assert tested.retry_at_ms(request()) == inf


def test_each_gpu_model_counts_with_its_own_configurations():
    """The slower model's configuration is over the part, and the third model is not there."""
    documents = catalogue([{"quick": [ONE], "slow": [LATE], "elsewhere": [FOUR]}])
    tested = Infless(context(documents, models=("quick", "slow")))
    assert desired_containers(tested, 3.0) == {A: 2}


def test_where_nothing_has_a_price_throughput_alone_counts():
    assert desired_containers(policy(prices=Prices(0.0, 0.0)), 25.0) == {B: 2, A: 3}


@examples(60)
@given(st.data(), st.floats(0.001, 1e4), st.floats(1.0, 1e7))
def test_what_is_planned_keeps_its_part_and_serves_the_rate(data, rate_rps, slo_ms):
    """Any workflow: within the part, half of it for batches; else the fastest there is."""
    after = data.draw(dags(3))
    listed = [data.draw(rows(4)) for _ in after]
    documents = catalogue(listed, after=after, slo_ms=slo_ms)
    tested = Infless(context(documents))
    parts_ms = Planner(documents).budgets_ms("default", "w")
    for i, listed_rows in enumerate(listed):
        key = ("default", "w", f"s{i}")
        wanted = desired_containers(tested, rate_rps, key=key)
        from_ms, to_ms = parts_ms[f"s{i}"]
        times_ms = {row[:3]: row[3] for row in listed_rows}
        within = {
            size
            for size, time_ms in times_ms.items()
            if time_ms <= (to_ms - from_ms) / (1 if size[0] == 1 else 2)
        }
        fastest_ms = min(times_ms.values())
        assert wanted.keys() <= (within or {s for s, t in times_ms.items() if t == fastest_ms})
        served_rps = sum(n * 1_000 * size[0] / times_ms[size] for size, n in wanted.items())
        assert served_rps >= rate_rps * (1 - 1e-9)
