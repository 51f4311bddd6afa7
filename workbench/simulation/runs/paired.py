"""Differences of two policies on the same requests, with intervals.

Both runs serve the same requests, so their outcomes are compared request by request. Neighbouring
requests share queues and containers: an interval that took them as independent would be too narrow.
So the requests after the warm-up are divided by arrival into batches, and the interval is that of a
ratio over batches (Student's t). Batches of several seeds are taken together.

Near saturation a queue remembers for longer than a batch. The correlation of neighbouring batches
shows it, and widens the interval as for an autoregressive series of first order: the variance of
the mean is larger by (1 + r) / (1 - r), and there are as many times fewer degrees of freedom.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from workbench.simulation.result import Result
from workbench.simulation.runs.job import Outcome

BATCHES = 20  # per run: enough for an interval, and long enough to be nearly independent
CONFIDENCE = 0.95
CORRELATED_MIN = 9  # batches; with fewer a correlation cannot be told from chance
CORRELATION_MAX = 0.9

Sums = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PairedEstimate:
    """A ratio, and half of its 95 % confidence interval.

    Attributes:
        half_width: half of the interval; None with fewer than two batches.
    """

    mean: float
    half_width: float | None


@dataclass(frozen=True, slots=True)
class PairedSums:
    """Sums over each batch of requests of a policy (`a`) and of the one it is compared with (`b`).

    Attributes:
        requests: number of requests.
        hits_a, hits_b: requests within their SLO.
        dollars_a, dollars_b: cost of what containers held; after the last arrival, of the last
            batch.
    """

    requests: Sums
    hits_a: Sums
    hits_b: Sums
    dollars_a: Sums
    dollars_b: Sums

    @classmethod
    def of(cls, pairs: Iterable[tuple[Result, Result]]) -> "PairedSums":
        """Sum over the batches of pairs of runs; each pair has equal requests and warm-ups."""
        parts = [_batches(a, b) for a, b in pairs]
        if not parts:
            return cls(*np.empty((5, 0)))
        return cls(*np.concatenate(parts, axis=1))

    def hit_points(self) -> PairedEstimate | None:
        """Estimate the difference of the hit ratios; None without requests."""
        return ratio_of(self.hits_a - self.hits_b, self.requests)

    def hit_excess(self) -> PairedEstimate | None:
        """Estimate the relative excess of hits; None without hits to compare with."""
        return ratio_of(self.hits_a - self.hits_b, self.hits_b)

    def cost_excess(self) -> PairedEstimate | None:
        """Estimate the relative excess of cost; None without a cost to compare with."""
        return ratio_of(self.dollars_a - self.dollars_b, self.dollars_b)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDifference:
    """Difference of a policy from the first one of its setting.

    Attributes:
        hit_points: difference of the hit ratios.
        cost_excess: relative excess of cost.
    """

    setting: str
    policy: str
    against: str
    hit_points: PairedEstimate
    cost_excess: PairedEstimate


def policy_differences(outcomes: Sequence[Outcome]) -> list[PolicyDifference]:
    """Compare each policy with the first one of its setting, over the seeds of both.

    Runs that are not complete served other requests, and are left out.
    """
    settings: dict[str, dict[str, dict[int, Result]]] = {}
    for outcome in outcomes:
        if outcome.result is not None and outcome.whole:
            policies = settings.setdefault(outcome.job.setting, {})
            policies.setdefault(outcome.job.policy, {})[outcome.job.seed] = outcome.result
    differences = []
    for setting, policies in settings.items():
        (first, bases), *others = policies.items()
        for policy, runs in others:
            seeds = [seed for seed in runs if seed in bases]
            sums = PairedSums.of((runs[seed], bases[seed]) for seed in seeds)
            points, excess = sums.hit_points(), sums.cost_excess()
            if points is not None and excess is not None:
                differences.append(
                    PolicyDifference(
                        setting=setting,
                        policy=policy,
                        against=first,
                        hit_points=points,
                        cost_excess=excess,
                    )
                )
    return differences


def ratio_of(numerators: Sums, denominators: Sums) -> PairedEstimate | None:
    """Estimate a ratio of sums over batches; None where the denominators sum up to nothing."""
    total = float(denominators.sum())
    if total <= 0.0:
        return None
    ratio = float(numerators.sum()) / total
    count = len(denominators)
    if count < 2:  # noqa: PLR2004 - no spread
        return PairedEstimate(ratio, None)
    from scipy.special import stdtrit  # noqa: PLC0415 - of the extra

    residuals = numerators - ratio * denominators
    correlation = _correlation(residuals)
    excess = (1.0 + correlation) / (1.0 - correlation)
    error = sqrt(count / (count - 1) * float(np.square(residuals).sum()) * excess) / total
    freedom = max((count - 1) / excess, 1.0)
    return PairedEstimate(ratio, float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error)


def _correlation(residuals: Sums) -> float:
    """Return the correlation of neighbouring batches, without the bias of so few; 0 at least."""
    count, squares = len(residuals), float(np.square(residuals).sum())
    if count < CORRELATED_MIN or not squares:
        return 0.0
    observed = float((residuals[1:] * residuals[:-1]).sum()) / squares
    # Its mean is below the true one by (1 + 4 r) / n (Marriott and Pope, Biometrika 1954).
    corrected = (observed + 1.0 / count) / (1.0 - 4.0 / count)
    return min(max(corrected, 0.0), CORRELATION_MAX)


def _batches(a: Result, b: Result) -> NDArray[np.float64]:
    """Return requests, hits and dollars of both by batch of windows after the warm-up."""
    cut = ceil(a.steady_state.warmup_ms / a.over_time.width_ms)
    sums = (a.over_time.requests, a.over_time.hits, b.over_time.hits)
    windows = np.array([*(one[cut:] for one in sums), _paid(a, cut), _paid(b, cut)], np.float64)
    count = min(BATCHES, windows.shape[1])
    parts = np.array_split(windows, count, axis=1) if count else []
    return np.array([part.sum(axis=1) for part in parts]).reshape(count, len(windows)).T


def _paid(result: Result, cut: int) -> Sums:
    """Return the dollars of each window; the last has what was paid until the last answer."""
    dollars = np.array(result.over_time.paid_dollars[cut:])
    if len(dollars):
        dollars[-1] += result.paid_dollars - dollars.sum()
    return dollars
