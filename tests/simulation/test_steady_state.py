"""Start-up transients are left out, and a result names its rule and its verdict."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.harness import Poisson, one_function, quiet, run
from workbench.simulation.recorder import HeldCost, TallyWindows
from workbench.simulation.steady_state import BATCH_WINDOWS, OverTime, judged, mser
from workbench.simulation.windows import DollarsOverTime, RunWindows, RunWorkflow

PER_WINDOW = 100


def over_time(hit_ratios, *, latency=0.5, costs=None):
    """Windows of a second with 100 requests each; the last window is not whole."""
    hit_ratios = [*hit_ratios, 0.0]
    count = len(hit_ratios)
    latencies = latency if np.ndim(latency) else [latency] * count
    return OverTime(
        1_000.0,
        (PER_WINDOW,) * count,
        tuple(round(PER_WINDOW * ratio) for ratio in hit_ratios),
        tuple(PER_WINDOW * one for one in (*latencies, 0.0)[:count]),
        tuple((*(costs if costs is not None else [1.0] * count), 0.0)[:count]),
    )


def noisy(means, seed=0, deviation=0.02):
    """Hit ratios around these means."""
    draws = np.random.default_rng(seed).normal(0.0, deviation, len(means))
    return np.clip(np.array(means) + draws, 0.0, 1.0).tolist()


def test_the_first_minute_of_a_jam_is_left_out():
    """Requests of a cold start miss for 60 s, then nearly all are in time."""
    state = judged(over_time(noisy([0.05] * 60 + [0.95] * 300)), None)
    assert (state.rule, state.verdict) == ("MSER-5", "steady")
    assert 60_000.0 <= state.warmup_ms <= 90_000.0


def test_what_begins_steady_loses_little():
    state = judged(over_time(noisy([0.9] * 300)), None)
    assert state.verdict == "steady"
    assert state.warmup_ms <= 150_000.0


def test_costs_settle_too():
    """An autoscaler that pays five times as much for the first minute."""
    settled = judged(over_time([0.95] * 360, costs=[5.0] * 60 + [1.0] * 300), None)
    assert settled.warmup_ms == 60_000.0


def test_a_hit_rate_that_falls_is_no_steady_state():
    ratios = noisy(np.linspace(1.0, 0.2, 400).tolist())
    assert judged(over_time(ratios), None).verdict == "drifting"


def test_queues_that_grow_are_no_steady_state():
    """All requests miss from the start, each by more than the last."""
    latencies = np.linspace(1.0, 50.0, 400).tolist()
    assert judged(over_time([0.0] * 400, latency=latencies), None).verdict == "growing"


def test_a_short_run_keeps_all_and_says_so():
    state = judged(over_time([0.1] * 20 + [0.9] * 60), None)
    assert (state.rule, state.warmup_ms, state.verdict) == ("none", 0.0, "short")


def test_a_given_warmup_is_left_out():
    state = judged(over_time(noisy([0.9] * 200)), 42_000.0)
    assert (state.rule, state.warmup_ms) == ("given", 42_000.0)
    assert judged(over_time(noisy([0.9] * 200)), 0.0).rule == "none"


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=60))
def test_mser_is_the_smallest_standard_error_of_the_first_half(means):
    """Naive twin: the squared standard error of what remains, for each cut."""
    listed = np.array(means)
    scale = max(means) or 1.0

    def error(cut):
        rest = [one / scale for one in means[cut:]]
        mean = sum(rest) / len(rest)
        return sum((one - mean) ** 2 for one in rest) / len(rest) ** 2

    cut = mser(listed)
    assert 0 <= cut <= len(means) // 2
    assert error(cut) <= min(error(c) for c in range(len(means) // 2 + 1)) + 1e-12


def test_the_counts_of_a_result_are_those_after_the_warmup():
    """Half of a run of 20 s is left out, and its cost with it."""
    catalogue = one_function([(1, 1, 20, 10)])
    arrivals = Poisson(10.0, seed=3)
    whole = run(quiet(), catalogue, arrivals, requests=2_000)
    late = run(quiet(warmup_ms=10_000.0), catalogue, arrivals, requests=2_000).result
    expected = [record for record in whole.requests if record.arrival_ms >= 10_000.0]
    assert late.requests == len(expected) < 2_000 == late.arrived
    assert late.hits == sum(record.outcome == "hit" for record in expected)
    assert late.ran_dollars == pytest.approx(sum(record.cost_dollars for record in expected))
    assert sum(late.over_time.requests) == 2_000
    assert late.paid_dollars == pytest.approx(late.ran_dollars, rel=0.01)


def test_counts_and_costs_begin_with_the_same_window():
    """A warm-up of 1.001 s leaves out two windows, and what was held in them."""
    catalogue = one_function([(1, 1, 20, 10)])
    between, whole = (
        run(quiet(resizable=False, warmup_ms=warmup_ms), catalogue, Poisson(10.0, 3), requests=999)
        for warmup_ms in (1_001.0, 2_000.0)
    )
    assert between.result.windows.since(1_001.0) == whole.result.windows.since(2_000.0)
    assert between.result.paid_dollars == whole.result.paid_dollars
    assert between.result.joules_per_request == whole.result.joules_per_request


@given(
    st.lists(st.tuples(st.floats(0.0, 3e6), st.integers(0, 1)), min_size=1, max_size=40),
    st.integers(0, 10**6).map(float),
)
def test_windows_keep_all_requests_in_constant_memory(arrivals, from_ms):
    """However long the run: a window begins at or after the cut, or it is left out."""
    windows = TallyWindows(2)
    for arrival_ms, workflow in sorted(arrivals):
        windows.at(workflow, arrival_ms).dropped += 1
    width_ms = windows.width_ms
    measured = RunWindows(
        width_ms=width_ms,
        workflows=(RunWorkflow("n", "a", 1.0, 1.0), RunWorkflow("n", "b", 1.0, 1.0)),
        tallies=windows.all(),
        held=DollarsOverTime((0.0,) * (len(windows.all()) + 1), 0.0),
        starting=DollarsOverTime((0.0,) * (len(windows.all()) + 1), 0.0),
        rented=None,
        end_ms=0.0,
        idle_watts=0.0,
    )
    over = measured.over_time().requests
    assert sum(over) == len(arrivals)
    assert len(over) <= 512
    for workflow, tally in enumerate(measured.since(from_ms)["workflows"]):
        expected = [
            arrival_ms
            for arrival_ms, number in arrivals
            if number == workflow and int(arrival_ms / width_ms) * width_ms >= from_ms
        ]
        assert tally.requests == len(expected)


@given(
    st.lists(st.tuples(st.floats(0.0, 5e5), st.floats(0.1, 3.0)), min_size=1, max_size=30),
    st.floats(0.0, 1.0),
)
def test_held_cost_is_the_integral_of_what_is_held(steps, part):
    """Exact in total, and between two edges no more than what they differ by."""
    held = HeldCost()
    changes = sorted(steps)
    for time_ms, dollars_per_ms in changes:
        held.change(time_ms, dollars_per_ms)
    end_ms = changes[-1][0] + 1_000.0

    def dollars(until_ms):
        return sum(rate * max(until_ms - time_ms, 0.0) for time_ms, rate in changes)

    assert held.total_dollars(end_ms) == pytest.approx(dollars(end_ms))
    within_ms = part * end_ms
    slack_ms = 2_000.0
    assert dollars(within_ms - slack_ms) - 1e-6 <= held.total_dollars(within_ms) * (1 + 1e-9)
    assert held.total_dollars(within_ms) <= dollars(within_ms + slack_ms) * (1 + 1e-9) + 1e-6


def test_batches_are_of_five_windows():
    """The cut is a whole number of batches, as MSER-5 has it."""
    state = judged(over_time(noisy([0.0] * 52 + [0.95] * 300)), None)
    assert state.warmup_ms % (BATCH_WINDOWS * 1_000.0) == 0.0
