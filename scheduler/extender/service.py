"""The service: state, scheduler and cluster link, the calls of kube-scheduler, and readiness."""

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
from scheduler.extender.capacity_report import CapacityReport
from scheduler.extender.pods import PendingPod, describe
from scheduler.extender.preemption import Preemptor
from scheduler.extender.scheduling import Decision, Scheduler
from scheduler.extender.stale_cache import RefusalGuard
from scheduler.extender.state import State
from scheduler.extender.wire import ExtenderBindingArgs, ExtenderPreemptionArgs, MetaVictims
from scheduler.metrics import Metrics
from scheduler.model.pod import FunctionPod
from scheduler.placement import placement
from scheduler.planning.preparation import Preparation
from scheduler.search import planner as search
from scheduler.server.errors import RefusedError
from scheduler.settings import Settings

log = structlog.get_logger(__name__)
_READY_POLL_S = 0.2  # until it is ready for the first time
_UPKEEP_S = 5.0  # between two passes over abandoned instances, lost Bindings and over-commits


Connect = Callable[[Handlers], AbstractAsyncContextManager[ClusterLink]]


class Service:
    """One process of the extender; it works while `running`.

    ``connect`` opens the cluster link, which keeps the given handlers up to date. ``link`` and
    ``binder`` exist from the moment `running` is entered.

    Attributes:
        fatal_error: why a background task ended; /healthz then has the container restarted.
        on_ready: called once, when the service is ready for the first time.
    """

    link: ClusterLink
    binder: Binder

    def __init__(
        self, settings: Settings, *, connect: Connect, clock: Callable[[], float] = time.time
    ) -> None:
        self.settings = settings
        self.metrics = Metrics(settings.prices)
        self.state = State(settings, self.metrics, clock=clock)
        self.scheduler = Scheduler(self.state)
        self.preparation = Preparation(self.state.documents, self.scheduler.fleet)
        self._refusal_guard = RefusalGuard(self.state, self.scheduler)
        self.capacity_report = CapacityReport(self.state)
        self._preemptor = Preemptor(self.state, self.scheduler)
        self.on_ready: Callable[[], None] = lambda: None
        self.fatal_error = ""
        self.kernels_ready = False
        self._connect = connect
        self._reported_overcommits: set[str] = set()

    # -- the calls of kube-scheduler -------------------------------------------------------------

    async def filter(self, raw: Mapping[str, Any], nodes: list[str]) -> Decision:
        """Decide on which of the nodes the pod may run.

        Raises:
            RefusedError: the service is not ready, the pod cannot be planned, or the cache is
                stale.
        """
        self.require_ready()
        pod = await self.prepared_pod(raw)
        decision = self.scheduler.schedule(pod, nodes)
        if decision.refusals and not decision.passing:
            decision = await self._refusal_guard.check(pod, nodes, decision)
        return decision

    async def prioritize(self, raw: Mapping[str, Any], nodes: list[str]) -> Mapping[str, int]:
        """Score the nodes, 0 to 10; all 0 where the pod cannot be planned.

        The call has no field for an error. Equal scores leave the choice to kube-scheduler's own.
        """
        try:
            self.require_ready()
            return self.scheduler.score(await self.prepared_pod(raw), nodes)
        except RefusedError as error:
            log.warning("request refused", verb="prioritize", error=str(error))
            return dict.fromkeys(nodes, 0)

    async def bind(self, args: ExtenderBindingArgs) -> None:
        """Bind the pod to the node, with its GPU and its limits; idempotent.

        Raises:
            RefusedError: the pod is not bound; the message says why.
        """
        self.require_ready()
        pending = self.state.pods.pending.get(args.PodUID)
        if pending is not None:
            await self.wait_until_prepared(pending.function_pod)
        await self.binder.bind(args)

    async def preempt(self, args: ExtenderPreemptionArgs) -> Mapping[str, MetaVictims]:
        """Select nodes and victims; none where the pod cannot be planned: the call has no error."""
        try:
            self.require_ready()
            await self.prepared_pod(args.Pod)
            return self._preemptor.preempt(args)
        except RefusedError as error:
            log.warning("request refused", verb="preempt", error=str(error))
            return {}

    async def prepared_pod(self, raw: Mapping[str, Any]) -> PendingPod:
        """Read a Pod object, and wait until its workflow is prepared for planning."""
        pod = describe(raw)
        await self.wait_until_prepared(pod.function_pod)
        return pod

    async def wait_until_prepared(self, pod: FunctionPod | None) -> None:
        """Wait until the pod can be planned at once; at once for a pod without a function."""
        if pod is not None:
            await self.preparation.wait_for(pod.namespace, pod.workflow, pod.stage)

    # -- life cycle ------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the cluster while inside."""
        documents = self.state.documents
        handlers = Handlers(
            self.state.nodes, self.state.pods, documents.workflows, documents.profiles
        )
        async with self._connect(handlers) as self.link:
            self.binder = Binder(self.state, self.scheduler, self.link)
            work = (self._prepare(), self.link.run(), self._upkeep())
            tasks = [asyncio.create_task(part) for part in work]
            for task in tasks:
                task.add_done_callback(self.note_exit)
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def not_ready_reason(self) -> str:
        """Reason why it cannot answer now; empty when it can."""
        if self.fatal_error:
            return self.fatal_error
        if not self.kernels_ready:
            return "the kernels are being compiled"
        if not self.link.synced():
            troubles = "; ".join(f"{what}: {why}" for what, why in self.link.troubles().items())
            return f"the first list is not complete{' (' + troubles + ')' if troubles else ''}"
        stale = ", ".join(
            f"{resource} for {seconds:.0f} s"
            for resource, seconds in self.link.staleness_s().items()
            if seconds > self.settings.stale_after_s
        )
        return f"no news from the API server about {stale}" if stale else ""

    def require_ready(self) -> None:
        """Raise a RefusedError with the reason while the service is not ready."""
        if reason := self.not_ready_reason():
            raise RefusedError(f"the extender is not ready: {reason}")

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
                self.preparation.follow_fleet()
                self.state.tracker.expire(self.state.clock())
                await self.binder.reconcile_lost_bindings()
                self._report_overcommits()
                await self._report_excess()
            except Exception:  # the next pass may succeed, and nothing else stops
                log.exception("upkeep failed")

    def _report_overcommits(self) -> None:
        """Report each over-commit once: a log line, and an Event on the node."""
        overcommits = {over.gpu_uuid: over for over in self.state.ledger.overcommitted()}
        for uuid, over in overcommits.items():
            if uuid in self._reported_overcommits:
                continue
            message = (
                f"GPU {over.index} ({uuid}) has {over.percent} % and {over.memory_mib:,} MiB "
                f"granted, more than its capacity: {', '.join(over.pods)}"
            )
            log.error("over-commit", node=over.node, problem=message)
            self.link.record_event(
                Reference.node(over.node),
                type="Warning",
                reason="GPUOvercommitted",
                message=message,
            )
        self._reported_overcommits = set(overcommits)

    async def _report_excess(self) -> None:
        """Report each Workflow's configurations that no node can hold: an Event on it."""
        if self.not_ready_reason():
            return  # the nodes are not known yet
        for workflow, message in await self.capacity_report.changes():
            self.link.record_event(
                Reference.workflow(*workflow.key, workflow.metadata.uid),
                type="Warning",
                reason="ConfigurationsFitNoNode",
                message=message,
            )

    def refresh_gauges(self) -> None:
        """Set the gauges that a scrape reads from the state."""
        self.metrics.overcommitted.set(len(self.state.ledger.overcommitted()))
        self.metrics.unreadable_grants.set(len(self.state.pods.problems))
        self.metrics.unusable_documents.set(self.state.documents.problem_count())
        for resource, seconds in self.link.staleness_s().items():
            self.metrics.staleness.labels(resource).set(seconds)


def prepare_kernels() -> None:
    """Compile all kernels, or load them from Numba's cache."""
    search.prepare()
    placement.prepare()
