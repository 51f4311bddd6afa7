"""Margin of a plan: the part of the remaining time that is reserved for run times that vary.

A plan adds mean times. The sum of the times that will be observed exceeds them in almost half of
all requests, so the plan must end earlier than the deadline. The margin m is chosen so that the
objective is met: ``budget = remaining time / (1 + m)``.

Assumptions: run times are log-normal and independent of one another. A profile's p95 then gives the
standard deviation of a time, relative to its mean. Along the longest path of the remaining stages
means add, and variances add, so the relative deviation of a sum of n equal stages is that of one
stage divided by the square root of n. The sum is taken as log-normal with this mean and variance
(Fenton, "The sum of log-normal probability distributions in scatter transmission systems", 1960),
and ``1 + m`` is its quantile at the objective, divided by the planned time.

- **Later stages are planned again** with the time that is left, and each has its own, larger margin
  then, up to the whole deviation of one stage for the last. So a plan does not pay for the
  deviation of every stage (their sum), only for that of the sum.
- **Parallel paths**: a request is late if any path through the stages that have not ended is late.
  The time of a path rises with each of its stages' times, and these are independent, so the paths
  are positively associated: all of n are in time at least as often as n independent ones would be
  (Esary, Proschan, Walkup, "Association of random variables, with applications", 1967). Each path
  therefore has the objective ``objective ** (1 / n)``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, expm1, log, sqrt
from statistics import NormalDist

_NORMAL = NormalDist()
P95_Z = _NORMAL.inv_cdf(0.95)


def log_normal_spread_ratio(p95_ratio: float) -> float:
    """Return standard deviation / mean of a log-normal time whose p95 / mean is known.

    It is the inverse of `quantile_ratio`: ``ln(p95 / mean) = 1.645 sigma - sigma**2 / 2``. No
    log-normal time has a p95 above 3.87 means; a larger ratio counts as that.
    """
    return sqrt(exp(log_normal_sigma(p95_ratio) ** 2) - 1.0)


def log_normal_sigma(p95_ratio: float) -> float:
    """Return the deviation of the logarithm of a log-normal time whose p95 / mean is known."""
    return P95_Z - sqrt(max(0.0, P95_Z**2 - 2.0 * log(max(1.0, p95_ratio))))


def quantile_ratio(z_score: float, sigma: float) -> float:
    """Return quantile / mean of a log-normal time; sigma is the deviation of its logarithm."""
    return exp(z_score * sigma - sigma**2 / 2.0)


@dataclass(frozen=True, slots=True)
class PathStage:
    """A stage of the longest path.

    Attributes:
        weight: part of the stage in the mean time of the path; the weights of a path have the sum
            1.
        spread_ratio: standard deviation / mean of its time, by the profile.
        planned_ratio: planned time / mean time; above 1 where plans use 95th percentiles.
    """

    weight: float
    spread_ratio: float
    planned_ratio: float = 1.0


@dataclass(frozen=True)
class Margin:
    """Rule of one stage's margin.

    Attributes:
        path: longest path from the stage to an end of the workflow.
        objective_ratio: ratio of requests that must be in time.
        paths: number of paths through the stage, those after it, and those parallel to it.
    """

    path: Sequence[PathStage]
    objective_ratio: float
    paths: int = 1

    @cached_property
    def ratio(self) -> float:
        """The margin as a ratio of the planned time; at least 0."""
        mean = sum(stage.weight for stage in self.path)
        planned = sum(stage.weight * stage.planned_ratio for stage in self.path)
        variance = sum((stage.weight * stage.spread_ratio) ** 2 for stage in self.path)
        sigma = sqrt(log(1.0 + variance / mean**2))
        late_ratio = -expm1(log(self.objective_ratio) / self.paths)  # of one path
        z_score = -_NORMAL.inv_cdf(late_ratio)
        return max(0.0, mean * quantile_ratio(z_score, sigma) / planned - 1.0)
