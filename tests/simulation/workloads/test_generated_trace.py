"""The generated trace: the same for all, and of the shape that it says."""

import numpy as np
import pytest

from tests.simulation.workloads.arriving import WORKFLOWS, collected
from workbench.simulation.workloads.arrivals import Extent
from workbench.simulation.workloads.generated import Generated

DAY = 1440


def counts(**parameters):
    """Each function's requests per minute, in the order of popularity."""
    trace = Generated(**parameters)._trace()
    rows = list(trace.rows())
    assert trace.functions() == [name for name, _ in rows] == sorted(name for name, _ in rows)
    return np.array([row for _, row in rows])


def test_it_is_always_the_same():
    """Until its seed is another, and whatever the seed of the run."""
    assert (counts() == counts()).all()
    assert (counts() != counts(trace_seed=5)).any()
    extent = Extent(duration_ms=30 * 60_000.0)
    totals = [
        np.bincount((collected(arrivals)[0] // 60_000).astype(int), minlength=30).tolist()
        for seed in (1, 2)
        for arrivals in [Generated().arrivals(WORKFLOWS, seed=seed, extent=extent)]
    ]
    assert totals[0] == totals[1] == counts()[:, :30].sum(axis=0).tolist()


def test_a_few_functions_have_most_of_the_requests():
    """Roughly as in the sample of the module docstring."""
    totals = np.sort(counts().sum(axis=1))[::-1]
    assert totals.sum() / DAY == pytest.approx(708, rel=0.1)
    assert 0.7 < totals[0] / totals.sum() < 0.85
    assert 0.95 < totals[:10].sum() / totals.sum() < 0.99


@pytest.mark.parametrize("exponent", [0.0, 1.0, 3.0])
def test_popularity_follows_the_exponent(exponent):
    """For functions without a timer and without bursts."""
    trace_counts = counts(exponent=exponent, functions=4, timer_ratio=0.0, bursty_ratio=0.0, days=3)
    means = trace_counts.mean(axis=1)
    assert means / means[0] == pytest.approx(np.arange(1.0, 5.0) ** -exponent, rel=0.1)


def test_the_day_has_a_peak():
    """At 17:00, twelve hours after its trough."""
    total = counts(diurnal_ratio=0.5, timer_ratio=0.0, bursty_ratio=0.0, days=2).sum(axis=0)
    hours = total.reshape(2, 24, 60).mean(axis=(0, 2))
    assert 15 <= hours.argmax() <= 18
    assert 3 <= hours.argmin() <= 6
    assert hours.max() / hours.min() == pytest.approx(3.0, rel=0.2)


def test_timers_meet_at_multiples_of_their_period():
    """All but the first function, each with as many requests at a time, few where not always."""
    trace_counts = counts(timer_ratio=1.0)
    assert len(set(trace_counts[0].tolist())) > 10
    periods = set()
    for row in trace_counts[1:]:
        fires = np.flatnonzero(row)
        (period,) = set(np.diff(fires).tolist())
        assert fires[0] == 0
        assert len(set(row[fires].tolist())) == 1
        assert period == 1 or row.max() <= 80
        periods.add(period)
    assert periods == {1, 5, 15, 60}


def test_bursts_come_and_go():
    """All but the first function are silent most of the time, and on average as popular."""
    trace_counts = counts(bursty_ratio=1.0, timer_ratio=0.0, exponent=0.0, functions=20)
    assert (trace_counts[0] > 0).all()
    assert (trace_counts[1:] == 0).mean() == pytest.approx(10 / 12, abs=0.03)
    assert trace_counts[1:].mean() == pytest.approx(708 / 20, rel=0.1)
    dispersion = trace_counts[1:].var(axis=1) / trace_counts[1:].mean(axis=1)
    assert dispersion.min() > 50


def test_the_second_day_is_like_the_first_but_not_the_same():
    """A longer trace goes on."""
    trace_counts = counts(days=2)
    assert trace_counts.shape == (100, 2 * DAY)
    assert (trace_counts[:, :DAY] != trace_counts[:, DAY:]).any()
    assert trace_counts[:, DAY:].sum() == pytest.approx(trace_counts[:, :DAY].sum(), rel=0.1)
