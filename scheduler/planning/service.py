"""Cache of a cluster with the planner over it, kept up to date, and its readiness.

The extender and the webhook are processes of their own; each runs one. The cache is read-only here:
`Service` adds the calls of kube-scheduler.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import structlog

from scheduler.cluster.link import ClusterLink, Handlers
from scheduler.cluster.reflector_group import unsynced_reason
from scheduler.model.pod import FunctionPod
from scheduler.placement import placement
from scheduler.planning.metrics import Metrics
from scheduler.planning.pod_planner import PodPlanner
from scheduler.planning.preparation import Preparation
from scheduler.planning.state import State
from scheduler.search import planner as search
from scheduler.server.background import background_tasks
from scheduler.settings import Settings

log = structlog.get_logger(__name__)
_READY_POLL_S = 0.2  # until it is ready for the first time
_UPKEEP_S = 5.0  # between two passes of `PlanningService.upkeep`


ConnectCluster = Callable[[Handlers], AbstractAsyncContextManager[ClusterLink]]


class PlanningService:
    """Plans pods from a cache of the cluster, which it keeps up to date while `running`.

    ``connect`` opens the cluster link, which keeps the given handlers up to date. ``link`` exists
    from the moment `running` is entered. ``clock`` and ``monotonic`` are those of `State`.

    Attributes:
        fatal_error: why a background task ended; /healthz then has the container restarted.
        on_ready: called once, when the service is ready for the first time.
    """

    link: ClusterLink

    def __init__(
        self,
        settings: Settings,
        *,
        connect: ConnectCluster,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.metrics = Metrics(settings.prices)
        self.state = State(settings, self.metrics, clock=clock, monotonic=monotonic)
        self.planner = PodPlanner(self.state)
        self.preparation = Preparation(self.state.documents, self.state.planner, self.planner.fleet)
        self.on_ready: Callable[[], None] = lambda: None
        self.fatal_error = ""
        self.kernels_ready = False
        self._connect = connect

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the cluster while inside."""
        async with self._connect(self.handlers()) as self.link:
            works = (self._prepare(), self.link.run(), self._upkeep())
            async with background_tasks(works, self.note_exit):
                yield

    def handlers(self) -> Handlers:
        """Return the receivers of what is watched."""
        documents = self.state.documents
        return Handlers(self.state.nodes, self.state.pods, documents.workflows, documents.profiles)

    def not_ready_reason(self) -> str:
        """Reason why it cannot answer now; empty when it can."""
        if self.fatal_error:
            return self.fatal_error
        if not self.kernels_ready:
            return "the kernels are being compiled"
        if not self.link.synced():
            return unsynced_reason(self.link.troubles())
        stale = ", ".join(
            f"{resource} for {seconds:.0f} s"
            for resource, seconds in self.link.staleness_s().items()
            if seconds > self.settings.stale_after_s
        )
        return f"no news from the API server about {stale}" if stale else ""

    async def wait_until_prepared(self, pod: FunctionPod | None) -> None:
        """Wait until the pod can be planned at once; at once for a pod without a function."""
        if pod is not None:
            await self.preparation.wait_for(pod.namespace, pod.workflow, pod.stage)

    def note_exit(self, task: "asyncio.Task[None]") -> None:
        """Note that a background task ended; with an error, the container must be restarted."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fatal_error = f"a background task of the service died: {error!r}"
            log.critical("a background task of the service died", exc_info=error)

    async def _prepare(self) -> None:
        began_s = time.perf_counter()
        await asyncio.to_thread(prepare_kernels)
        self.kernels_ready = True
        log.info("kernels are ready", seconds=round(time.perf_counter() - began_s, 3))
        while self.not_ready_reason():  # noqa: ASYNC110 - time alone may end it, no event does
            await asyncio.sleep(_READY_POLL_S)
        log.info("ready")
        self.on_ready()
        await self.preparation.run()

    async def _upkeep(self) -> None:
        while True:
            await asyncio.sleep(_UPKEEP_S)
            try:
                await self.upkeep()
            except Exception:  # the next pass may succeed, and nothing else stops
                log.exception("upkeep failed")

    async def upkeep(self) -> None:
        """Bring up to date what changes with time alone; called every few seconds."""
        self.preparation.follow_fleet()
        self.state.tracker.expire(self.state.clock())


def prepare_kernels() -> None:
    """Compile all kernels, or load them from Numba's cache."""
    search.prepare()
    placement.prepare()
