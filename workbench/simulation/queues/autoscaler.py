"""Containers of autoscaling policies: they hold their share even while no run is in them.

The queues of a pool share its containers. By default a pool is a function of a namespace.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import inf

import numpy as np

from scheduler.model.plan import Candidate, Configuration
from workbench.simulation.containers.cluster import SimulatedCluster
from workbench.simulation.containers.functions import Container, Function
from workbench.simulation.containers.grant_cache import GrantCache, GrantOffers
from workbench.simulation.errors import PolicyError
from workbench.simulation.events import CONTAINER_READY, EventQueue
from workbench.simulation.loop import Job
from workbench.simulation.policy import Demand, Policy, PoolKey
from workbench.simulation.queues.batch_runs import Parts
from workbench.simulation.workflow_state import StageQueue


class ContainerSet:
    """The containers of one pool under one configuration.

    Attributes:
        count: number of containers; ``surplus`` of them end with their runs.
        idle: containers without a run, the last used at the end.
    """

    __slots__ = ("count", "idle", "offers", "pool", "surplus")

    def __init__(self, pool: "ContainerPool", offers: GrantOffers) -> None:
        self.pool = pool
        self.offers = offers
        self.count = 0
        self.surplus = 0
        self.idle: list[Container] = []

    @property
    def desired(self) -> int:
        """Number of containers that stay."""
        return self.count - self.surplus


class ContainerPool:
    """The containers that several queues of one function share.

    Attributes:
        queues: queues whose jobs run in these containers, and in common batches.
        sets: sets of containers by configuration.
    """

    def __init__(self, queue: StageQueue) -> None:
        self.queues = [queue]
        self.sets: dict[Configuration, ContainerSet] = {}

    @property
    def function(self) -> Function:
        """The function of its containers."""
        return self.queues[0].function

    @property
    def count(self) -> int:
        """Number of containers."""
        return sum(containers.count for containers in self.sets.values())

    @property
    def queued(self) -> int:
        """Number of waiting jobs."""
        return sum(len(queue.jobs) for queue in self.queues)

    def claim(self, candidates: Iterable[Candidate]) -> Container | None:
        """Return an idle container of the first candidate that has one."""
        for candidate in candidates:
            containers = self.sets.get(candidate.configuration)
            if containers is not None and containers.idle:
                return containers.idle.pop()
        return None

    def take(self, batch: int) -> Parts:
        """Remove the most urgent jobs of all queues, at most a batch."""
        waiting = [queue for queue in self.queues if queue.jobs]
        if len(waiting) == 1:
            return ((waiting[0], waiting[0].take(batch)),)
        batch_jobs: dict[StageQueue, list[Job]] = {}
        for _ in range(batch):
            if not waiting:
                break
            queue = min(waiting, key=lambda q: q.jobs[0].deadline_ms)
            batch_jobs.setdefault(queue, []).append(queue.jobs.popleft())
            if not queue.jobs:
                waiting.remove(queue)
        return tuple(batch_jobs.items())


class Autoscaler:
    """Scales the sets of containers as the policy demands.

    Attributes:
        cold_starts: number of containers that were not warm at once.
    """

    def __init__(  # noqa: PLR0913 - what scaling needs, each by name
        self,
        policy: Policy,
        queues: Iterable[StageQueue],
        cluster: SimulatedCluster,
        grants: GrantCache,
        events: EventQueue,
        *,
        warm_at_start: bool,
    ) -> None:
        self._policy = policy
        self._cluster = cluster
        self._grants = grants
        self._events = events
        self._pools: dict[PoolKey, ContainerPool] = {}
        self._pool_of: dict[StageQueue, ContainerPool] = {}
        for queue in queues:
            key = self._pool_key(queue)
            pool = self._pools.get(key)
            if pool is None:
                pool = self._pools[key] = ContainerPool(queue)
            else:
                pool.queues.append(queue)
            self._pool_of[queue] = pool
        self._set_of: dict[Container, ContainerSet] = {}
        self._no_container_ms = np.full(len(cluster.gpu_uuids), inf)
        self._no_transfer_ms = np.zeros(len(cluster.node_names))
        self._no_predecessors = np.empty(0, np.int64)
        self._warm_at_start = warm_at_start
        self._rescaled_ms = 0.0
        self.cold_starts = 0

    def pool(self, queue: StageQueue) -> ContainerPool:
        """Return the pool of a queue."""
        return self._pool_of[queue]

    def rescale(self, now_ms: float) -> None:
        """Call the policy, stop surplus containers, and start missing ones that find capacity.

        Where capacity is short, the pools get one container each in turn. Those of the very start
        are warm if the scenario begins with warm containers.
        """
        counts = self._desired_counts(now_ms)
        for containers in self._all_sets():
            self._shrink(containers, counts.get(containers, 0), now_ms)
        self._grow_in_turn(counts, now_ms)
        for pool in self._pools.values():
            own = {s: count for s, count in counts.items() if s.pool is pool}
            while pool.queued and not pool.count and self._make_room(pool, now_ms):
                self._grow_in_turn(own, now_ms)

    def release(self, container: Container, now_ms: float) -> StageQueue:
        """End the start or the run of a container; return a queue of its pool."""
        containers = self._set_of[container]
        if containers.surplus:
            containers.surplus -= 1
            self._stop(container, containers, now_ms)
        else:
            containers.idle.append(container)
        return containers.pool.queues[0]

    def lose(self, container: Container, now_ms: float) -> StageQueue:
        """End a container, whatever it does; return a queue of its pool."""
        containers = self._set_of[container]
        if container in containers.idle:
            containers.idle.remove(container)
        self._stop(container, containers, now_ms)
        containers.surplus = min(containers.surplus, containers.count)
        return containers.pool.queues[0]

    # -- rescaling -----------------------------------------------------------------------------

    def _pool_key(self, queue: StageQueue) -> PoolKey:
        try:
            return self._policy.pool(queue.key)
        except Exception as error:
            raise PolicyError.of(self._policy.name, queue.key, 0.0, error) from error

    def _desired_counts(self, now_ms: float) -> dict[ContainerSet, int]:
        seconds = (now_ms - self._rescaled_ms) / 1000
        self._rescaled_ms = now_ms
        demand = {}
        for key, pool in self._pools.items():
            counts = {c: s.desired for c, s in pool.sets.items() if s.desired}
            arrived = sum(queue.arrived for queue in pool.queues)
            rate_rps = arrived / seconds if seconds else 0.0
            keys = tuple(queue.key for queue in pool.queues)
            demand[key] = Demand(rate_rps, pool.queued, counts, keys)
            for queue in pool.queues:
                queue.arrived = 0
        try:
            answer = self._policy.desired_containers(now_ms, demand)
            return {
                self._set(self._pools[key], configuration): count
                for key, configurations in answer.items()
                for configuration, count in configurations.items()
            }
        except Exception as error:
            raise PolicyError.of(self._policy.name, None, now_ms, error) from error

    def _set(self, pool: ContainerPool, configuration: Configuration) -> ContainerSet:
        containers = pool.sets.get(configuration)
        if containers is None:
            offers = self._grants.offers(pool.function.candidates(configuration))
            containers = pool.sets[configuration] = ContainerSet(pool, offers)
        return containers

    def _all_sets(self) -> Iterator[ContainerSet]:
        for pool in self._pools.values():
            yield from pool.sets.values()

    def _shrink(self, containers: ContainerSet, count: int, now_ms: float) -> None:
        while containers.desired > count and containers.idle:
            self._stop(containers.idle.pop(0), containers, now_ms)
        containers.surplus = max(containers.count - count, 0)

    def _grow_in_turn(self, counts: Mapping[ContainerSet, int], now_ms: float) -> None:
        lacking = [containers for containers, count in counts.items() if containers.count < count]
        lacking.sort(key=lambda containers: containers.pool.count > 0)
        while lacking:
            lacking = [
                containers
                for containers in lacking
                if self._grow(containers, now_ms) and containers.count < counts[containers]
            ]

    def _make_room(self, starved: ContainerPool, now_ms: float) -> bool:
        """Stop a container for a pool whose jobs wait and that has none; return true if one ended.

        It is one of the pool with the most containers, on a GPU model of the starved function; a
        pool with a single one gives it while no job waits for it. A busy container ends with its
        run, and the next rescaling tries again.
        """
        models = {gpu.model for gpu in starved.function.profile.spec.gpus}
        donors = [
            containers
            for containers in self._all_sets()
            if containers.pool is not starved
            and containers.desired
            and (containers.pool.count > 1 or not containers.pool.queued)
            and any(grant.gpu_model in models for grant in containers.offers.grants)
        ]
        if not donors:
            return False

        def idle(containers: ContainerSet) -> Container | None:
            return next((c for c in containers.idle if c.grant.gpu_model in models), None)

        donor = max(donors, key=lambda containers: (containers.pool.count, bool(idle(containers))))
        container = idle(donor)
        if container is None:
            donor.surplus += 1
            return False
        donor.idle.remove(container)
        self._stop(container, donor, now_ms)
        return True

    def _grow(self, containers: ContainerSet, now_ms: float) -> bool:
        """Start one container; return false if no node has capacity for it."""
        offers = containers.offers
        queue = containers.pool.queues[0]
        place = queue.placer.best_gpu(
            offers.table,
            self._no_transfer_ms,
            self._no_container_ms,
            now_ms,
            self._no_predecessors,
        )
        if place is None:
            return False
        grant, gpu = offers.grants[place[0]], place[1]
        warm = self._warm_at_start and now_ms <= 0.0
        self.cold_starts += not warm
        container = self._cluster.start_reserved(queue.function, grant, gpu, now_ms, warm=warm)
        self._set_of[container] = containers
        containers.count += 1
        self._events.push(container.ready_ms, CONTAINER_READY, container)
        return True

    def _stop(self, container: Container, containers: ContainerSet, now_ms: float) -> None:
        containers.count -= 1
        del self._set_of[container]
        self._cluster.stop(container, now_ms)
