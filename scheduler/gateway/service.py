"""The gateway's service: what it knows of the cluster, the runtime over it, and its readiness."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import NamedTuple, Protocol

import structlog

from scheduler.cluster.leases import SHARD_LABELS, LeaseClient
from scheduler.cluster.owner_lease import boottime_s
from scheduler.cluster.reflector_group import unsynced_reason
from scheduler.cluster.resource import (
    FUNCTION_PROFILES,
    FUNCTION_SERVERS,
    NODES,
    SERVER_PODS,
    WORKFLOWS,
)
from scheduler.cluster.status_writer import StatusWriter
from scheduler.cluster.watches import Watched
from scheduler.gateway.access import Reviews, TokenAccess
from scheduler.gateway.body_memory import BodyMemory
from scheduler.gateway.calls import Backend
from scheduler.gateway.cost_limits import CostLimits
from scheduler.gateway.discovery.documents import ServedDocuments
from scheduler.gateway.discovery.function_servers import Discovery
from scheduler.gateway.discovery.gpu_nodes import GpuNodes
from scheduler.gateway.discovery.server_pods import ServerPod
from scheduler.gateway.metrics import GatewayMetrics
from scheduler.gateway.model_server import ModelServer
from scheduler.gateway.model_servers import model_server
from scheduler.gateway.pod_demand import PodDemand
from scheduler.gateway.replicas.peers import Peers
from scheduler.gateway.replicas.replicas import ReplicaLeases, ReplicatedGateway
from scheduler.gateway.scaling.pod_writes import PodClient
from scheduler.gateway.scaling.slice_fence import SliceFence
from scheduler.gateway.scaling.template_pods import EventRecorder, TemplatePods
from scheduler.gateway.serving.call_trace import TraceRing
from scheduler.gateway.serving.connected_pods import ConnectServer
from scheduler.gateway.serving.runtime import Runtime
from scheduler.gateway.serving_conditions import PERIOD_S, ServingConditions
from scheduler.gateway.settings import GatewaySettings
from scheduler.model.function_server import FunctionServer
from scheduler.search import planner
from scheduler.server.background import background_tasks, repeat
from scheduler.settings import Settings

log = structlog.get_logger(__name__)
MIB = 2**20
_READY_POLL_S = 0.05
_UNSERVED_PERIOD_S = 5.0


class Link(Protocol):
    """Connection to a cluster, as `scheduler.cluster.watches.Watches`."""

    def follow(self, watched: Watched) -> None: ...
    def staleness_s(self) -> dict[str, float]: ...
    def troubles(self) -> dict[str, str]: ...
    def synced(self) -> bool: ...
    async def run(self) -> None: ...
    @property
    def pods(self) -> PodClient: ...
    @property
    def events(self) -> EventRecorder: ...
    @property
    def reviews(self) -> Reviews: ...
    @property
    def statuses(self) -> StatusWriter: ...
    def leases(self, namespace: str, labels: Mapping[str, str]) -> LeaseClient: ...


def _client(pod: ServerPod) -> ModelServer:
    return model_server(pod.server.protocol, pod.host, pod.server.port)


class Environment(NamedTuple):
    """The model servers, replicas and clock of one process.

    Attributes:
        model_server: opens the client of a pod's model server.
        lease_clock: seconds that go on while the machine is suspended.
        peers: connections to the other replicas. Default: over HTTP.
    """

    model_server: ConnectServer = _client
    lease_clock: Callable[[], float] = boottime_s
    peers: Peers | None = None


class GatewayService:
    """One process of the gateway, on a running event loop; it works while `running`.

    Attributes:
        fatal_error: reason why a background task ended; /healthz then has the container restarted.
        metrics: metrics of the gateway.
        cost_limits: least cost of a request of each workflow; the health server updates it.
        memory: bound on the bodies that all fronts hold.
        nodes: nodes with GPUs; None: pods are not created here.
        runtime: runtime that answers the calls.
        works: background tasks to run meanwhile; further ones are added before `running`.

    Args:
        settings: settings of planning, logs and the health server.
        gateway: settings of the gateway alone.
        link: connection to the cluster whose objects the service follows.
        environment: parts around the process, apart from the cluster.
    """

    def __init__(
        self,
        settings: Settings,
        gateway: GatewaySettings,
        link: Link,
        environment: Environment | None = None,
    ) -> None:
        environment = environment or Environment()
        self.link = link
        self.settings = settings
        self.gateway = gateway
        self.fatal_error = ""
        self._kernels_ready = False
        self._demand = PodDemand(asyncio.get_running_loop().time)
        self.metrics = GatewayMetrics(settings.prices, self._demand, gateway.group)
        self.memory = BodyMemory(gateway.memory_max_mib * MIB, self.metrics.front_refused)
        client = environment.model_server
        leases: ReplicaLeases | None = None
        if gateway.peers:
            leases = ReplicaLeases(
                gateway,
                link.leases(gateway.pod_namespace, SHARD_LABELS),
                client,
                clock=environment.lease_clock,
                peers=environment.peers,
            )
            client = leases.fence.connect
        slice_fence = SliceFence(client, environment.lease_clock)
        client = slice_fence.connect
        self.runtime = Runtime(
            settings.rules,
            self.metrics,
            client,
            rows_max=gateway.rows_max,
            on_late=settings.on_lost_slo,
        )
        self.runtime.traces = TraceRing(gateway.trace_max_mib * MIB, gateway.trace_every)
        self.access: TokenAccess | None = None
        self.works: list[Callable[[], Coroutine[None, None, None]]] = []
        if gateway.access:
            self.access = self._token_access(gateway)
        self.template_pods: TemplatePods | None = None
        if gateway.pods:
            self.template_pods = TemplatePods(
                self.runtime,
                settings=settings,
                gateway=gateway,
                slice_fence=slice_fence,
                connect=client,
                link=link,
            )
        pools = None if self.template_pods is None else self.template_pods.pools
        self.nodes: GpuNodes | None = None
        if self.template_pods is not None:  # the sizes of new pods
            self.nodes = GpuNodes(self.template_pods.set_per_gpu)
        self.replicas: ReplicatedGateway | None = None
        if leases is not None:
            self.replicas = ReplicatedGateway(
                leases, self.runtime, pools or self.runtime, pools, self.metrics.front_refused
            )
        gate = self.replicas.gate if self.replicas else None
        self.documents = ServedDocuments(
            gate or self.runtime,
            stages_max=settings.stages_max,
            on_workflow=self.metrics.workflow_changed,
        )
        self.discovery = Discovery(
            gate or pools or self.runtime, self.documents.profile, pools and (gate or pools)
        )
        self.cost_limits = CostLimits(self.documents.store.catalogue, settings.prices)
        self.documents.on_profile = self.discovery.profile_changed
        self.conditions = ServingConditions(
            self.documents,
            self.discovery,
            is_owner=self._is_owner,
            pods_wanted=self.pods_wanted,
            refusal=None if pools is None else pools.refusal,
            group=gateway.group,
        )
        self._follow()

    def _follow(self) -> None:
        """Set the receivers of the watches, in the order of their first lists."""
        namespace, group = self.gateway.namespace, self.gateway.group_selector
        if self.nodes is not None:
            self.link.follow([(NODES, self.nodes)])
        self.link.follow(
            (
                (FUNCTION_PROFILES, self.documents.store.profiles),
                (WORKFLOWS.within(namespace).labelled(group), self.documents.store.workflows),
                (FUNCTION_SERVERS.within(namespace).labelled(group), self.discovery.servers),
                (SERVER_PODS.within(namespace).labelled(group), self.discovery.pods),
            )
        )
        if self.replicas is not None:
            self.link.follow(self.replicas.watched())

    def _token_access(self, gateway: GatewaySettings) -> TokenAccess:
        # It takes 0.2 s to load, which a gateway without access control does not need.
        from scheduler.gateway.token_filter import TokenFilter  # noqa: PLC0415

        token_filter = TokenFilter(self.link.reviews, gateway.further_issuers)
        self.works.append(token_filter.follow)
        return TokenAccess(
            self.link.reviews,
            prefilter=token_filter.check,
            on_refused=self.metrics.front_refused,
        )

    # -- life cycle ------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the cluster while inside; at the end, close all connections to pods."""
        works = [self._prepare(), self.link.run(), *(work() for work in self.works)]
        works.append(repeat(self._write_statuses, PERIOD_S))
        works.append(repeat(self.runtime.refuse_unserved, _UNSERVED_PERIOD_S))
        if self.template_pods is not None:
            works.append(self.template_pods.run())
        if self.replicas is not None:
            works.append(self._replicate(self.replicas))
        async with contextlib.AsyncExitStack() as stack:
            if url := self.gateway.otlp_url:
                # It takes time and memory that a gateway without spans does not need.
                from scheduler.gateway.call_spans import sending_spans  # noqa: PLC0415

                runtime = self.runtime
                sending = sending_spans(url, runtime.traces, unix_offset_ms=runtime.unix_offset_ms)
                await stack.enter_async_context(sending)
            stack.push_async_callback(self.runtime.close)
            async with background_tasks(works, self.note_exit):
                yield

    @property
    def backend(self) -> Backend:
        """Backend of clients' calls."""
        return self.runtime if self.replicas is None else self.replicas.front

    async def _prepare(self) -> None:
        await asyncio.to_thread(planner.prepare)
        self._kernels_ready = True

    async def _replicate(self, replicas: ReplicatedGateway) -> None:
        while self.not_ready_reason():  # noqa: ASYNC110 - of several parts
            await asyncio.sleep(_READY_POLL_S)
        await replicas.run()

    async def _write_statuses(self) -> None:
        if not self.not_ready_reason():
            await self.link.statuses.write_all(self.conditions.statuses())

    def _is_owner(self, namespace: str) -> bool:
        """Return true if this process dispatches to a namespace now."""
        return not self.runtime.is_draining and (
            self.replicas is None or self.replicas.owned.serves(namespace)
        )

    async def drain(self) -> None:
        """Be not ready, refuse new calls, and wait until the others are answered.

        A replica passes its shards on first, and its calls go to their new owners.
        """
        log.info("draining")
        if self.replicas is not None:
            await self.replicas.leave()
        await self.runtime.drain(self.gateway.drain_s)
        if self.replicas is not None:
            await self.replicas.front.drain(self.gateway.drain_s)

    def note_exit(self, task: "asyncio.Task[None]") -> None:
        """Note that a background task ended; with an error, the container must be restarted."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fatal_error = f"a background task of the gateway died: {error!r}"
            log.critical("a background task of the gateway died", exc_info=error)

    def not_ready_reason(self) -> str:
        """Reason why it cannot answer calls now; empty when it can."""
        if self.fatal_error:
            return self.fatal_error
        if self.runtime.is_draining:
            return "the gateway is shutting down"
        if not self._kernels_ready:
            return "the kernels are being compiled"
        if not self.link.synced():
            return unsynced_reason(self.link.troubles())
        # A gateway with an old cache still serves the pods that it knows, and every replica's cache
        # is old while the API server is away.
        return ""

    def pods_wanted(self, server: FunctionServer, ready_pods: int) -> int:
        """Return the pods that a function needs for its load."""
        function, spec = server.function_key, server.spec
        if self.template_pods is not None and spec.template is not None:
            return self.template_pods.pods_wanted(function)
        return self._demand.wanted(function, pods=ready_pods, slots=spec.slots)
