"""Run times as observed: the correction of a function's profile.

A profile is measured once, often on another node and without neighbours. The times of the batches
that end here say how much longer, or shorter, runs take, and how much they vary. Plans, margins and
the sizes of pods use the profile with this correction.

A correction is published in steps, because each one makes plans again. It is an exponentially
weighted mean of observed time / profiled time, and it changes when it differs from the published
one by more than `STEP_RATIO` and by more than chance: `DEVIATIONS` standard errors.
"""

from math import log, sqrt
from typing import NamedTuple

from scheduler.model.documents import FunctionProfile, ProfiledConfiguration
from scheduler.search.margin import P95_Z, quantile_ratio

WINDOW = 100  # runs after which an observation has lost two thirds of its weight
RUNS_MIN = 10  # before the first correction
SPREAD_RUNS_MIN = 50  # before the observed spread replaces the profile's
STEP_RATIO = 0.05
SPREAD_STEP_RATIO = 0.25
DEVIATIONS = 3.0
RATIO_MAX = 4.0  # of one run: a run that hangs must not count as a slow function


class Correction(NamedTuple):
    """Correction of a profile.

    Attributes:
        ratio: observed / profiled mean time.
        spread_ratio: standard deviation / mean of the observed times; None: the profile's.
    """

    ratio: float = 1.0
    spread_ratio: float | None = None

    def configuration(self, profiled: ProfiledConfiguration) -> ProfiledConfiguration:
        """Return a configuration with the times that are expected."""
        if self == _NONE:
            return profiled
        latency_ms = profiled.latency_ms * self.ratio
        if self.spread_ratio is not None:
            p95_ms = latency_ms * max(_p95_ratio(self.spread_ratio), 1.0)
        elif profiled.p95_ms is not None:
            p95_ms = profiled.p95_ms * self.ratio
        else:
            p95_ms = None
        return profiled.model_copy(update={"latency_ms": latency_ms, "p95_ms": p95_ms})

    def profile(self, profile: FunctionProfile) -> FunctionProfile:
        """Return a profile with the times that are expected."""
        if self == _NONE:
            return profile
        gpus = tuple(
            gpu.model_copy(
                update={"configurations": tuple(map(self.configuration, gpu.configurations))}
            )
            for gpu in profile.spec.gpus
        )
        spec = profile.spec.model_copy(update={"gpus": gpus})
        return profile.model_copy(update={"spec": spec})


_NONE = Correction()


class RunTimes:
    """Observed run times of one function's pods.

    Attributes:
        correction: correction that was published last.
        runs: number of runs that were observed.
    """

    __slots__ = ("_mean", "_square", "correction", "runs")

    def __init__(self) -> None:
        self.correction = _NONE
        self.runs = 0
        self._mean = self._square = 0.0  # weighted mean of the ratios, and of their squares

    def observe(self, run_ms: float, profiled_ms: float) -> bool:
        """Record a run; return true if the correction has changed."""
        ratio = min(max(run_ms / profiled_ms, 1.0 / RATIO_MAX), RATIO_MAX)
        self.runs += 1
        weight = 1.0 / min(self.runs, WINDOW)
        self._mean += weight * (ratio - self._mean)
        self._square += weight * (ratio**2 - self._square)
        if self.runs < RUNS_MIN:
            return False
        spread_ratio = sqrt(max(self._square / self._mean**2 - 1.0, 0.0))
        if not (self._is_other_mean(spread_ratio) or self._is_other_spread(spread_ratio)):
            return False
        known_spread = self.runs >= SPREAD_RUNS_MIN
        self.correction = Correction(self._mean, spread_ratio if known_spread else None)
        return True

    def _is_other_mean(self, spread_ratio: float) -> bool:
        error_ratio = spread_ratio / sqrt(min(self.runs, WINDOW))
        step_ratio = max(STEP_RATIO, DEVIATIONS * error_ratio)
        return abs(self._mean / self.correction.ratio - 1.0) > step_ratio

    def _is_other_spread(self, spread_ratio: float) -> bool:
        expected_ratio = self.correction.spread_ratio
        if self.runs < SPREAD_RUNS_MIN or expected_ratio is None:
            return self.runs == SPREAD_RUNS_MIN
        return abs(spread_ratio - expected_ratio) > SPREAD_STEP_RATIO * max(
            expected_ratio, STEP_RATIO
        )


def _p95_ratio(spread_ratio: float) -> float:
    """Return p95 / mean of a log-normal time."""
    return quantile_ratio(P95_Z, sqrt(log(1.0 + spread_ratio**2)))
