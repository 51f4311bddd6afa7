"""FaST-GShare: for each function, containers of its most efficient configuration, and a last one.

Source: "FaST-GShare: Enabling Efficient Spatio-Temporal GPU Sharing in Serverless Computing for
Deep Learning Inference", Gu et al., ICPP 2023 (arXiv 2309.00558). Derived anew from descriptions of
it, and of the ESG paper, which compares with it.

The rule. Every 10 s, for each function, the rate of requests is held against what its containers
serve at most:

- More than 20 % of the rate is not served: as many containers of the configuration with the most
  throughput for its resources as the gap has room for, and for the rest of the gap one of the
  smallest configuration that serves it.
- More than 20 % of the rate is served in vain: the least efficient end, as far as the rest still
  serves the rate.
- In between nothing changes.

A configuration counts if it keeps the function's part of the SLO. A free container takes what is
queued, up to its batch, without waiting for more.

Where this departs:

- The paper gives a function a rectangle of a GPU, its share times a quota of time, and fits
  rectangles. Here a container has its share all the time, and the engine's placement packs shares.
- Throughput per resource counts a vCPU and a share of a GPU by their prices; the paper's by the
  rectangle alone.
- The paper has no workflow: a stage's part of the SLO is that by dominators and ANL.
- Whether the paper's configurations have batches is not known to us. Here a batch of more than one
  must take no more than half of the function's part: the other half goes by while it fills.
- What the 20 % are of is not known to us; we take the rate.
- Where no configuration keeps the function's part, its fastest does what it can.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from scheduler.model.plan import Candidate
from workbench.simulation.policies.keeping import (
    RATE_MIN,
    Instance,
    KeepingPolicy,
    Kept,
    capacity_rps,
    within_part,
    without_spare,
)

TOLERANCE = 0.2  # of the rate, either way


class FastGshare(KeepingPolicy):
    """The policy as the module's docstring has it."""

    name: ClassVar[str] = "fast-gshare"
    rescale_ms: ClassVar[float] = 10_000.0

    def _usable(self, candidates: Sequence[Candidate], part_ms: float) -> Iterable[Instance]:
        return [self._instance(candidate) for candidate in within_part(candidates, part_ms)]

    def _rescaled(self, usable: Sequence[Instance], kept: Kept, rate_rps: float) -> Kept:
        gap_rps = rate_rps - capacity_rps(kept)
        if gap_rps > TOLERANCE * rate_rps:
            return kept + scaled_out(usable, gap_rps)
        if gap_rps < -TOLERANCE * rate_rps:
            return without_spare(kept, rate_rps)
        return kept


def scaled_out(usable: Sequence[Instance], gap_rps: float) -> Kept:
    """Containers for a rate that none serves yet."""
    best = max(usable, key=lambda one: (one.efficiency, -one.dollars_hour))
    count = int(gap_rps / best.most_rps)
    added = Kept({best: count})
    rest_rps = gap_rps - count * best.most_rps
    if rest_rps > RATE_MIN:
        sufficient = [one for one in usable if one.most_rps >= rest_rps]
        added[min(sufficient, key=lambda one: one.size)] += 1
    return added
