"""Autoscaling policies: each function has as many containers as its arrival rate needs.

Such a policy scales one function at a time. All it knows of the workflow is the function's part of
the SLO, split by dominators and ANL, less the margin that the
workflow's objective needs. The papers have no margin; it is applied so that all policies plan on
equal ground.
"""

from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from scheduler.model.plan import MS_PER_HOUR, Candidate, Configuration
from scheduler.search.dag import numbered
from scheduler.search.planner import Planner
from workbench.simulation.policies import batch_timeout
from workbench.simulation.policies.choices import candidates_of, nearly_fastest
from workbench.simulation.policy import (
    Demand,
    Policy,
    PolicyContext,
    PoolKey,
    QueueKey,
    SchedulingRequest,
)

RATE_MIN = 1e-9  # requests/s, one in thirty years: anything below is a rounding error


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A kind of container for a stage.

    Attributes:
        candidate: configuration of the instance.
        max_rps: requests per second that the instance serves when every batch is full.
        min_rps: requests per second that fill its batches within ``time_out_ms``.
        dollars_per_hour: price of the instance's vCPUs and share.
        time_out_ms: longest wait of the oldest job for its batch to fill.
    """

    candidate: Candidate
    max_rps: float
    min_rps: float = 0.0
    dollars_per_hour: float
    time_out_ms: float = 0.0

    @property
    def efficiency_ratio(self) -> float:
        """Requests per second for a dollar per hour."""
        return self.max_rps / (
            self.dollars_per_hour or 1.0
        )  # prices may be 0: then throughput alone

    @property
    def size(self) -> tuple[float, int]:
        """Sort key from small to large: price, then batch."""
        return self.dollars_per_hour, self.candidate.configuration.batch


ContainerCounts = Counter[Instance]


def capacity_rps(counts: ContainerCounts) -> float:
    """Requests per second that these containers serve when every batch is full."""
    return sum(instance.max_rps * count for instance, count in counts.items())


class AutoscalingPolicy(Policy):
    """Scales each function's containers to its rate; a subclass defines the rule.

    A function's rate is its arrivals per second, from all queues, over the last ten seconds.
    Waiting jobs count as arrivals once more; otherwise a queue that has grown too long would stay
    so. Before the first request the rate is that of the workload. A container counts with its full
    capacity; `headroom_ratio` of the scenario adds a reserve. A function always has one container,
    as in OpenFaaS by default, on which both papers build. A container that does not fit is
    requested again at the next rescaling.

    A function's part of the SLO is the shortest of its stages' parts: dominators and ANL split the
    SLO, or the minimum latencies where ANL leaves a stage less than its function can do.

    Full batches run first, the largest ahead. Then a batch that does not fill in time runs with
    the jobs it has, the smallest ahead.
    """

    autoscales: ClassVar[bool] = True
    prewarms: ClassVar[bool] = False
    window_ms: ClassVar[float] = 10_000.0  # over which arrivals are counted

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._rates_rps: dict[PoolKey, deque[float]] = {}  # of the last rescalings
        self._instances: dict[PoolKey, dict[Configuration, Instance]] = {}
        self._running: dict[PoolKey, tuple[Instance, ...]] = {}  # the largest batch first
        self._pools: dict[QueueKey, PoolKey] = {}
        parts_ms: dict[PoolKey, tuple[float, QueueKey]] = {}
        for workflow in sorted(context.rate_rps):
            for key, part_ms in parts_of(context, workflow).items():
                pool = self._pools[key] = self.pool(key)
                parts_ms[pool] = min(parts_ms.get(pool, (inf, key)), (part_ms, key))
        for pool, (part_ms, key) in parts_ms.items():
            instances = self._instances[pool] = {}
            for kind in self._usable(candidates_of(context, key), part_ms):
                # The engine tries the cheapest of GPU models with equal profiles first.
                cheapest = instances.setdefault(kind.candidate.configuration, kind)
                if kind.dollars_per_hour < cheapest.dollars_per_hour:
                    instances[kind.candidate.configuration] = kind

    @abstractmethod
    def _usable(self, candidates: Sequence[Candidate], part_ms: float) -> Iterable[Instance]:
        """Return the kinds of containers that meet a function's part of the SLO; at least one."""

    @abstractmethod
    def _desired(
        self, usable: Sequence[Instance], counts: ContainerCounts, rate_rps: float
    ) -> ContainerCounts:
        """Return the containers that a function should have."""

    def desired_containers(
        self, now_ms: float, demand: Mapping[PoolKey, Demand]
    ) -> Mapping[PoolKey, Mapping[Configuration, int]]:
        """Return the containers that each function should have from now on."""
        wanted: dict[PoolKey, Mapping[Configuration, int]] = {}
        for key, load in demand.items():
            instances = self._instances[key]
            usable = list(instances.values())
            counts = Counter(
                {instances[c]: n for c, n in load.containers.items() if c in instances and n > 0}
            )
            rate_rps = self._rate_rps(key, load, now_ms) * (1.0 + self.context.headroom_ratio)
            desired = +self._desired(usable, counts, rate_rps)
            desired = desired or Counter([min(usable, key=lambda instance: instance.size)])
            self._running[key] = tuple(sorted(desired, key=_batch, reverse=True))
            wanted[key] = {
                instance.candidate.configuration: count for instance, count in desired.items()
            }
        return wanted

    def candidates(self, request: SchedulingRequest) -> Sequence[Candidate]:
        """Return the kinds of containers that may take the oldest jobs now."""
        queued = request.queued
        running = self._running.get(self._pools[request.key], ())
        full = [instance.candidate for instance in running if _batch(instance) <= queued]
        overdue = [
            instance.candidate
            for instance in reversed(running)
            if _batch(instance) > queued and batch_timeout.is_over(request, instance.time_out_ms)
        ]
        return full + overdue

    def retry_at_ms(self, request: SchedulingRequest) -> float:
        """Return the time at which the next time-out ends."""
        running = self._running.get(self._pools[request.key], ())
        waits_ms = (instance.time_out_ms for instance in running)
        later_ms = [t for t in waits_ms if not batch_timeout.is_over(request, t)]
        return batch_timeout.end_ms(request, min(later_ms, default=inf))

    def _rate_rps(self, pool: PoolKey, load: Demand, now_ms: float) -> float:
        rates_rps = self._rates_rps.get(pool)
        if rates_rps is None:
            expected_rps = sum(self.context.rate_rps[key[:2]] for key in load.queues)
            count = max(round(self.window_ms / self.rescale_ms), 1)
            rates_rps = self._rates_rps[pool] = deque([expected_rps] * count, count)
        if now_ms <= 0:
            return rates_rps[0]
        rates_rps.append(load.rate_rps)
        return sum(rates_rps) / len(rates_rps) + load.queued / (self.window_ms / 1000.0)

    def _instance(
        self, candidate: Candidate, *, min_rps: float = 0.0, time_out_ms: float = 0.0
    ) -> Instance:
        configuration = candidate.configuration
        dollars_per_hour = self.context.rules.prices.request_cost_dollars(
            MS_PER_HOUR, configuration.cpu, configuration.gpu_percent, 1, candidate.gpu_model
        )
        return Instance(
            candidate=candidate,
            max_rps=1000.0 * configuration.batch / configuration.latency_ms,
            min_rps=min_rps,
            dollars_per_hour=dollars_per_hour,
            time_out_ms=time_out_ms,
        )


