"""Cache of a cluster with the planner over it, kept up to date, and its readiness.

The extender and the webhook are processes of their own; each runs one. It writes nothing to the
cluster: the extender's `Service` answers the calls of kube-scheduler over it.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from functools import cache

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
from scheduler.server.background import background_tasks, repeat
from scheduler.settings import Settings

log = structlog.get_logger(__name__)
_READY_POLL_S = 0.2  # until it is ready for the first time
UPKEEP_S = 5.0  # between two passes over what changes with time alone


class PlanningService:
    """Plans pods from a cache of the cluster, which it keeps up to date while `running`.

    Args:
        settings: limits, prices and rules of plans.
        link: connection to the cluster whose objects the service follows.
        clock: seconds since the epoch.
        monotonic: clock of all waiting times, seconds.

    Attributes:
        fatal_error: reason why a background task ended; /healthz then has the container restarted.
        on_ready: callback for the first time that the service is ready.
    """

    def __init__(
        self,
        settings: Settings,
        link: ClusterLink,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.link = link
        self.metrics = Metrics(settings.prices)
        self.state = State(settings, self.metrics, clock=clock, monotonic=monotonic)
        self.planner = PodPlanner(self.state)
        self.preparation = Preparation(self.state.documents, self.state.planner, self.planner.fleet)
        self.on_ready: Callable[[], None] = lambda: None
        self.fatal_error = ""
        self.kernels_ready = False
        documents = self.state.documents
        link.follow(
            Handlers(self.state.nodes, self.state.pods, documents.workflows, documents.profiles)
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the cluster while inside."""
        works = (self._prepare(), self.link.run(), repeat(self._upkeep, UPKEEP_S))
        async with background_tasks(works, self.note_exit):
            yield

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
        if pod is not None and not pod.states_share:
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
        self.preparation.follow_fleet()
        self.state.tracker.expire(self.state.clock())
        self.state.pods.expire()


@cache
def prepare_kernels() -> None:
    """Compile all kernels, or load them from Numba's cache: once in a process."""
    search.prepare()
    placement.prepare()
