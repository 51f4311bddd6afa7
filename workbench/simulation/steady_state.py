"""Start-up transient of a run, and whether the rest is a steady state.

The rule is MSER-5 (White, Cobb and Spratt, "A comparison of five steady-state truncation heuristics
for simulation", WSC 2000). Five windows are a batch. Of a series of batch means, the warm-up is the
prefix without which the rest has the smallest squared standard error of its mean. The minimum is
searched in the first half of the run: a later one means that the run is too short.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

BATCH_WINDOWS = 5
BATCHES_MIN = 20  # fewer: nothing is left out, and the run is too short to be judged
HIT_TOLERANCE_RATIO = 0.01  # of hit ratios of two halves
COST_TOLERANCE_RATIO = 0.05  # of costs of two halves, of the smaller one
GROWTH_RATIO = 1.2  # of mean latencies of two halves
ROUNDING = 1e-15  # of squared relative errors
DEVIATIONS = 3.0  # standard errors: a smaller difference is noise

Verdict: TypeAlias = Literal["steady", "drifting", "growing", "short"]
Series: TypeAlias = NDArray[np.float64]

VERDICTS = {
    "steady": "hit ratio and cost of both halves agree",
    "drifting": "hit ratio or cost of the second half differs",
    "growing": "latencies exceed the SLO and grow: the queues have no steady state",
    "short": "the run is too short to tell",
}


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Judgement of a run.

    Attributes:
        rule: source of the warm-up: MSER-5, given, or none.
        warmup_ms: end of the warm-up, as given or found; requests that arrived before the end of
            its last window are in no count, and what was held is not in the cost.
        verdict: key of `VERDICTS`.
    """

    rule: Literal["MSER-5", "given", "none"]
    warmup_ms: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class OverTime:
    """Requests by window of arrival.

    Attributes:
        width_ms: width of a window.
        requests, hits: number of requests, and of hits, in each window.
        latency_sums_ratio: sums of latency over SLO of the requests that have an answer.
        paid_dollars: cost of what containers held in each window.
    """

    width_ms: float
    requests: tuple[int, ...]
    hits: tuple[int, ...]
    latency_sums_ratio: tuple[float, ...]
    paid_dollars: tuple[float, ...]

    def hit_ratios(self, parts: int) -> list[float]:
        """Return the hit ratios of so many parts of the run; 0 for a part without requests."""
        edges = [round(i * len(self.requests) / parts) for i in range(parts + 1)]
        chunks = [slice(a, b) for a, b in pairwise(edges)]
        return [sum(self.hits[c]) / max(sum(self.requests[c]), 1) for c in chunks]


def judged(over_time: OverTime, warmup_ms: float | None) -> SteadyState:
    """Find the warm-up, unless it is given, and judge the rest."""
    hits = _batches(over_time.hits)
    requests = _batches(over_time.requests)
    latencies = _ratios(_batches(over_time.latency_sums_ratio), requests)
    ratios, costs = _ratios(hits, requests), _batches(over_time.paid_dollars)
    batch_ms = BATCH_WINDOWS * over_time.width_ms
    if warmup_ms is not None:
        cut = min(int(np.ceil(warmup_ms / batch_ms)), len(ratios))
        rule: Literal["MSER-5", "given", "none"] = "given" if warmup_ms else "none"
    elif len(ratios) < BATCHES_MIN:
        return SteadyState("none", 0.0, "short")
    else:
        cut = max(mser(ratios), mser(costs))
        warmup_ms, rule = cut * batch_ms, "MSER-5"
    return SteadyState(rule, warmup_ms, _verdict(ratios[cut:], costs[cut:], latencies[cut:]))


def mser(means: Series) -> int:
    """Return the number of leading batch means whose removal leaves the smallest standard error."""
    count = len(means)
    scaled = means / (np.abs(means).max() or 1.0)
    errors = np.array(
        [
            float(np.square(scaled[cut:] - scaled[cut:].mean()).sum()) / (count - cut) ** 2
            for cut in range(count // 2 + 1)
        ]
    )
    return int(np.flatnonzero(errors <= errors.min() + ROUNDING)[0])


def _verdict(ratios: Series, costs: Series, latencies: Series) -> Verdict:
    half = len(ratios) // 2
    if half < BATCHES_MIN // 4:
        return "short"
    if _differ(latencies, (GROWTH_RATIO - 1.0) * float(latencies[:half].mean())) and (
        latencies[half:].mean() > max(1.0, latencies[:half].mean())
    ):
        return "growing"
    cost_tolerance = COST_TOLERANCE_RATIO * min(costs[:half].mean(), costs[half:].mean())
    if _differ(ratios, HIT_TOLERANCE_RATIO) or _differ(costs, float(cost_tolerance)):
        return "drifting"
    return "steady"


def _differ(means: Series, tolerance: float) -> bool:
    """Return true if the means of both halves differ by more than the tolerance and by noise."""
    half = len(means) // 2
    first, second = means[:half], means[half:]
    error = float(np.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second)))
    return abs(float(second.mean() - first.mean())) > max(tolerance, DEVIATIONS * error)


def _batches(windows: Sequence[float]) -> Series:
    """Sum every five windows; the last window, which is not whole, counts in none."""
    count = (len(windows) - 1) // BATCH_WINDOWS
    if count < 1:
        return np.empty(0)
    listed = np.array(windows[: count * BATCH_WINDOWS], np.float64)
    return np.asarray(listed.reshape(count, BATCH_WINDOWS).sum(axis=1), np.float64)


def _ratios(sums: Series, counts: Series) -> Series:
    """Divide; a batch without requests has the ratio of all."""
    overall = float(sums.sum() / counts.sum()) if counts.sum() else 0.0
    ratios = np.full(len(sums), overall)
    np.divide(sums, counts, out=ratios, where=counts > 0)
    return ratios
