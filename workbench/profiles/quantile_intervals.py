"""Confidence intervals of quantiles by order statistics, without an assumption on the times."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

Interval = tuple[float, float]


def quantile_interval(
    ordered: Sequence[float], quantile: float, confidence: float
) -> Interval | None:
    """Return an interval that contains the quantile with at least that probability.

    Its ends are two of the values, which are independent. The number of values below the quantile
    is binomial, and each end is exceeded with at most half of the remaining probability.

    Args:
        ordered: values in ascending order.
        quantile: part of the distribution, as in 0.95.
        confidence: least probability, as in 0.95.

    Returns:
        None: there are too few values. A 95th percentile at 95 % needs 72.
    """
    ranks = _ranks(len(ordered), quantile, confidence)
    return None if ranks is None else (ordered[ranks[0]], ordered[ranks[1]])


@lru_cache(maxsize=1024)
def _ranks(count: int, quantile: float, confidence: float) -> tuple[int, int] | None:
    """Return the indices of the two values."""
    tail = (1 - confidence) / 2
    # P(at most k of the values are below the quantile), k = 0, 1, …, count
    ones = np.arange(1, count + 1)
    choices = np.concatenate([[0.0], np.cumsum(np.log(count + 1 - ones) - np.log(ones))])
    below = np.arange(count + 1)
    logs = choices + below * np.log(quantile) + (count - below) * np.log1p(-quantile)
    probability = np.cumsum(np.exp(logs))
    low = int(np.searchsorted(probability, tail, side="right")) - 1
    high = int(np.searchsorted(probability, 1 - tail))
    return (low, high) if low >= 0 and high < count else None
