"""Dispersion of arrivals, from the number of rows at each look."""

import numpy as np
import pytest

from scheduler.dispatch.dispersion import RATIO_MAX, RATIO_MIN, Dispersion


def dispersion_of(counts, period_ms=1_000.0):
    """Return the dispersion after looks with these numbers of new rows."""
    dispersion = Dispersion()
    dispersion.record(0, 0.0)
    for number, arrived in enumerate(np.cumsum(counts), 1):
        dispersion.record(int(arrived), number * period_ms)
    return dispersion.ratio


def test_without_arrivals_it_is_that_of_a_poisson_process():
    assert Dispersion().ratio == 1.0
    assert dispersion_of([0] * 100) == 1.0


def test_a_poisson_process_has_one():
    """The mean over many processes, at any rate."""
    rng = np.random.default_rng(0)
    for mean in (0.5, 20.0):
        ratios = [dispersion_of(rng.poisson(mean, 300)) for _ in range(200)]
        assert np.mean(ratios) == pytest.approx(1.0, abs=0.05)


def test_rows_that_come_together_have_more():
    """Pairs of rows at the times of a Poisson process have twice its dispersion."""
    rng = np.random.default_rng(0)
    ratios = [dispersion_of(2 * rng.poisson(10.0, 300)) for _ in range(200)]
    assert np.mean(ratios) == pytest.approx(2.0, abs=0.1)


def test_regular_arrivals_have_the_least():
    assert dispersion_of([10] * 300) == RATIO_MIN


def test_a_rate_that_rises_slowly_is_no_dispersion():
    assert dispersion_of(range(10, 310)) == RATIO_MIN


def test_a_step_of_the_rate_is_bounded():
    assert dispersion_of([5] * 60 + [500] * 2) == RATIO_MAX


def test_looks_that_are_too_soon_or_too_late_are_no_counts():
    """Only looks about a second apart count the same time."""
    dispersion = Dispersion()
    for number in range(1_000):
        dispersion.record(number, 100.0 * number)  # ten looks a second
    assert dispersion.ratio == RATIO_MIN
    late = Dispersion()
    for number in range(100):
        late.record(number**2, 5_000.0 * number)
    assert late.ratio == 1.0


def test_a_number_that_begins_again_is_no_count():
    """Workflows that use the function were removed."""
    dispersion = Dispersion()
    for number in range(100):
        dispersion.record(10 * (number % 50), 1_000.0 * number)
    assert dispersion.ratio == RATIO_MIN
