"""The parts of a gateway with several replicas, joined."""

from collections.abc import Callable
from functools import partial

from scheduler.cluster.leases import LeaseClient
from scheduler.cluster.resource import LEASES, SERVER_PODS
from scheduler.cluster.watches import Watched
from scheduler.gateway.discovery.function_servers import Listener, PoolListener
from scheduler.gateway.http.front import ForwardedCalls
from scheduler.gateway.replicas.dispatch_fence import DispatchFence
from scheduler.gateway.replicas.lease_keeper import LeaseKeeper, clock_s
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

LEASE_LABELS = {"app.kubernetes.io/component": "esg-gateway-shard"}
_LEAVE_S = 5.0


class Replicas:
    """This replica among the others.

    Attributes:
        gate: listener of documents and pods.
        front: backend of clients' calls.
        owned: backend of the calls that other replicas forward.

    Args:
        gateway: settings, with ``peers``.
        connect: opens the client of a pod's model server.
        clock: seconds of the leases.
        peers: connections to the other replicas; None: by the port of requests over HTTP.
    """

    gate: ShardGate
    front: ReplicatedFront
    owned: OwnedShards
    _keeper: LeaseKeeper

    def __init__(
        self,
        gateway: GatewaySettings,
        connect: ConnectServer,
        *,
        clock: Callable[[], float] = clock_s,
        peers: Peers | None = None,
    ) -> None:
        self._gateway = gateway
        self._clock_s = clock
        self._ownership = Ownership(gateway.pod_name, LeaseTimes())
        self._fence = DispatchFence(connect, lambda name: self._ownership.owns(name, clock()))
        self.connect: ConnectServer = self._fence.connect
        tls = None if gateway.tls_cert is None else partial(peer_tls, gateway.tls_cert)
        self._peers = peers or Peers(gateway.port, tls)
        self._members = MemberPods(self._members_changed)

    def serve(self, runtime: Runtime, pods: Listener, pool: PoolListener | None = None) -> None:
        """Create the gate, and the backends, of a runtime whose connections are `connect`'s."""
        self.gate = ShardGate(runtime, pods, pool)
        self.owned = OwnedShards(runtime, self.gate, self._fence)
        self.front = ReplicatedFront(
            runtime,
            self.owned,
            self.gate,
            self._peers,
            lambda shard: self._ownership.owner(shard, self._clock_s()),
        )
        self._keeper = LeaseKeeper(
            self._ownership, self.owned, self.front.owner_changed, self._clock_s
        )

    @property
    def forwarded(self) -> ForwardedCalls:
        """Answers to the calls that other replicas forward."""
        return ForwardedCalls(self.owned, self._peers.has)

    def watched(self) -> Watched:
        """Return the resources to watch."""
        namespace = self._gateway.pod_namespace
        selector = ",".join(f"{name}={value}" for name, value in LEASE_LABELS.items())
        return (
            (SERVER_PODS.within(namespace).labelled(self._gateway.peers), self._members),
            (LEASES.within(namespace).labelled(selector), self._keeper),
        )

    async def run(self, leases: LeaseClient) -> None:
        """Take and keep shards until cancelled."""
        try:
            await self._keeper.run(leases)
        finally:
            await self._peers.close()

    async def leave(self) -> None:
        """Pass all shards on."""
        await self._keeper.leave(_LEAVE_S)

    def _members_changed(self, members: MemberPods) -> None:
        self._ownership.set_members(members.ready)
        self._peers.set_hosts(members.hosts)
