"""Functions and their containers in the simulated cluster."""

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from scheduler.dispatch.pools import WarmPool
from scheduler.ledger.reservation import Reservation
from scheduler.model.documents import FunctionProfile
from scheduler.model.plan import Candidate, Configuration, Prices
from workbench.simulation.configurations import (
    anywhere,
    cheapest_first,
    configurations_of,
    minimum_candidates,
    warm_first,
)
from workbench.simulation.grant_cache import ContainerGrant

if TYPE_CHECKING:
    from workbench.simulation.autoscaler import ContainerSet
    from workbench.simulation.workflow_state import StageQueue


class Container:
    """A process of one function on one GPU.

    Attributes:
        number: in order of creation.
        gpu, node: rows of the fleet.
        memory_mib: that it holds on the GPU, whether a run is in it or not.
        ready_ms: when its start is over.
        idle_since_ms: the end of its last run, or of its start.
        holds: the reservations that it has had, by grant.
        kept: the set that keeps it, under a policy that keeps containers.
        grant: of its last run, or that it was started for.
    """

    __slots__ = (
        "function",
        "gpu",
        "grant",
        "holds",
        "idle_since_ms",
        "kept",
        "memory_mib",
        "node",
        "number",
        "ready_ms",
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
        self.holds: dict[ContainerGrant, Reservation] = {}
        self.kept: ContainerSet | None = None
        self.grant = grant


class Function:
    """What all queues of one function share: its containers are warm for each of them.

    Attributes:
        containers: how many there are, busy ones included.
        unclaimed: how many of them no run is in, nor keeps.
        shared: the warm containers, where each runs under any grant; otherwise None.
        queues: those that it serves.
    """

    __slots__ = (
        "_gpus",
        "_pools",
        "_prices",
        "cold_ms",
        "containers",
        "name",
        "profile",
        "queues",
        "shared",
        "unclaimed",
    )

    def __init__(
        self, profile: FunctionProfile, gpus: int, prices: Prices, *, resizable: bool
    ) -> None:
        self.profile = profile
        self._prices = prices
        self.name = profile.metadata.name
        self.cold_ms = profile.spec.cold_start_ms
        self.shared: WarmPool[Container] | None = WarmPool(gpus) if resizable else None
        self.queues: list[StageQueue] = []
        self.containers = 0
        self.unclaimed = 0
        self._gpus = gpus
        self._pools: dict[ContainerGrant, WarmPool[Container]] = {}

    def pool(self, grant: ContainerGrant) -> WarmPool[Container]:
        """The warm containers that can run under a grant: all, where they may be resized."""
        pool = self.shared or self._pools.get(grant)
        if pool is None:
            pool = self._pools[grant] = WarmPool(self._gpus)
        return pool

    def lacks(self, grant: ContainerGrant | None) -> bool:
        """Whether no container is free, or about to be, that can run under a grant; None: any."""
        if self.shared is not None or grant is None:
            return self.unclaimed == 0
        return bool(self.pool(grant).ready_ms.min() == inf)

    def minimum(self, starts_ms: Iterable[float] = ()) -> tuple[Candidate, ...]:
        """The minimum configuration on each GPU model, anywhere; where a start is short first."""
        return warm_first(minimum_candidates(self.profile, self._prices), (*starts_ms, inf))

    def candidates(self, configuration: Configuration) -> tuple[Candidate, ...]:
        """That configuration on the GPU models whose profile has it, the cheapest model first."""
        offered = (
            anywhere(each, gpu.model)
            for gpu in self.profile.spec.gpus
            for each in configurations_of(gpu)
            if each == configuration
        )
        found = cheapest_first(offered, self._prices)
        if not found:
            raise ValueError(f"function {self.name} has no {configuration}")
        return found
