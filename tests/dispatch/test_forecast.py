"""Forecast of the next request, and of the start of a container for it."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.dispatch.forecast import WEIGHT, Forecast


def test_one_arrival_predicts_nothing():
    forecast = Forecast()
    forecast.arrived(5.0)
    assert forecast.start_at_ms(0.0, 1_000.0) == inf


@given(interval_ms=st.floats(0.1, 1e6), count=st.integers(2, 20), planned_ms=st.floats(0.0, 1e4))
def test_steady_stream_is_predicted(interval_ms, count, planned_ms):
    """The next arrival is one interval on; the start is one cold start before the stage's time."""
    forecast = Forecast()
    for i in range(count):
        forecast.arrived(i * interval_ms)
    expected_ms = count * interval_ms + planned_ms - 2_000.0
    assert forecast.start_at_ms(planned_ms, 2_000.0) == pytest.approx(expected_ms, rel=1e-9, abs=1)


def test_mean_follows_the_newest_intervals():
    """The mean is exponentially weighted, from the first interval on."""
    forecast = Forecast()
    for when_ms in (0.0, 100.0, 300.0):
        forecast.arrived(when_ms)
    assert forecast.mean_ms == pytest.approx(100.0 + WEIGHT * 100.0)
    assert forecast.next_ms == pytest.approx(300.0 + forecast.mean_ms)
