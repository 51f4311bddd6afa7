"""The service: state, planner and cluster put together, and whether it may answer."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import structlog

from scheduler.cluster.events import Reference
from scheduler.cluster.link import ClusterLink, Handlers
from scheduler.extender.binding import Binder
from scheduler.extender.preemption import Preemptor
from scheduler.extender.scheduling import RefusedError, Scheduler
from scheduler.extender.stale_cache import RefusalGuard
from scheduler.extender.state import State
from scheduler.metrics import Metrics
from scheduler.placement import placement
from scheduler.search import planner as search
from scheduler.settings import Settings

log = structlog.get_logger(__name__)
_READY_POLL_S = 0.2  # until it is ready for the first time
_UPKEEP_S = 5.0  # between two looks at abandoned instances, lost Bindings and over-commits


Connect = Callable[[Handlers], AbstractAsyncContextManager[ClusterLink]]


class Service:
    """Everything that one process holds; it works while `running`.

    ``connect`` gives the cluster, and is handed the handlers that the cluster is to keep told.
    ``link`` and ``binder`` are there from the moment `running` is entered.
    """

    link: ClusterLink
    binder: Binder

    def __init__(
        self,
        settings: Settings,
        *,
        connect: Connect,
        on_filter: Callable[[Mapping[str, Any]], None] = lambda _: None,
        watches: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.metrics = Metrics(settings.prices)
        self.state = State(settings, self.metrics, clock=clock)
        self.decider = Scheduler(self.state)
        self.second_look = RefusalGuard(self.state, self.decider)
        self.preemptor = Preemptor(self.state, self.decider)
        self.on_filter = on_filter  # is shown every pod that filter is asked about
        self.on_ready: Callable[[], None] = lambda: None  # is called once, the first time
        self.watches = watches  # as kube-scheduler does, of which either may be ahead of the other
        self._connect = connect
        self._prepared = False
        self.death = ""  # what ended that should never end; /healthz then has the process replaced
        self._overcommits_told: set[str] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the cluster while inside."""
        handlers = Handlers(
            self.state.nodes, self.state.pods, self.state.workflows, self.state.profiles
        )
        async with self._connect(handlers) as self.link:
            self.binder = Binder(self.state, self.decider, self.link)
            works = (self._prepare(), self.link.run(), self._keep_up())
            tasks = [asyncio.create_task(work) for work in works]
            for task in tasks:
                task.add_done_callback(self.note_end)
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def unreadiness(self) -> str:
        """Why it may not answer now; empty when it may."""
        if self.death:
            return self.death
        if not self._prepared:
            return "the kernels are being compiled"
        if not self.link.synced():
            troubles = "; ".join(f"{what}: {why}" for what, why in self.link.troubles().items())
            return f"the first list is not in yet{' (' + troubles + ')' if troubles else ''}"
        stale = {
            resource: seconds
            for resource, seconds in self.link.staleness_s().items()
            if seconds > self.settings.stale_after_s
        }
        if stale:
            told = ", ".join(
                f"{resource} for {seconds:.0f} s" for resource, seconds in stale.items()
            )
            return f"the API server was not heard about {told}"
        return ""

    def ready_or_refuse(self) -> None:
        """Nothing is decided on a picture that is not whole.

        Raises:
            RefusedError: it is not ready; the message says what it waits for.
        """
        if why := self.unreadiness():
            raise RefusedError(f"the extender is not ready: {why}")

    def log_refusal(self, verb: str, message: str) -> None:
        """For the calls whose answer has no room for an error."""
        log.warning("request refused", verb=verb, error=message)

    def note_end(self, task: "asyncio.Task[None]") -> None:
        """Of a part that should never end by itself: with an error the whole is to be replaced."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.death = f"a part of the service died: {error!r}"
            log.critical("a part of the service died", exc_info=error)

    async def _prepare(self) -> None:
        began = time.perf_counter()
        await asyncio.to_thread(prepare_kernels)
        self._prepared = True
        log.info("kernels are ready", seconds=round(time.perf_counter() - began, 3))
        while self.unreadiness():  # noqa: ASYNC110 - time alone may end it, no event does
            await asyncio.sleep(_READY_POLL_S)
        log.info("ready")
        self.on_ready()

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(_UPKEEP_S)
            try:
                self.state.tracker.expire(self.state.clock())
                await self.binder.settle()
                self._tell_overcommits()
            except Exception:  # the next round may do better, and nothing else stops
                log.exception("upkeep failed")

    def _tell_overcommits(self) -> None:
        """Once per GPU and occurrence: a log line and an Event on the node."""
        overcommits = {over.gpu_uuid: over for over in self.state.ledger.overcommitted()}
        for uuid, over in overcommits.items():
            if uuid in self._overcommits_told:
                continue
            message = (
                f"GPU {over.index} ({uuid}) holds {over.percent} % and {over.memory_mib:,} MiB, "
                f"more than it has: {', '.join(over.pods)}"
            )
            log.error("over-commit", node=over.node, problem=message)
            self.link.record_event(
                Reference.node(over.node),
                type="Warning",
                reason="GPUOvercommitted",
                message=message,
            )
        self._overcommits_told = set(overcommits)

    def refresh_gauges(self) -> None:
        """Set the gauges that are read off the state, at a scrape."""
        _ = self.state.catalogue  # which tells the metrics of documents that have changed
        self.metrics.overcommitted.set(len(self.state.ledger.overcommitted()))
        self.metrics.unreadable_grants.set(len(self.state.pods.problems))
        documents = (self.state.workflows, self.state.profiles)
        self.metrics.unusable_documents.set(sum(len(each.problems) for each in documents))
        for resource, seconds in self.link.staleness_s().items():
            self.metrics.staleness.labels(resource).set(seconds)


def prepare_kernels() -> None:
    """Compile all kernels, or load them from Numba's cache."""
    search.prepare()
    placement.prepare()
