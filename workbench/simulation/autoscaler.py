"""Containers of autoscaling policies: they hold their share even while no run is in them."""

from collections.abc import Iterable
from math import inf

import numpy as np

from scheduler.model.plan import Candidate, Configuration
from workbench.simulation.cluster import SimulatedCluster
from workbench.simulation.errors import PolicyError
from workbench.simulation.events import CONTAINER_READY, EventQueue
from workbench.simulation.functions import Container
from workbench.simulation.grant_cache import GrantCache, GrantOffers
from workbench.simulation.policy import Demand, Policy
from workbench.simulation.workflow_state import StageQueue


class ContainerSet:
    """The containers of one queue under one configuration.

    Attributes:
        count: number of containers; ``surplus`` of them end with their runs.
        idle: those without a run, the last used at the end.
    """

    __slots__ = ("count", "idle", "offers", "queue", "surplus")

    def __init__(self, queue: StageQueue, offers: GrantOffers) -> None:
        self.queue = queue
        self.offers = offers
        self.count = 0
        self.surplus = 0
        self.idle: list[Container] = []

    @property
    def desired(self) -> int:
        """Number of containers that stay."""
        return self.count - self.surplus


class Autoscaler:
    """Scales the sets of containers as the policy demands."""

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
        self._sets: dict[StageQueue, dict[Configuration, ContainerSet]] = {q: {} for q in queues}
        self._set_of: dict[Container, ContainerSet] = {}
        self._by_key = {queue.key: queue for queue in self._sets}
        self._no_container_ms = np.full(len(cluster.gpu_uuids), inf)
        self._no_transfer_ms = np.zeros(len(cluster.node_names))
        self._no_predecessors = np.empty(0, np.int64)
        self._warm_at_start = warm_at_start
        self._rescaled_ms = 0.0
        self._dollars_per_ms = 0.0  # of all containers
        self._cost_dollars = 0.0
        self._cost_until_ms = 0.0

    def rescale(self, now_ms: float) -> None:
        """Call the policy, stop surplus containers, and start missing ones that find capacity.

        Where capacity is short, the queues get one container each in turn. Those of the very start
        are warm, as all containers are then, unless the scenario begins with an empty cluster.
        """
        counts = self._desired_counts(now_ms)
        for sets in self._sets.values():
            for containers in sets.values():
                self._shrink(containers, counts.get(containers, 0), now_ms)
        lacking = [containers for containers, count in counts.items() if containers.count < count]
        while lacking:
            lacking = [
                containers
                for containers in lacking
                if self._grow(containers, now_ms) and containers.count < counts[containers]
            ]

    def claim(self, queue: StageQueue, candidates: Iterable[Candidate]) -> Container | None:
        """Return an idle container of the first candidate that has one."""
        sets = self._sets[queue]
        for candidate in candidates:
            containers = sets.get(candidate.configuration)
            if containers is not None and containers.idle:
                return containers.idle.pop()
        return None

    def release(self, container: Container, now_ms: float) -> StageQueue:
        """End the start or the run of a container; return its queue."""
        containers = self._set_of[container]
        if containers.surplus:
            containers.surplus -= 1
            self._stop(container, containers, now_ms)
        else:
            containers.idle.append(container)
        return containers.queue

    def accrued_dollars(self, now_ms: float) -> float:
        """Return the cost of all that containers, stopped ones included, held until now."""
        self._cost_dollars += self._dollars_per_ms * (now_ms - self._cost_until_ms)
        self._cost_until_ms = now_ms
        return self._cost_dollars

    # -- rescaling -----------------------------------------------------------------------------

    def _desired_counts(self, now_ms: float) -> dict[ContainerSet, int]:
        seconds = (now_ms - self._rescaled_ms) / 1000
        self._rescaled_ms = now_ms
        demand = {}
        for queue, sets in self._sets.items():
            counts = {c: containers.desired for c, containers in sets.items() if containers.desired}
            rate_rps = queue.arrived / seconds if seconds else 0.0
            demand[queue.key] = Demand(rate_rps, len(queue.jobs), counts)
            queue.arrived = 0
        try:
            answer = self._policy.desired_containers(now_ms, demand)
            return {
                self._set(self._by_key[key], configuration): count
                for key, configurations in answer.items()
                for configuration, count in configurations.items()
            }
        except Exception as error:
            raise PolicyError.of(self._policy.name, None, now_ms, error) from error

    def _set(self, queue: StageQueue, configuration: Configuration) -> ContainerSet:
        containers = self._sets[queue].get(configuration)
        if containers is None:
            offers = self._grants.offers(queue.function.candidates(configuration))
            containers = self._sets[queue][configuration] = ContainerSet(queue, offers)
        return containers

    def _shrink(self, containers: ContainerSet, count: int, now_ms: float) -> None:
        while containers.desired > count and containers.idle:
            self._stop(containers.idle.pop(0), containers, now_ms)
        containers.surplus = max(containers.count - count, 0)

    def _grow(self, containers: ContainerSet, now_ms: float) -> bool:
        """Start one container; return false if no node has capacity for it."""
        offers, queue = containers.offers, containers.queue
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
        container = self._cluster.start_reserved(queue.function, grant, gpu, now_ms, warm=warm)
        self._set_of[container] = containers
        containers.count += 1
        self._change(grant.dollars_per_ms, now_ms)
        self._events.push(container.ready_ms, CONTAINER_READY, container)
        return True

    def _stop(self, container: Container, containers: ContainerSet, now_ms: float) -> None:
        containers.count -= 1
        del self._set_of[container]
        self._cluster.stop(container, now_ms)
        self._change(-container.grant.dollars_per_ms, now_ms)

    def _change(self, dollars_per_ms: float, now_ms: float) -> None:
        self.accrued_dollars(now_ms)
        self._dollars_per_ms += dollars_per_ms
