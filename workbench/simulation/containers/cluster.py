"""Simulated cluster: nodes in the live ledger, and the containers on their GPUs.

A container that runs, starts, or belongs to an autoscaler holds vCPUs, share and memory in the
ledger. A warm container without a run is not in the ledger: it is evicted when what it has is
needed. With fixed shares, as MPS has them, it has its vCPUs, share and memory until it ends, and
they are paid. With `resizable`, or without `idle_share`, it has its memory alone.
"""

from collections.abc import Iterable, Iterator

from scheduler.ledger.ledger import Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.node import Gpu, Node
from workbench.simulation.containers.functions import Container, Function
from workbench.simulation.containers.grant_cache import ContainerGrant
from workbench.simulation.containers.pools import LeastRecentlyUsed
from workbench.simulation.recorder import HeldCost, TimedCost, UtilisationTrace
from workbench.simulation.scenario import Scenario

MULTIPROCESSORS = 108  # of an A100; nothing here depends on it


class SimulatedCluster:
    """Containers on GPUs, and the memory that they hold.

    Attributes:
        ledger: reservations under the limits of the live service.
        gpu_uuids, node_of: UUID and node of each GPU, by its row in the fleet.
        utilisation: share of the GPUs that containers hold, over time.
        held_cost: cost of what containers hold, over time.
        start_cost: the part of it that they hold while they start.
        node_cost: cost of the whole nodes that have a container or a slice.
        evictions: number of containers that ended because others needed their resources.
        containers_on: containers of each GPU, by its row in the fleet.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.ledger = Ledger(scenario.limits)
        for node in nodes_of(scenario):
            self.ledger.set_node(node)
        fleet = self.ledger.fleet
        self.gpu_uuids = [gpu.uuid for gpu in fleet.gpus if gpu is not None]
        self.gpu_models = [gpu.model for gpu in fleet.gpus if gpu is not None]
        self.node_names = [node.name for node in fleet.nodes if node is not None]
        self.node_of = [
            row for row, count in enumerate(fleet.arrays.node_gpus.tolist()) for _ in range(count)
        ]
        self.utilisation = UtilisationTrace(scenario.limits.percent_max * len(self.gpu_uuids))
        self.held_cost = HeldCost()
        self.start_cost = TimedCost()
        self.node_cost = HeldCost()
        prices = scenario.rules.prices
        self._node_dollars_per_ms = [
            prices.request_cost_dollars(1.0, shape.cpus, 0, 1)
            + shape.gpus * prices.request_cost_dollars(1.0, 0, 100, 1, shape.gpu_model)
            for shape in scenario.node_shapes
        ]
        self._tenants = [0] * len(self.node_names)  # containers and slices
        self.evictions = 0
        self._fixed = scenario.idle_share and not scenario.resizable
        self._free_percent = [scenario.limits.percent_max] * len(self.gpu_uuids)
        self._free_cpu_milli = [shape.cpus * 1000 for shape in scenario.node_shapes]
        self._keep_alive_ms = scenario.container_keep_alive_ms
        context_mib = scenario.limits.server_context_mib
        self._free_mib = [gpu.memory_mib - context_mib for gpu in fleet.gpus if gpu is not None]
        self._free_clients = [scenario.limits.clients_max] * len(self.gpu_uuids)
        self._unclaimed: list[LeastRecentlyUsed[Container]] = [
            LeastRecentlyUsed() for _ in self.gpu_uuids
        ]
        self.containers_on: list[dict[Container, None]] = [{} for _ in self.gpu_uuids]
        self._created = 0

    # -- runs ----------------------------------------------------------------------------------

    def begin(
        self, function: Function, grant: ContainerGrant, gpu: int, now_ms: float
    ) -> tuple[Container, bool]:
        """Claim or create a container on a GPU that has the capacity; return it, and if it is new.

        The run begins at its ``ready_ms``, which may be past.
        """
        container = function.pool(grant).claim(gpu)
        is_new = container is None
        if container is None:
            container = self._created_on(gpu, function, grant, now_ms)
        else:
            function.unclaimed -= 1
            if container in self._unclaimed[gpu]:
                del self._unclaimed[gpu][container]
            else:  # it is starting
                self._release(container, now_ms)
            if grant.memory_mib != container.memory_mib:
                self._take_memory(container, grant, now_ms)
            self._count_start(container, now_ms, -1)
        self._reserve(container, grant, now_ms)
        self._count_start(container, now_ms, 1)
        return container, is_new

    def end(self, container: Container, now_ms: float) -> None:
        """End a container's run: it is idle."""
        self._release(container, now_ms)
        container.idle_since_ms = now_ms
        container.pool.add_idle(container)
        container.function.unclaimed += 1
        self._unclaimed[container.gpu][container] = None

    def is_full(self, gpu: int, grant: ContainerGrant) -> bool:
        """Return true if another container on a GPU would evict one."""
        if self._free_mib[gpu] < grant.memory_mib or self._free_clients[gpu] < 1:
            return True
        return self._fixed and self._lacks_share(gpu, grant)

    def gpus_from(self, nodes: Iterable[int]) -> Iterator[int]:
        """Yield the rows of the GPUs of these rows of nodes, in their order."""
        fleet = self.ledger.fleet
        for node in nodes:
            first = int(fleet.arrays.node_first_gpu[node])
            yield from range(first, first + int(fleet.arrays.node_gpus[node]))

    # -- containers that wait for a run ---------------------------------------------------------

    def start(
        self,
        function: Function,
        grant: ContainerGrant,
        gpu: int,
        now_ms: float,
        *,
        warm: bool = False,
    ) -> Container | None:
        """Start a container without a run; None if the GPU or its node has no room.

        It holds its grant while it starts, as a container that starts for a run does. ``warm``: it
        is ready at once.
        """
        arrays = self.ledger.fleet.arrays
        if (
            self.is_full(gpu, grant)
            or arrays.gpu_model[gpu] < 0  # it has failed
            or arrays.gpu_free_percent[gpu] < grant.percent
            or arrays.node_free_cpu_milli[self.node_of[gpu]] < grant.cpu_milli
        ):
            return None
        container = self._created_on(gpu, function, grant, now_ms)
        if warm:
            container.ready_ms = now_ms
        container.idle_since_ms = container.ready_ms
        pool = container.pool
        if container.ready_ms <= now_ms:
            pool.add_idle(container)
            self._unclaimed[gpu][container] = None
        else:
            pool.add_starting(container)
            self._reserve(container, grant, now_ms)
            self._count_start(container, now_ms, 1)
        function.unclaimed += 1
        return container

    def started(self, container: Container, now_ms: float) -> bool:
        """End the start of a container; return true if it is still unclaimed."""
        if not container.pool.started(container):
            return False
        self._release(container, now_ms)
        self._unclaimed[container.gpu][container] = None
        return True

    def expire_ms(self, now_ms: float) -> float:
        """End containers whose keep-alive is over; return the time of the next one, inf: none."""
        for unclaimed in self._unclaimed:
            for container in list(unclaimed):
                if container.idle_since_ms + self._keep_alive_ms <= now_ms:
                    self._end_unclaimed(container, now_ms)
        return min(pool.idle_since_ms() for pool in self._unclaimed) + self._keep_alive_ms

    def lose(self, container: Container, now_ms: float, *, is_running: bool) -> None:
        """End a container, with its run or its start if it has one."""
        if is_running:
            self.end(container, now_ms)
        elif container not in self._unclaimed[container.gpu]:
            self.started(container, now_ms)
        self._end_unclaimed(container, now_ms)

    # -- containers of an autoscaler -----------------------------------

    def start_reserved(  # noqa: PLR0913 - each by its name
        self,
        function: Function,
        grant: ContainerGrant,
        gpu: int,
        now_ms: float,
        *,
        warm: bool = False,
        pooled: bool = False,
    ) -> Container:
        """Start a container that holds its grant until it is stopped.

        ``warm``: it is ready at once. ``pooled``: it holds its memory, and a slice holds the rest.
        """
        container = self._created_on(gpu, function, grant, now_ms, pooled=pooled)
        if warm:
            container.ready_ms = now_ms
        self._reserve(container, grant, now_ms)
        self._count_start(container, now_ms, 1)
        return container

    def stop(self, container: Container, now_ms: float) -> None:
        """End a container of an autoscaler."""
        self._release(container, now_ms)
        self._forget(container, now_ms)

    # -- slices --------------------------------------------------------------------------------

    def start_slice(self, grant: ContainerGrant, gpu: int, now_ms: float) -> Reservation:
        """Hold percent and vCPUs of a GPU until `stop_slice`."""
        self._created += 1
        uid = f"slice-{self._created}"
        holder = Reservation(
            uid=uid,
            namespace="default",
            name=uid,
            node=self.node_names[self.node_of[gpu]],
            cpu_milli=grant.cpu_milli,
            gpu_uuid=self.gpu_uuids[gpu],
            gpu_percent=grant.percent,
        )
        self.ledger.assume(holder)
        self._change_share(grant, gpu, now_ms, 1)
        self._change_tenants(self.node_of[gpu], now_ms, 1)
        return holder

    def stop_slice(
        self, holder: Reservation, grant: ContainerGrant, gpu: int, now_ms: float
    ) -> None:
        """End a slice."""
        self.ledger.release(holder.uid)
        self._change_share(grant, gpu, now_ms, -1)
        self._change_tenants(self.node_of[gpu], now_ms, -1)

    def has_room(self, gpu: int, grant: ContainerGrant, *, pooled: bool = False) -> bool:
        """Return true if a GPU works and has memory and a client, or percent and vCPUs, free."""
        arrays = self.ledger.fleet.arrays
        if arrays.gpu_model[gpu] < 0:  # it has failed
            return False
        if pooled:
            return self._free_mib[gpu] >= grant.memory_mib and self._free_clients[gpu] > 0
        return not self._lacks_share(gpu, grant)

    def free_mib(self, gpu: int) -> int:
        """Return the memory of a GPU that no container holds."""
        return self._free_mib[gpu]

    # -- the arithmetic ------------------------------------------------------------------------

    def _release(self, container: Container, now_ms: float) -> None:
        self.ledger.release(container.uid)
        if not (self._fixed or container.pooled):
            self._hold(container.grant, now_ms, -1)

    def _reserve(self, container: Container, grant: ContainerGrant, now_ms: float) -> None:
        container.grant = grant
        reservation = container.reservations.get(grant)
        if reservation is None:
            reservation = container.reservations[grant] = Reservation(
                uid=container.uid,
                namespace="default",
                name=container.uid,
                node=self.node_names[container.node],
                cpu_milli=0 if container.pooled else grant.cpu_milli,
                gpu_uuid=self.gpu_uuids[container.gpu],
                gpu_percent=0 if container.pooled else grant.percent,
                memory_mib=grant.memory_mib,
                batch=grant.batch,
                function=container.function.name,
            )
        self.ledger.assume(reservation)
        if not (self._fixed or container.pooled):
            self._hold(grant, now_ms, 1)

    def _hold(self, grant: ContainerGrant, now_ms: float, sign: int) -> None:
        self.utilisation.add(now_ms, sign * grant.percent)
        self.held_cost.change(now_ms, sign * grant.dollars_per_ms)

    def _created_on(
        self,
        gpu: int,
        function: Function,
        grant: ContainerGrant,
        now_ms: float,
        *,
        pooled: bool = False,
    ) -> Container:
        self._created += 1
        container = Container(self._created, function, grant, gpu, self.node_of[gpu])
        container.pooled = pooled
        container.ready_ms = now_ms + function.draw_start_ms()
        function.containers += 1
        self.containers_on[gpu][container] = None
        self._change_tenants(container.node, now_ms, 1)
        if self._free_clients[gpu] < 1:
            self._evict(gpu, now_ms)
        self._free_clients[gpu] -= 1
        self._take_memory(container, grant, now_ms)
        if self._fixed and not pooled:
            self._take_share(container, now_ms)
        return container

    def _take_memory(self, container: Container, grant: ContainerGrant, now_ms: float) -> None:
        gpu = container.gpu
        extra_mib = grant.memory_mib - container.memory_mib
        while self._free_mib[gpu] < extra_mib:
            self._evict(gpu, now_ms)
        self._free_mib[gpu] -= extra_mib
        container.memory_mib = grant.memory_mib

    def _take_share(self, container: Container, now_ms: float) -> None:
        """Hold vCPUs and share from the container's start to its end."""
        gpu, grant = container.gpu, container.grant
        while self._free_percent[gpu] < grant.percent:
            self._evict(gpu, now_ms)
        while self._free_cpu_milli[container.node] < grant.cpu_milli:
            self._evict(self._idle_longest(container.node), now_ms)
        self._change_share(grant, gpu, now_ms, 1)

    def _change_share(self, grant: ContainerGrant, gpu: int, now_ms: float, sign: int) -> None:
        self._free_percent[gpu] -= sign * grant.percent
        self._free_cpu_milli[self.node_of[gpu]] -= sign * grant.cpu_milli
        self._hold(grant, now_ms, sign)

    def _count_start(self, container: Container, now_ms: float, sign: int) -> None:
        """Count what a container holds from now to the end of its start, if it has not started."""
        if container.ready_ms > now_ms and not container.pooled:
            dollars_per_ms = sign * container.grant.dollars_per_ms
            self.start_cost.hold(now_ms, container.ready_ms, dollars_per_ms)

    def _change_tenants(self, node: int, now_ms: float, change: int) -> None:
        before = self._tenants[node]
        self._tenants[node] = before + change
        if not before or not before + change:
            self.node_cost.change(now_ms, change * self._node_dollars_per_ms[node])

    def _lacks_share(self, gpu: int, grant: ContainerGrant) -> bool:
        return (
            self._free_percent[gpu] < grant.percent
            or self._free_cpu_milli[self.node_of[gpu]] < grant.cpu_milli
        )

    def _idle_longest(self, node: int) -> int:
        """Return the GPU of a node with the least recently used container; there must be one."""
        idle = [gpu for gpu in self.gpus_from([node]) if self._unclaimed[gpu]]
        return min(idle, key=lambda gpu: self._unclaimed[gpu].idle_since_ms())

    def _evict(self, gpu: int, now_ms: float) -> None:
        self._end_unclaimed(self._unclaimed[gpu].oldest(), now_ms)
        self.evictions += 1

    def _end_unclaimed(self, container: Container, now_ms: float) -> None:
        del self._unclaimed[container.gpu][container]
        container.pool.remove(container)
        container.function.unclaimed -= 1
        self._forget(container, now_ms)

    def _forget(self, container: Container, now_ms: float) -> None:
        container.function.containers -= 1
        self._count_start(container, now_ms, -1)
        self._change_tenants(container.node, now_ms, -1)
        del self.containers_on[container.gpu][container]
        self._free_mib[container.gpu] += container.memory_mib
        self._free_clients[container.gpu] += 1
        if self._fixed and not container.pooled:
            self._change_share(container.grant, container.gpu, now_ms, -1)


def nodes_of(scenario: Scenario) -> list[Node]:
    """Return the nodes of the cluster."""
    return [
        Node(
            f"node-{n:04d}",
            tuple(
                Gpu(
                    index=i,
                    uuid=f"GPU-{n:04d}-{i}",
                    model=shape.gpu_model,
                    memory_mib=shape.memory_mib,
                    multiprocessors=MULTIPROCESSORS,
                    healthy=True,
                )
                for i in range(shape.gpus)
            ),
            shape.cpus * 1000,
        )
        for n, shape in enumerate(scenario.node_shapes)
    ]
