"""FaST-GShare: for each function, containers of its most efficient configuration and a final one.

Source: "FaST-GShare: Enabling Efficient Spatio-Temporal GPU Sharing in Serverless Computing for
Deep Learning Inference", Gu et al., ICPP 2023 (arXiv 2309.00558). Our
reconstruction from descriptions of it and of the ESG paper, which compares with it.

The rule. Every 10 s, for each function, the request rate is compared with the capacity of its
containers:

- More than 20 % of the rate is not served: add containers of the configuration with the highest
  throughput for its resources while they are fully used by the gap, and for the rest of the gap one
  container of the smallest configuration that serves it.
- The capacity exceeds the rate by more than 20 %: the least efficient containers end, as far as the
  others still serve the rate.
- In between nothing changes.

`fast-gshare-code` follows the public FaST-GShare-Autoscaler, as described to us: the 20 % are of
the capacity, in both directions, and containers run one request at a time.

A configuration qualifies if it meets the function's part of the SLO. A free container takes the
queued jobs, up to its batch, without waiting for more.

Differences from the paper:

- The paper gives a function a rectangle of a GPU, its share times a quota of time, and packs
  rectangles. Here a container has its share all the time, and the engine's placement packs shares.
- Throughput per resource weights a vCPU and a GPU share by their prices; the paper uses the
  rectangle alone.
- The paper has no workflow: a stage's part of the SLO follows from dominators and ANL.
- It is not known to us whether the paper's configurations have batches. Here a batch of more than
  one may take at most half of the function's part; the other half passes while it fills.
- It is not known to us what the paper's 20 % refer to; we apply them to the rate.
- A function that several workflows share has one pool, and the shortest of its stages' parts.
- If no configuration meets the function's part, the cheapest within 5 % of the fastest runs.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from scheduler.model.plan import Candidate
from workbench.simulation.policies.autoscaling import (
    RATE_MIN,
    AutoscalingPolicy,
    ContainerCounts,
    Instance,
    capacity_rps,
    within_part,
    without_spare,
)

TOLERANCE = 0.2  # of the rate or of the capacity, in both directions


class FastGshare(AutoscalingPolicy):
    """The policy described in the module's docstring."""

    name: ClassVar[str] = "fast-gshare"
    rescale_ms: ClassVar[float] = 10_000.0

    def _usable(self, candidates: Sequence[Candidate], part_ms: float) -> Iterable[Instance]:
        return [self._instance(candidate) for candidate in within_part(candidates, part_ms)]

    def _desired(
        self, usable: Sequence[Instance], counts: ContainerCounts, rate_rps: float
    ) -> ContainerCounts:
        held_rps = capacity_rps(counts)
        gap_rps = rate_rps - held_rps
        tolerance_rps = TOLERANCE * self._base_rps(rate_rps, held_rps)
        if gap_rps > tolerance_rps:
            return counts + scaled_out(usable, gap_rps)
        if gap_rps < -tolerance_rps:
            return without_spare(counts, rate_rps)
        return counts

    @staticmethod
    def _base_rps(rate_rps: float, held_rps: float) -> float:  # noqa: ARG004 - for the override
        """Return what the tolerance is a part of."""
        return rate_rps


class FastGshareCode(FastGshare):
    """The rule of the public autoscaler."""

    name: ClassVar[str] = "fast-gshare-code"

    def _usable(self, candidates: Sequence[Candidate], part_ms: float) -> Iterable[Instance]:
        smallest = min(candidate.configuration.batch for candidate in candidates)
        single = [c for c in candidates if c.configuration.batch == smallest]
        return super()._usable(single, part_ms)

    @staticmethod
    def _base_rps(rate_rps: float, held_rps: float) -> float:  # noqa: ARG004 - as above
        """Return what the tolerance is a part of."""
        return held_rps


def scaled_out(usable: Sequence[Instance], gap_rps: float) -> ContainerCounts:
    """Choose containers for a rate that is not served yet."""
    best = max(usable, key=lambda instance: (instance.efficiency_ratio, -instance.dollars_per_hour))
    count, rest_rps = divmod(gap_rps, best.max_rps)  # exact: the rest is less than the divisor
    added = ContainerCounts({best: int(count)})
    if rest_rps > RATE_MIN:
        sufficient = [instance for instance in usable if instance.max_rps >= rest_rps]
        added[min(sufficient, key=lambda instance: instance.size)] += 1
    return added
