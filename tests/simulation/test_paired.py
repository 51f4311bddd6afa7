"""Differences of policies on the same requests: exact for hits, with intervals that hold."""

from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from tests.simulation.harness import quiet
from tests.simulation.test_runs import JOB, outcomes_of
from workbench.simulation.runs import paired
from workbench.simulation.runs.paired import BATCHES, PairedSums, policy_differences, ratio_of


def correlated(rng, count, memory):
    """Autoregressive series of first order, of mean 0 and deviation 1."""
    values = np.empty(count)
    values[0] = rng.normal()
    steps = rng.normal(0.0, (1 - memory**2) ** 0.5, count)
    for i in range(1, count):
        values[i] = memory * values[i - 1] + steps[i]
    return values


def batches_of(windows):
    return np.array([part.sum() for part in np.array_split(windows, BATCHES)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("memory", "independent_max"),
    [(0.0, 1.0), (0.7, 0.98), (0.95, 0.9), (0.98, 0.75), (0.99, 0.6)],
)
def test_the_interval_holds_for_correlated_requests(memory, independent_max, monkeypatch):
    """It covers the true ratio in some 95 of 100 runs, though queues remember for five batches.

    A batch has 30 windows. With batches that count as independent ever fewer runs are covered.
    """
    rng = np.random.default_rng(5)
    trials, windows = 400, 600
    pairs = []
    for _ in range(trials):
        requests = rng.poisson(100.0, windows).astype(float)
        differences = 0.05 * requests + 3.0 * correlated(rng, windows, memory)
        pairs.append((batches_of(differences), batches_of(requests)))

    def covered_ratio():
        estimates = [ratio_of(*pair) for pair in pairs]
        return np.mean([abs(one.mean - 0.05) <= one.half_width for one in estimates])

    assert 0.91 <= covered_ratio() <= 0.99
    monkeypatch.setattr(paired, "CORRELATED_MIN", BATCHES + 1)
    assert covered_ratio() <= independent_max


def test_an_equal_difference_in_each_batch_has_no_interval():
    estimate = ratio_of(np.full(20, 5.0), np.full(20, 100.0))
    assert estimate.mean == pytest.approx(0.05)
    assert estimate.half_width == pytest.approx(0.0, abs=1e-12)


def test_one_batch_has_no_interval_and_none_no_ratio():
    assert ratio_of(np.array([5.0]), np.array([100.0])).half_width is None
    assert ratio_of(np.array([0.0]), np.array([0.0])) is None
    assert PairedSums.of([]).hit_points() is None


def test_policies_are_compared_with_the_first_one():
    """The differences of hits and costs are those of the table, over all seeds."""
    tight = replace(JOB, scenario=quiet(nodes=2, noise_ratio=0.3, slo_factor=0.6))
    jobs = [
        replace(tight, policy=policy, seed=seed)
        for policy in ("minimum", "random")
        for seed in (1, 2)
    ]
    outcomes = outcomes_of(jobs)
    (difference,) = policy_differences(outcomes)
    assert (difference.policy, difference.against) == ("random", "minimum")
    hits = [outcome.result.hits for outcome in outcomes]
    requests = sum(outcome.result.requests for outcome in outcomes[:2])
    assert difference.hit_points.mean == pytest.approx((sum(hits[2:]) - sum(hits[:2])) / requests)
    assert difference.hit_points.half_width > 0
    dollars = [outcome.result.paid_dollars for outcome in outcomes]
    excess = sum(dollars[2:]) / sum(dollars[:2]) - 1
    assert difference.cost_excess.mean == pytest.approx(excess)


def test_the_warm_up_is_in_no_difference():
    outcomes = outcomes_of([replace(JOB, policy=policy) for policy in ("minimum", "exact")])
    since = [outcome.result.since(3_000.0) for outcome in outcomes]
    sums = PairedSums.of([(since[1], since[0])])
    assert sums.requests.sum() == since[0].requests < JOB.requests
    assert sums.hit_points().mean == pytest.approx(since[1].hit_ratio - since[0].hit_ratio)
    windows = len(since[0].over_time.requests) - ceil(3_000.0 / since[0].over_time.width_ms)
    assert len(sums.requests) == min(BATCHES, windows)


def test_runs_that_are_not_complete_are_not_compared():
    first, second = outcomes_of([replace(JOB, policy=policy) for policy in ("minimum", "exact")])
    assert policy_differences([first, replace(second, failure="stopped")]) == []
