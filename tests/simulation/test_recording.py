"""Aggregates whose size no number of requests changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.harness import Listed, Poisson, one_function, quiet, run
from workbench.simulation import loop
from workbench.simulation.counts import BIN_RATIO, BINS, BINS_GROW, Latency, bin_end_ratio, bin_of
from workbench.simulation.engine import simulate
from workbench.simulation.recorder import UtilisationTrace


@given(
    changes=st.lists(st.tuples(st.floats(0.0, 300_000.0), st.integers(0, 100)), max_size=30),
    tail_ms=st.floats(0.0, 1_000.0),
)
def test_the_fill_is_the_mean_over_time(changes, tail_ms):
    """Whatever the buckets, together they hold the whole integral; their number is bounded."""
    fill = UtilisationTrace(100)
    now_ms, area, held = 0.0, 0.0, 0
    for gap_ms, level in changes:
        area += held * gap_ms
        now_ms += gap_ms
        fill.add(now_ms, level - held)
        held = level
    area += held * tail_ms
    now_ms += tail_ms
    buckets = fill.until(now_ms)
    assert len(buckets) <= 513
    assert all(-1e-9 <= mean <= 1.0 + 1e-9 for mean in buckets)
    widths_ms = [fill.bucket_ms] * len(buckets)
    if buckets:
        widths_ms[-1] = now_ms - fill.bucket_ms * (len(buckets) - 1)
    total = sum(mean * width_ms for mean, width_ms in zip(buckets, widths_ms, strict=True))
    assert total == pytest.approx(area / 100.0, rel=1e-6, abs=1e-6)


@given(ratios=st.lists(st.floats(0.0, 12.0) | st.floats(0.0, 1e7), min_size=1, max_size=200))
def test_quantiles_to_half_a_bin(ratios):
    """Quantiles of a histogram equal those of the values; beyond its end, the longest."""
    counts = [0] * BINS
    for ratio in ratios:
        counts[bin_of(ratio)] += 1
    latency = Latency(tuple(counts), 0.0, max(ratios))
    for wanted in (0.5, 0.9, 0.99, 1.0):
        exact = float(np.quantile(ratios, wanted, method="inverted_cdf"))
        if bin_of(exact) < BINS - 1:
            recording = latency.quantile(wanted)
            assert recording == pytest.approx(exact, abs=BIN_RATIO, rel=BINS_GROW - 1.0)
        else:
            assert latency.quantile(wanted) == max(ratios)


@given(st.floats(0.0, 1e6))
def test_a_bin_holds_what_is_between_its_ends(ratio):
    """But for rounding at the ends themselves."""
    place = bin_of(ratio)
    begin = bin_end_ratio(place - 1) if place else 0.0
    assert begin * (1 - 1e-12) <= ratio <= bin_end_ratio(place) * (1 + 1e-12)


def test_each_workflow_is_told_by_itself():
    recording = run(quiet(), one_function([(1, 1, 100, 600)]), Listed([0.0, 100.0, 5_000.0]))
    (alone,) = recording.result.workflows
    assert (alone.namespace, alone.name, alone.slo_ms) == ("default", "w", 1_000.0)
    assert (alone.hits, alone.misses, alone.requests) == (2, 1, 3)
    assert alone.ran_dollars == recording.result.ran_dollars
    assert alone.latency == recording.result.latency
    assert recording.result.dollars_per_thousand == pytest.approx(
        recording.result.paid_dollars / 3 * 1_000
    )


def test_progress_is_told_now_and_then(monkeypatch):
    monkeypatch.setattr(loop, "PROGRESS_EVERY", 500)
    seen = []
    simulate(
        quiet(),
        one_function([(1, 1, 100, 1)]),
        Poisson(2.0, seed=1),
        "minimum",
        requests=1_000,
        observers=loop.Observers(progress=lambda ended, now_ms: seen.append((ended, now_ms))),
    )
    assert [ended for ended, _ in seen] == [500, 1_000]
    assert 0 < seen[0][1] < seen[1][1]
