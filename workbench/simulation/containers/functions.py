"""Functions and their containers in the simulated cluster."""

from collections.abc import Iterable
from math import exp, inf, log

import numpy as np

from scheduler.ledger.reservation import Reservation
from scheduler.model.documents import FunctionProfile
from scheduler.model.plan import Candidate, Configuration, Prices
from scheduler.search.margin import P95_Z
from workbench.simulation.containers.configurations import (
    anywhere,
    cheapest_first,
    configurations_of,
    minimum_candidates,
    warm_first,
)
from workbench.simulation.containers.grant_cache import ContainerGrant
from workbench.simulation.containers.pools import WarmPool


class Container:
    """A process of one function on one GPU.

    Attributes:
        number: position in the order of creation.
        gpu, node: rows of GPU and node in the fleet.
        memory_mib: GPU memory of the container, which it also holds while it is idle.
        ready_ms: time at which the container has started.
        idle_since_ms: end of the last run, or of the start if there was none.
        pool: containers that can run the same batches.
        reservations: past and current reservations, by grant.
        grant: grant of the last run, or of the start if there was none.
        lost: true if its GPU has failed.
        pooled: true if it runs in a slice, which holds its vCPUs and share.
    """

    __slots__ = (
        "function",
        "gpu",
        "grant",
        "idle_since_ms",
        "lost",
        "memory_mib",
        "node",
        "number",
        "pool",
        "pooled",
        "ready_ms",
        "reservations",
        "uid",
    )

    def __init__(
        self, number: int, function: "Function", grant: ContainerGrant, gpu: int, node: int
    ) -> None:
        self.number = number
        self.uid = f"container-{number}"
        self.function = function
        self.gpu = gpu
        self.node = node
        self.memory_mib = 0
        self.ready_ms = 0.0
        self.idle_since_ms = 0.0
        self.reservations: dict[ContainerGrant, Reservation] = {}
        self.grant = grant
        self.pool = function.pool(grant)
        self.lost = False
        self.pooled = False


class Function:
    """State that all queues of one function share: its containers are warm for each of them.

    Attributes:
        cold_ms, slow_start_ms: median and 95th percentile of a start.
        containers: number of containers, including busy ones.
        unclaimed: number of containers without a run that no autoscaler holds.
        shared: warm containers, if each can run under any grant; otherwise None.
    """

    __slots__ = (
        "_gpus",
        "_latencies_ms",
        "_pools",
        "_prices",
        "_random",
        "_start_sigma",
        "cold_ms",
        "containers",
        "name",
        "profile",
        "shared",
        "slow_start_ms",
        "unclaimed",
    )

    def __init__(
        self,
        profile: FunctionProfile,
        gpus: int,
        prices: Prices,
        random: np.random.Generator,
        *,
        resizable: bool,
    ) -> None:
        self.profile = profile
        self._prices = prices
        self.name = profile.metadata.name
        self.cold_ms = profile.spec.cold_start_ms
        self.slow_start_ms = profile.spec.slow_start_ms
        self._random = random
        self._start_sigma = log(self.slow_start_ms / self.cold_ms) / P95_Z if self.cold_ms else 0.0
        self.shared: WarmPool[Container] | None = WarmPool(gpus) if resizable else None
        self.containers = 0
        self.unclaimed = 0
        self._gpus = gpus
        self._pools: dict[tuple[str, int, int], WarmPool[Container]] = {}
        self._latencies_ms: dict[ContainerGrant, list[float]] = {}

    def draw_start_ms(self) -> float:
        """Draw the duration of a cold start: log-normal, where the profile has its p95."""
        if not self._start_sigma:
            return self.cold_ms
        return self.cold_ms * exp(self._start_sigma * self._random.standard_normal())

    def pool(self, grant: ContainerGrant) -> WarmPool[Container]:
        """Return the warm containers that can run under a grant: all, if they are resizable.

        Otherwise those of its share: the batch is free in each run.
        """
        pool = self.shared or self._pools.get(grant.share)
        if pool is None:
            pool = self._pools[grant.share] = WarmPool(self._gpus)
        return pool

    def latency_ms(self, grant: ContainerGrant, jobs: int) -> float:
        """Return the profiled time of a batch of so many jobs, which may not fill the grant's.

        It is that of the smallest profiled batch of the share that holds them.
        """
        if jobs >= grant.batch:
            return grant.latency_ms
        latencies_ms = self._latencies_ms.get(grant)
        if latencies_ms is None:
            latencies_ms = self._latencies_ms[grant] = self._by_jobs(grant)
        return latencies_ms[jobs]

    def _by_jobs(self, grant: ContainerGrant) -> list[float]:
        latencies_ms = [grant.latency_ms] * (grant.batch + 1)
        smaller = [
            c
            for gpu in self.profile.spec.gpus
            if gpu.model == grant.gpu_model
            for c in gpu.configurations
            if (c.cpu, c.gpu_percent) == grant.share[1:] and c.batch < grant.batch
        ]
        for configuration in sorted(smaller, key=lambda c: -c.batch):
            for jobs in range(configuration.batch + 1):
                latencies_ms[jobs] = min(configuration.latency_ms, latencies_ms[jobs])
        return latencies_ms

    def batching_dollars(self, jobs: int, dollars_per_ms: float) -> float:
        """Return what a run of so few jobs costs each of them at least, over the best batch.

        By the profile, where a millisecond costs so much beside the resources.
        """
        rows = [
            (
                self._prices.request_cost_dollars(c.latency_ms, c.cpu, c.gpu_percent, 1, gpu.model),
                dollars_per_ms * c.latency_ms,
                c.batch,
            )
            for gpu in self.profile.spec.gpus
            for c in gpu.configurations
        ]
        best = min(dollars / batch + time_dollars for dollars, time_dollars, batch in rows)
        return (
            min(
                dollars / jobs + time_dollars
                for dollars, time_dollars, batch in rows
                if batch >= jobs
            )
            - best
        )

    def lacks(self, grant: ContainerGrant | None) -> bool:
        """Return true if no idle or starting container can run under a grant; None: any grant."""
        if self.shared is not None or grant is None:
            return self.unclaimed == 0
        return self.pool(grant).unclaimed == 0

    def soonest_free_ms(self, grants: Iterable[ContainerGrant]) -> float:
        """Return the soonest predicted end of a run in a container for one of the grants."""
        if self.shared is not None:
            return self.shared.soonest_free_ms()
        return min(self.pool(grant).soonest_free_ms() for grant in grants)

    def minimum(self, starts_ms: Iterable[float] = ()) -> tuple[Candidate, ...]:
        """Return the minimum configuration on each GPU model, anywhere; short starts first."""
        return warm_first(minimum_candidates(self.profile, self._prices), (*starts_ms, inf))

    def candidates(self, configuration: Configuration) -> tuple[Candidate, ...]:
        """Return a configuration on the GPU models whose profile has it, the cheapest first."""
        offered = (
            anywhere(profiled, gpu.model)
            for gpu in self.profile.spec.gpus
            for profiled in configurations_of(gpu)
            if profiled == configuration
        )
        candidates = cheapest_first(offered, self._prices)
        if not candidates:
            raise ValueError(f"function {self.name} has no {configuration}")
        return candidates
