"""Containers that a policy keeps: they hold what they are given even while no run is in them."""

from collections.abc import Iterable
from math import inf

import numpy as np

from scheduler.model.plan import Candidate, Configuration
from workbench.simulation.errors import PolicyError
from workbench.simulation.events import CONTAINER_READY, EventQueue
from workbench.simulation.functions import Container
from workbench.simulation.grant_cache import GrantOffers
from workbench.simulation.policy import Demand, Policy
from workbench.simulation.setup import SimulationState
from workbench.simulation.workflow_state import StageQueue


class ContainerSet:
    """The containers of one queue under one configuration.

    Attributes:
        count: how many there are; ``surplus`` of them end with their runs.
        idle: those that no run is in, the last used at the end.
    """

    __slots__ = ("count", "idle", "keeper", "offers", "queue", "surplus")

    def __init__(self, keeper: "Autoscaler", queue: StageQueue, offers: GrantOffers) -> None:
        self.keeper = keeper
        self.queue = queue
        self.offers = offers
        self.count = 0
        self.surplus = 0
        self.idle: list[Container] = []

    @property
    def wanted(self) -> int:
        """Those that are to stay."""
        return self.count - self.surplus


class Autoscaler:
    """Keeps the sets of containers as the policy rescales them."""

    def __init__(self, policy: Policy, assembled: SimulationState, agenda: EventQueue) -> None:
        self._policy = policy
        self._queues = assembled.queues
        self._cluster = assembled.cluster
        self._book = assembled.book
        self._agenda = agenda
        self._sets: dict[StageQueue, dict[Configuration, ContainerSet]] = {
            q: {} for q in self._queues
        }
        self._by_key = {queue.key: queue for queue in self._queues}
        self._no_container_ms = np.full(len(self._cluster.gpu_uuids), inf)
        self._no_transfer_ms = np.zeros(len(self._cluster.node_names))
        self._no_predecessors = np.empty(0, np.int64)
        self._warm_at_start = assembled.scenario.warm_containers > 0
        self._rescaled_ms = 0.0
        self._dollars_per_ms = 0.0  # of all that is kept
        self._cost = 0.0
        self._cost_until_ms = 0.0

    def rescale(self, now_ms: float) -> None:
        """Ask the policy, stop what is too much, and start what is too little and finds room.

        Where there is not room for all, the queues are given one container each in turn. Those of
        the very start are warm, as all are then, unless the scenario begins with an empty cluster.
        """
        wanted = self._wanted(now_ms)
        for sets in self._sets.values():
            for kept in sets.values():
                self._shrink(kept, wanted.get(kept, 0), now_ms)
        lacking = [kept for kept, count in wanted.items() if kept.count < count]
        while lacking:
            lacking = [
                kept for kept in lacking if self._grow(kept, now_ms) and kept.count < wanted[kept]
            ]

    def claim(self, queue: StageQueue, candidates: Iterable[Candidate]) -> Container | None:
        """An idle container of the first candidate that has one."""
        sets = self._sets[queue]
        for candidate in candidates:
            kept = sets.get(candidate.configuration)
            if kept is not None and kept.idle:
                return kept.idle.pop()
        return None

    def became_idle(self, container: Container, kept: ContainerSet, now_ms: float) -> None:
        """A kept container's start or run is over."""
        if kept.surplus:
            kept.surplus -= 1
            self._stop(container, kept, now_ms)
        else:
            kept.idle.append(container)

    def held_cost(self, now_ms: float) -> float:
        """Dollars for what all kept containers, stopped ones included, held until now."""
        self._cost += self._dollars_per_ms * (now_ms - self._cost_until_ms)
        self._cost_until_ms = now_ms
        return self._cost

    # -- rescaling -----------------------------------------------------------------------------

    def _wanted(self, now_ms: float) -> dict[ContainerSet, int]:
        seconds = (now_ms - self._rescaled_ms) / 1000
        self._rescaled_ms = now_ms
        demand = {}
        for queue in self._queues:
            counts = {c: kept.wanted for c, kept in self._sets[queue].items() if kept.wanted}
            rate_rps = queue.joined / seconds if seconds else 0.0
            demand[queue.key] = Demand(rate_rps, len(queue.jobs), counts)
            queue.joined = 0
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
        kept = self._sets[queue].get(configuration)
        if kept is None:
            offers = self._book.made(queue.function.candidates(configuration))
            kept = self._sets[queue][configuration] = ContainerSet(self, queue, offers)
        return kept

    def _shrink(self, kept: ContainerSet, count: int, now_ms: float) -> None:
        while kept.wanted > count and kept.idle:
            self._stop(kept.idle.pop(0), kept, now_ms)
        kept.surplus = max(kept.count - count, 0)

    def _grow(self, kept: ContainerSet, now_ms: float) -> bool:
        """Start one container, if any node has room for it."""
        offers, queue = kept.offers, kept.queue
        found = queue.placer.best_gpu(
            offers.table,
            self._no_transfer_ms,
            self._no_container_ms,
            now_ms,
            self._no_predecessors,
        )
        if found is None:
            return False
        grant, gpu = offers.grants[found[0]], found[1]
        warm = self._warm_at_start and now_ms <= 0.0
        container = self._cluster.keep(queue.function, grant, gpu, now_ms, warm=warm)
        container.kept = kept
        kept.count += 1
        self._change(grant.dollars_per_ms, now_ms)
        self._agenda.push(container.ready_ms, CONTAINER_READY, container)
        return True

    def _stop(self, container: Container, kept: ContainerSet, now_ms: float) -> None:
        kept.count -= 1
        self._cluster.stop(container, now_ms)
        self._change(-container.grant.dollars_per_ms, now_ms)

    def _change(self, dollars_per_ms: float, now_ms: float) -> None:
        self.held_cost(now_ms)
        self._dollars_per_ms += dollars_per_ms