def within_part(candidates: Sequence[Candidate], part_ms: float) -> list[Candidate]:
    """Return the candidates that meet a part of the SLO; the fallback if there is none.

    A batch of more than one needs half of the part to fill.
    """
    within = [
        candidate
        for candidate in candidates
        if candidate.stage_ms <= part_ms / (1 if candidate.configuration.batch == 1 else 2)
    ]
    return within or [nearly_fastest(candidates)[0]]


def parts_of(context: PolicyContext, workflow: tuple[str, str]) -> dict[QueueKey, float]:
    """Return each stage's part of the SLO, less the margin that the workflow's objective needs."""
    stretch = 1.0 + context.whole_margin_ratio(workflow)
    budgets_ms = Planner(context.catalogue, context.rules).budgets_ms(*workflow)
    parts_ms = {
        (*workflow, stage): (to_ms - from_ms) / stretch
        for stage, (from_ms, to_ms) in budgets_ms.items()
    }
    fastest_ms = {
        key: min(candidate.stage_ms for candidate in candidates_of(context, key))
        for key in parts_ms
    }
    if all(fastest_ms[key] <= part_ms for key, part_ms in parts_ms.items()):
        return parts_ms
    document = context.catalogue.workflow(*workflow)
    names, dag = numbered(document)
    least_ms = [fastest_ms[*workflow, name] for name in names]
    slo_ms = document.spec.slo.latency_ms / stretch
    paths_ms = zip(dag.longest_before(least_ms), dag.longest_after(least_ms), strict=True)
    return {
        (*workflow, name): slo_ms * own_ms / (before_ms + after_ms)
        for name, own_ms, (before_ms, after_ms) in zip(names, least_ms, paths_ms, strict=True)
    }


def without_spare(counts: ContainerCounts, rate_rps: float) -> ContainerCounts:
    """Return the containers without the superfluous ones, the least efficient first."""
    remaining = counts.copy()
    spare_rps = capacity_rps(counts) - rate_rps
    for instance in sorted(counts, key=lambda kind: (kind.efficiency_ratio, kind.size)):
        ended = min(counts[instance], int(spare_rps / instance.max_rps))
        if ended > 0:
            remaining[instance] -= ended
            spare_rps -= ended * instance.max_rps
    return +remaining


def _batch(instance: Instance) -> int:
    return instance.candidate.configuration.batch
