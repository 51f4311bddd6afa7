"""The parts of a gateway with several replicas, joined.

`ReplicaLeases` guards the connections of the runtime, over which `ReplicatedGateway` stands.
"""

from collections.abc import Callable
from functools import partial

from scheduler.cluster.leases import SHARD_SELECTOR, LeaseClient
from scheduler.cluster.resource import LEASES, SERVER_PODS
from scheduler.cluster.watches import Watched
from scheduler.gateway.discovery.function_servers import Listener, PoolListener
from scheduler.gateway.http.front import ForwardedCalls
from scheduler.gateway.replicas.dispatch_fence import DispatchFence
from scheduler.gateway.replicas.lease_keeper import LeaseKeeper
from scheduler.gateway.replicas.members import MemberPods
from scheduler.gateway.replicas.owned_shards import OwnedShards
from scheduler.gateway.replicas.ownership import Ownership
from scheduler.gateway.replicas.peers import Peers, peer_tls
from scheduler.gateway.replicas.replicated_front import ReplicatedFront
from scheduler.gateway.replicas.shard_gate import ShardGate
from scheduler.gateway.replicas.shard_lease import LeaseTimes
from scheduler.gateway.serving.connected_pods import ConnectServer
from scheduler.gateway.serving.runtime import Runtime
from scheduler.gateway.settings import GatewaySettings

_LEAVE_S = 5.0


class ReplicaLeases:
    """The shards that this replica owns, and the other replicas.

    Attributes:
        ownership: leases of all shards, as this replica sees them.
        fence: opens clients of pods that send nothing without the ownership of their shard.
        members: receiver of the replicas' pods.

    Args:
        settings: settings of the gateway, with ``peers``.
        client: reads and writes the Leases.
        connect: opens the client of a pod's model server.
        clock: seconds that go on while the machine is suspended.
        peers: connections to the other replicas. Default: by the port of requests over HTTP.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        client: LeaseClient,
        connect: ConnectServer,
        *,
        clock: Callable[[], float],
        peers: Peers | None = None,
    ) -> None:
        self.settings = settings
        self.client = client
        self.clock_s = clock
        self.ownership = Ownership(settings.pod_name, LeaseTimes())
        self.fence = DispatchFence(connect, lambda name: self.ownership.owns(name, clock()))
        tls = None if settings.tls_cert is None else partial(peer_tls, settings.tls_cert)
        self.peers = peers or Peers(settings.port, tls)
        self.members = MemberPods(self._members_changed)

    def owner(self, shard: int) -> str:
        """Return the replica that calls of a shard go to; empty: none is known."""
        return self.ownership.owner(shard, self.clock_s())

    def _members_changed(self, members: MemberPods) -> None:
        self.ownership.set_members(members.ready)
        self.peers.set_hosts(members.hosts)


class ReplicatedGateway:
    """This replica among the others.

    Attributes:
        gate: listener of documents and pods.
        front: backend of clients' calls.
        owned: backend of the calls that other replicas forward.

    Args:
        leases: shards of this replica.
        runtime: answers calls; its connections to pods are those of the fence of `leases`.
        pods: listener of servers and their pods.
        pool: listener of pods of templates, if the gateway creates pods.
        on_refused: callback with the status of each call that is given up without an owner.
    """

    def __init__(
        self,
        leases: ReplicaLeases,
        runtime: Runtime,
        pods: Listener,
        pool: PoolListener | None = None,
        on_refused: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._leases = leases
        self.gate = ShardGate(runtime, pods, pool)
        self.owned = OwnedShards(runtime, self.gate, leases.fence)
        self.front = ReplicatedFront(
            runtime,
            self.owned,
            self.gate,
            leases.peers,
            leases.owner,
            on_refused=on_refused,
        )
        self._keeper = LeaseKeeper(
            leases.client,
            ownership=leases.ownership,
            host=self.owned,
            on_owner=self.front.owner_changed,
            clock=leases.clock_s,
            group=leases.settings.group,
        )

    @property
    def forwarded(self) -> ForwardedCalls:
        """Answers to the calls that other replicas forward."""
        return ForwardedCalls(self.owned, self._leases.peers.has)

    def watched(self) -> Watched:
        """Return the resources to watch."""
        settings = self._leases.settings
        pods = SERVER_PODS.within(settings.pod_namespace).labelled(settings.peers)
        leases = LEASES.within(settings.pod_namespace).labelled(SHARD_SELECTOR)
        return (pods, self._leases.members), (leases, self._keeper)

    async def run(self) -> None:
        """Take and keep shards until cancelled."""
        try:
            await self._keeper.run()
        finally:
            await self._leases.peers.close()

    async def leave(self) -> None:
        """Pass all shards on."""
        await self._keeper.leave(_LEAVE_S)
