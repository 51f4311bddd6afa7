"""Number of runs of a batch size, and the times that follow, in virtual time."""

import asyncio

import numpy as np
import pytest

from tests.virtual_loop import run_virtually
from workbench.profiles.batch_times import Precision, measure_batch
from workbench.simulation.rng import Noise

MEDIAN_MS = 40.0


def measured(precision, *, noise_ratio=0.03, seed=0, first_ms=()):
    """Measure runs of a known median with log-normal noise; the first ones take other times."""
    noise = Noise(np.random.default_rng(seed), noise_ratio)
    first = iter(first_ms)

    async def run():
        await asyncio.sleep(next(first, MEDIAN_MS * noise.take_factor()) / 1000)

    async def scenario():
        return await measure_batch(run, precision, clock=asyncio.get_running_loop().time)

    return run_virtually(scenario())


def test_medians_of_a_hundred_runs_are_within_two_percent():
    """With 3 % noise a hundred runs give the median within 2 % in each of 100 measurements."""
    precision = Precision(runs_max=100, warm_up_runs=0)
    for seed in range(100):
        times = measured(precision, seed=seed)
        assert times.runs == 100
        assert times.median_ms == pytest.approx(MEDIAN_MS, rel=0.02)
        assert times.cv_ratio == pytest.approx(0.03, rel=0.4)


def test_runs_end_when_both_intervals_are_narrow():
    """Noisier times need more runs; then both intervals are within the requested error."""
    quiet, noisy = (measured(Precision(), noise_ratio=ratio) for ratio in (0.03, 0.1))
    assert quiet.runs < noisy.runs
    for times in (quiet, noisy):
        assert times.is_precise
        for interval, quantile_ms in (
            (times.median_interval_ms, times.median_ms),
            (times.p95_interval_ms, times.p95_ms),
        ):
            assert interval[0] <= quantile_ms <= interval[1]
            assert (interval[1] - interval[0]) / 2 <= 0.02 * quantile_ms


def test_limit_of_time():
    """The run during which the limit is reached is the last; the result says so."""
    times = measured(Precision(limit_s=1.0), noise_ratio=0.0)
    assert times.runs == 25
    assert times.p95_interval_ms is None
    assert not times.is_precise


def test_warm_up_runs_do_not_count():
    """A slow first run changes neither median nor 95th percentile."""
    times = measured(Precision(warm_up_runs=1), noise_ratio=0.0, first_ms=[5_000.0])
    assert times.p95_ms == pytest.approx(MEDIAN_MS)
