"""INFless: for each function, the containers with the most throughput for their resources.

Source: "INFless: A Native Serverless System for Low-Latency, High-Throughput Inference", Yang
et al., ASPLOS 2022. Its public code is under the GPL: nothing here is from it; the rule was derived
anew from descriptions of the paper, and of the ESG paper, which compares with it.

The rule, for a function that may take s of the SLO. A container of batch b that runs for t serves
at most b/t requests a second. Its batch must fill within s - t, which takes at least b/(s - t) a
second; t <= s/2 keeps the one above the other. A batch of one fills at once, so t <= s is enough.

- Scaling out: as long as a rate R is left over, of the configurations whose batches R fills, one
  more container of that with the most throughput for its resources; R falls by what it serves.
- A batch that does not fill runs once its oldest job has waited s - t.
- Scaling in: below ``BAND * least + (1 - BAND) * most``, the sums over the containers that there
  are, the least efficient end, as far as the rest still serves R. Between that and ``most`` nothing
  changes. This part is recalled, and so is its 0.8.

Where this departs:

- The paper divides throughput per resource by the fraction of a node that is left over, over all
  nodes. A policy here names configurations, and the engine finds the node: the configuration goes
  by throughput per resource alone, and the node by the engine's placement, the tightest fit first.
- The paper weighs CPU and GPU by their FLOPS; here their prices do.
- The paper has one model and no workflow. s is the stage's part of the SLO by dominators and ANL,
  as the ESG paper gave it to INFless.
- The paper scales when the rate leaves the band; here the rate is looked at every 10 s. Its way to
  predict cold starts is left out, for a queue always keeps a container.
- Requests are not dealt out among containers in proportion to their rates: whatever is free, and
  has a full batch or one that has waited long enough, takes the oldest.
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

BAND = 0.8  # of the way from the most down to the least throughput


class Infless(KeepingPolicy):
    """The policy as the module's docstring has it."""

    name: ClassVar[str] = "infless"

    def _usable(self, candidates: Sequence[Candidate], part_ms: float) -> Iterable[Instance]:
        return [self._filled(candidate, part_ms) for candidate in within_part(candidates, part_ms)]

    def _filled(self, candidate: Candidate, part_ms: float) -> Instance:
        batch = candidate.configuration.batch
        time_out_ms = part_ms - candidate.stage_ms
        if batch == 1 or time_out_ms <= 0:
            return self._instance(candidate)
        least_rps = 1000.0 * batch / time_out_ms
        return self._instance(candidate, least_rps=least_rps, time_out_ms=time_out_ms)

    def _rescaled(self, usable: Sequence[Instance], kept: Kept, rate_rps: float) -> Kept:
        most_rps = capacity_rps(kept)
        least_rps = sum(instance.least_rps * count for instance, count in kept.items())
        if rate_rps > most_rps:
            return kept + scaled_out(usable, rate_rps - most_rps)
        if rate_rps < BAND * least_rps + (1 - BAND) * most_rps:
            return without_spare(kept, rate_rps)
        return kept


def scaled_out(usable: Sequence[Instance], rate_rps: float) -> Kept:
    """Containers for a rate that none serves yet, chosen one after the other.

    Where it fills the batches of none, the one that it fills first.
    """
    added = Kept()
    while rate_rps > RATE_MIN:
        filled = [one for one in usable if one.least_rps <= rate_rps]
        filled = filled or [min(usable, key=lambda one: (one.least_rps, one.size))]
        best = max(filled, key=lambda one: (one.efficiency, -one.dollars_hour))
        # It stays the best as long as the rate fills its batches: take them all at once.
        count = max(1, int((rate_rps - best.least_rps) / best.most_rps))
        added[best] += count
        rate_rps -= count * best.most_rps
    return added
