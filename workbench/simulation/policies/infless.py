"""INFless: for each function, the containers with the highest throughput for their resources.

Source: "INFless: A Native Serverless System for Low-Latency, High-Throughput Inference", Yang
et al., ASPLOS 2022. Its public code is under the GPL; nothing here is from it. The rule is our
reconstruction from descriptions of the paper and of the ESG paper, which compares with it.

The rule, for a function whose part of the SLO is s. A container of batch b with run time t serves
at most b/t requests per second. Its batch must fill within s - t, which needs at least b/(s - t)
requests per second; t <= s/2 keeps the first above the second. A batch of one fills at once, so
t <= s suffices.

- Scaling out: while a rate R is not served, consider the configurations whose batches R fills and
  add a container of the one with the highest throughput for its resources; R falls by its capacity.
- A batch that does not fill runs once its oldest job has waited s - t.
- Scaling in: below ``BAND * minimum + (1 - BAND) * maximum``, the sums over the existing
  containers, the least efficient containers end, as far as the others still serve R. Between that
  and the maximum nothing changes. This part, with its 0.8, is from memory of the paper.

`infless-code` has the constants of the public code, as described to us: the limit is
``0.8 * (maximum - minimum) + minimum``, the rate is checked every second, and no container has more
than half of a GPU. Its containers without a GPU are left out: no profile here has one.

Differences from the paper:

- The paper divides throughput per resource by the unused fraction of a node, over all nodes. Here a
  policy names configurations by throughput per resource alone, and the engine's placement chooses
  the node, the tightest fit first.
- The paper weights CPU and GPU by their FLOPS; here by their prices.
- The paper has one model and no workflow. s is the stage's part of the SLO by dominators and ANL,
  as the ESG paper gave it to INFless.
- The paper scales when the rate leaves the band; here the rate is checked every 10 s. Its
  cold-start prediction is left out because a function always has a container. Its instances live on
  for a while after they are superfluous, by a histogram of idle times; here they end at once.
- Over which time the rate is taken is not known to us; here over ten seconds.
- Requests are not distributed among containers in proportion to their rates. A free container with
  a full batch, or with one that has waited long enough, takes the oldest jobs.
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

BAND = 0.8  # weight of the minimum throughput in the lower limit of the band; code: of the other
CODE_PERCENT_MAX = 50  # of a GPU


class Infless(AutoscalingPolicy):
    """The policy described in the module's docstring."""

    name: ClassVar[str] = "infless"
    minimum_weight: ClassVar[float] = BAND  # in the limit below which containers end

    def _usable(self, candidates: Sequence[Candidate], part_ms: float) -> Iterable[Instance]:
        return [self._filled(candidate, part_ms) for candidate in within_part(candidates, part_ms)]

    def _filled(self, candidate: Candidate, part_ms: float) -> Instance:
        batch = candidate.configuration.batch
        time_out_ms = part_ms - candidate.stage_ms
        if batch == 1 or time_out_ms <= 0:
            return self._instance(candidate)
        min_rps = 1000.0 * batch / time_out_ms
        return self._instance(candidate, min_rps=min_rps, time_out_ms=time_out_ms)

    def _desired(
        self, usable: Sequence[Instance], counts: ContainerCounts, rate_rps: float
    ) -> ContainerCounts:
        max_rps = capacity_rps(counts)
        min_rps = sum(instance.min_rps * count for instance, count in counts.items())
        if rate_rps > max_rps:
            return counts + scaled_out(usable, rate_rps - max_rps)
        if rate_rps < self._limit_rps(min_rps, max_rps):
            return without_spare(counts, rate_rps)
        return counts

    def _limit_rps(self, min_rps: float, max_rps: float) -> float:
        return self.minimum_weight * min_rps + (1 - self.minimum_weight) * max_rps


class InflessCode(Infless):
    """The same with the constants of the public code."""

    name: ClassVar[str] = "infless-code"
    rescale_ms: ClassVar[float] = 1_000.0
    minimum_weight: ClassVar[float] = 1 - BAND

    def _usable(self, candidates: Sequence[Candidate], part_ms: float) -> Iterable[Instance]:
        small = [c for c in candidates if c.configuration.gpu_percent <= CODE_PERCENT_MAX]
        return super()._usable(small or candidates, part_ms)


def scaled_out(usable: Sequence[Instance], rate_rps: float) -> ContainerCounts:
    """Choose containers for a rate that is not served yet, one after the other.

    If the rate fills no configuration's batches, choose the one that it fills first.
    """
    added = ContainerCounts()
    while rate_rps > RATE_MIN:
        filled = [instance for instance in usable if instance.min_rps <= rate_rps]
        filled = filled or [min(usable, key=lambda kind: (kind.min_rps, kind.size))]
        best = max(filled, key=lambda kind: (kind.efficiency_ratio, -kind.dollars_per_hour))
        # It stays the best while the rate fills its batches: add them all at once.
        count = max(1, int((rate_rps - best.min_rps) / best.max_rps))
        added[best] += count
        rate_rps -= count * best.max_rps
    return added
