"""Policies that keep containers: each queue has as many as its rate of arrivals asks for.

Such a policy scales one function at a time. It knows of the workflow no more than the function's
own part of the SLO, split by dominators and ANL; less the scenario's margin, of which the papers
tell nothing, but which ours has.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from scheduler.model.plan import MS_PER_HOUR, Candidate, Configuration
from scheduler.search.planner import Planner
from workbench.simulation.policies import waiting
from workbench.simulation.policies.choices import candidates_of
from workbench.simulation.policy import Demand, Policy, PolicyContext, QueueKey, SchedulingRequest

RATE_MIN = 1e-9  # requests/s, one in thirty years: less is what rounding leaves of a rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One kind of container that may be kept for a stage.

    Attributes:
        candidate: its configuration.
        most_rps: requests a second that it serves when every batch is full.
        least_rps: requests a second that fill its batches before ``time_out_ms``.
        dollars_hour: what it takes, vCPUs and share in one number, by their prices.
        time_out_ms: how long the oldest job waits for its batch to fill.
    """

    candidate: Candidate
    most_rps: float
    least_rps: float = 0.0
    dollars_hour: float
    time_out_ms: float = 0.0

    @property
    def efficiency(self) -> float:
        """Requests a second for what it takes."""
        return self.most_rps / (self.dollars_hour or 1.0)  # prices may be 0: then throughput alone

    @property
    def size(self) -> tuple[float, int]:
        """From small to large: by what it takes, then by batch."""
        return self.dollars_hour, self.candidate.configuration.batch


Kept = Counter[Instance]


def capacity_rps(kept: Kept) -> float:
    """Requests a second that these containers serve when every batch is full."""
    return sum(instance.most_rps * count for instance, count in kept.items())


class KeepingPolicy(Policy):
    """Scales each queue's containers to its rate; a subclass says which, and how.

    A queue's rate is its arrivals a second, and what waits in it counts as arriving once more until
    the next rescaling, or else a queue that once grew too long would stay so. Before the first
    request the rate is the workload's own. A container counts for all that it could serve, so that
    nothing is left for arrivals that come close together. A queue always keeps one container, as
    OpenFaaS does by default, on which both papers build. A container that finds no room is asked
    for again at the next rescaling.

    A full batch runs first, the largest ahead. Then a batch that does not fill in time runs with
    what is there, the smallest ahead.
    """

    keeps_containers: ClassVar[bool] = True
    prewarms: ClassVar[bool] = False

    def __init__(self, world: PolicyContext) -> None:
        super().__init__(world)
        self._instances: dict[QueueKey, dict[Configuration, Instance]] = {}
        self._running: dict[QueueKey, tuple[Instance, ...]] = {}  # the largest batch first
        planner = Planner(world.catalogue, world.rules)
        for workflow in sorted(world.rate_rps):
            for stage, (from_ms, to_ms) in planner.budgets_ms(*workflow).items():
                key = (*workflow, stage)
                part_ms = (to_ms - from_ms) / (1.0 + world.margin_ratio)
                known = self._instances[key] = {}
                for kind in self._usable(candidates_of(world, key), part_ms):
                    # Of GPU models with the same figures the cheapest is meant: it is taken first.
                    other = known.setdefault(kind.candidate.configuration, kind)
                    if kind.dollars_hour < other.dollars_hour:
                        known[kind.candidate.configuration] = kind

    @abstractmethod
    def _usable(self, candidates: Sequence[Candidate], part_ms: float) -> Iterable[Instance]:
        """The kinds of containers that keep a stage's part of the SLO, less the margin; or one."""

    @abstractmethod
    def _rescaled(self, usable: Sequence[Instance], kept: Kept, rate_rps: float) -> Kept:
        """The containers that a queue should have."""

    def rescaled(
        self, now_ms: float, demand: Mapping[QueueKey, Demand]
    ) -> Mapping[QueueKey, Mapping[Configuration, int]]:
        """The containers that each queue should have from now on."""
        wanted: dict[QueueKey, Mapping[Configuration, int]] = {}
        for key, seen in demand.items():
            known = self._instances[key]
            usable = list(known.values())
            kept = Counter({known[c]: n for c, n in seen.kept.items() if c in known and n > 0})
            rate_rps = self._rate_rps(key, seen, now_ms)
            chosen = +self._rescaled(usable, kept, rate_rps)
            chosen = chosen or Counter([min(usable, key=lambda one: one.size)])
            self._running[key] = tuple(sorted(chosen, key=_batch, reverse=True))
            wanted[key] = {one.candidate.configuration: count for one, count in chosen.items()}
        return wanted

    def candidates(self, question: SchedulingRequest) -> Sequence[Candidate]:
        """The kinds of containers kept that may take the oldest jobs now."""
        queued = question.queued
        running = self._running.get(question.key, ())
        full = [one.candidate for one in running if _batch(one) <= queued]
        overdue = [
            one.candidate
            for one in reversed(running)
            if _batch(one) > queued and waiting.is_over(question, one.time_out_ms)
        ]
        return full + overdue

    def ask_again_ms(self, question: SchedulingRequest) -> float:
        """When the next time-out ends."""
        running = self._running.get(question.key, ())
        later_ms = [
            t for t in (one.time_out_ms for one in running) if not waiting.is_over(question, t)
        ]
        return waiting.end_ms(question, min(later_ms, default=inf))

    def _rate_rps(self, key: QueueKey, seen: Demand, now_ms: float) -> float:
        if now_ms <= 0:
            return self.world.rate_rps[key[:2]]
        return seen.rate_rps + seen.queued / (self.rescale_ms / 1000.0)

    def _instance(
        self, candidate: Candidate, *, least_rps: float = 0.0, time_out_ms: float = 0.0
    ) -> Instance:
        asked = candidate.configuration
        dollars_hour = self.world.rules.prices.per_request(
            MS_PER_HOUR, asked.cpu, asked.gpu_percent, 1, candidate.gpu_model
        )
        return Instance(
            candidate=candidate,
            most_rps=1000.0 * asked.batch / asked.latency_ms,
            least_rps=least_rps,
            dollars_hour=dollars_hour,
            time_out_ms=time_out_ms,
        )


def within_part(candidates: Sequence[Candidate], part_ms: float) -> list[Candidate]:
    """Those that keep a part of the SLO: a batch of more than one needs half of it to fill.

    Where none does, the fastest does what it can.
    """
    found = [
        candidate
        for candidate in candidates
        if candidate.stage_ms <= part_ms / (1 if candidate.configuration.batch == 1 else 2)
    ]
    return found or [min(candidates, key=lambda one: (one.stage_ms, one.path_cost))]


def without_spare(kept: Kept, rate_rps: float) -> Kept:
    """The containers without those that the rate can do without, the least efficient first."""
    left = kept.copy()
    spare_rps = capacity_rps(kept) - rate_rps
    for instance in sorted(kept, key=lambda one: (one.efficiency, one.size)):
        ended = min(kept[instance], int(spare_rps / instance.most_rps))
        if ended > 0:
            left[instance] -= ended
            spare_rps -= ended * instance.most_rps
    return +left


def _batch(instance: Instance) -> int:
    return instance.candidate.configuration.batch
