"""Times of one batch size: enough runs for the intervals of the median and the 95th percentile."""

import time
from bisect import insort
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import fmean, pstdev

import numpy as np

from workbench.profiles.quantile_intervals import Interval, quantile_interval

P95 = 0.95
_MORE_RUNS = 1.25  # before the next look at the intervals: each look adds to the error probability
_TIMED_MIN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The end of the runs of one batch size.

    Attributes:
        error_ratio: largest half width of both intervals, as a part of the quantile.
        confidence: probability of each interval at a given number of runs.
        runs_min: runs before the intervals are first looked at.
        runs_max: largest number of runs.
        limit_s: longest time of the runs, in seconds.
        warm_up_runs: runs before them, whose times do not count.
    """

    error_ratio: float = 0.02
    confidence: float = 0.95
    runs_min: int = 100
    runs_max: int = 10_000
    limit_s: float = 30.0
    warm_up_runs: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimes:
    """Times of the runs of one batch size.

    Attributes:
        runs: number of runs.
        median_interval_ms, p95_interval_ms: confidence intervals; None: too few runs.
        cv_ratio: coefficient of variation: standard deviation over mean.
        is_precise: true if both intervals are as narrow as requested.
    """

    runs: int
    median_ms: float
    p95_ms: float
    median_interval_ms: Interval | None
    p95_interval_ms: Interval | None
    cv_ratio: float
    is_precise: bool


async def measure_batch(
    run: Callable[[], Awaitable[object]],
    precision: Precision,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> BatchTimes:
    """Run batches one after the other until both intervals are narrow, or a limit is reached.

    Args:
        run: runs one batch.
        precision: end of the runs.
        clock: monotonic clock, in seconds.
    """
    for _ in range(precision.warm_up_runs):
        await run()
    ordered_ms: list[float] = []
    first_s = clock()
    look = min(precision.runs_min, precision.runs_max)
    while True:
        begin_s = clock()
        await run()
        end_s = clock()
        insort(ordered_ms, 1000 * (end_s - begin_s))
        runs = len(ordered_ms)
        is_last = runs >= precision.runs_max or (
            end_s - first_s >= precision.limit_s and runs >= _TIMED_MIN
        )
        if runs >= look or is_last:
            times = _times(ordered_ms, precision)
            if times.is_precise or is_last:
                return times
            look = min(int(_MORE_RUNS * runs), precision.runs_max)


def _times(ordered_ms: list[float], precision: Precision) -> BatchTimes:
    median_ms, p95_ms = map(float, np.quantile(ordered_ms, [0.5, P95]))
    intervals = [
        quantile_interval(ordered_ms, quantile, precision.confidence) for quantile in (0.5, P95)
    ]
    return BatchTimes(
        runs=len(ordered_ms),
        median_ms=median_ms,
        p95_ms=p95_ms,
        median_interval_ms=intervals[0],
        p95_interval_ms=intervals[1],
        cv_ratio=pstdev(ordered_ms) / fmean(ordered_ms),
        is_precise=all(
            interval is not None
            and (interval[1] - interval[0]) / 2 <= precision.error_ratio * quantile_ms
            for interval, quantile_ms in zip(intervals, (median_ms, p95_ms), strict=True)
        ),
    )
