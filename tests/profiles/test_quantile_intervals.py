"""Intervals of quantiles, compared with scipy's binomial distribution."""

import pytest
from scipy.special import bdtr, bdtrc

from workbench.profiles.quantile_intervals import quantile_interval


@pytest.mark.parametrize("quantile", [0.5, 0.95])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_is_the_narrowest_interval_with_equal_tails(quantile, confidence):
    """The quantile is outside each end with at most half of the rest, and a closer end has more."""
    tail = (1 - confidence) / 2
    for count in (1, 7, 50, 72, 100, 997):
        interval = quantile_interval(range(count), quantile, confidence)
        if interval is None:
            outside = bdtr(0, count, quantile), bdtrc(count - 1, count, quantile)
            assert max(outside) > tail
            continue
        low, high = interval
        assert bdtr(low, count, quantile) <= tail < bdtr(low + 1, count, quantile)
        assert bdtrc(high, count, quantile) <= tail < bdtrc(high - 1, count, quantile)


def test_runs_that_a_95th_percentile_needs():
    """Its interval at 95 % exists from 72 values on, as the documentation says."""
    assert quantile_interval(range(71), 0.95, 0.95) is None
    assert quantile_interval(range(72), 0.95, 0.95) == (63, 71)
