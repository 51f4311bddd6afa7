"""The extender's service: the calls of kube-scheduler over a `PlanningService`."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from scheduler.cluster.events import Reference
from scheduler.cluster.link import Handlers
from scheduler.extender.bind_ownership import BindOwnership
from scheduler.extender.binding import Binder
from scheduler.extender.binding_voider import BindingVoider
from scheduler.extender.capacity_report import CapacityReport
from scheduler.extender.disruption_budgets import DisruptionBudgets
from scheduler.extender.document_conditions import PERIOD_S, DocumentConditions
from scheduler.extender.preemption import Preemptor
from scheduler.extender.scheduling import Decision, Scheduler
from scheduler.extender.stale_cache import STALE_WAIT_S, RefusalGuard
from scheduler.extender.wire import ExtenderBindingArgs, ExtenderPreemptionArgs, MetaVictims
from scheduler.ledger.gpu_names import NameConflict
from scheduler.model.message_text import listed
from scheduler.planning.pods import PendingPod, describe, version_of
from scheduler.planning.service import UPKEEP_S, PlanningService
from scheduler.server.background import background_tasks, repeat
from scheduler.server.errors import RefusedError

log = structlog.get_logger(__name__)
_OWNERSHIP_WAIT_S = 3.0  # kube-scheduler waits 5 s, and does nothing else meanwhile


class Service:
    """One process of the extender; it works while `running`.

    Args:
        planning: cache of the cluster and plans of its pods; it runs with this service.
    """

    def __init__(self, planning: PlanningService) -> None:
        self.planning = planning
        self.settings, self.metrics = planning.settings, planning.metrics
        self.state, self.link = planning.state, planning.link
        self.disruption_budgets = DisruptionBudgets()
        self.link.follow(Handlers(disruption_budgets=self.disruption_budgets))
        self.scheduler = Scheduler(self.state)
        self._refusal_guard = RefusalGuard(
            self.state,
            self.scheduler,
            relist=self.link.relist_pods,
            read_pod=partial(self.link.get_pod, timeout_s=STALE_WAIT_S),
        )
        self.capacity_report = CapacityReport(self.state)
        self.document_conditions = DocumentConditions(planning)
        self._preemptor = Preemptor(self.state, self.scheduler, self.disruption_budgets)
        self._voider = BindingVoider(self.state, self.link)
        self.ownership = BindOwnership(
            self.link.owner_lease, self._take_over, monotonic=self.state.monotonic
        )
        self.binder = Binder(self.state, self.scheduler, self.link, self.ownership, self._voider)
        self._reported_overcommits: set[tuple[str, str]] = set()  # nodes and UUIDs
        self._reported_names: set[NameConflict] = set()

    async def filter(self, raw: Mapping[str, Any], nodes: Sequence[str]) -> Decision:
        """Decide on which of the nodes the pod may run.

        Raises:
            RefusedError: the service is not ready, another process binds pods, the pod cannot be
                planned, the cache is stale, or promises to another gang are in the way.
        """
        self.require_ready()
        await self.ownership.ensure(_OWNERSHIP_WAIT_S)
        pod = await self.prepared_pod(raw)
        decision = self.scheduler.filter(pod, nodes)
        if decision.refusals and not decision.passing:
            decision = await self._refusal_guard.check(pod, nodes, decision)
            decision = self.scheduler.promise(pod, decision)
        return decision

    async def prioritize(self, raw: Mapping[str, Any], nodes: Sequence[str]) -> Mapping[str, int]:
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
            await self.planning.wait_until_prepared(pending.function_pod)
        await self.binder.bind(args)

    async def preempt(self, args: ExtenderPreemptionArgs) -> Mapping[str, MetaVictims]:
        """Select nodes and victims; none where the pod cannot be planned: the call has no error."""
        try:
            self.require_ready()
            await self.ownership.ensure(_OWNERSHIP_WAIT_S)
            await self.prepared_pod(args.Pod)
            return self._preemptor.preempt(args)
        except RefusedError as error:
            log.warning("request refused", verb="preempt", error=str(error))
            return {}

    async def _take_over(self) -> float:
        # Another kube-scheduler may have placed the gangs meanwhile.
        self.scheduler.promises.clear()
        return await self._voider.take_over()

    def require_ready(self) -> None:
        """Raise a RefusedError with the reason while the service is not ready."""
        if reason := self.planning.not_ready_reason():
            raise RefusedError(f"the extender is not ready: {reason}")

    async def prepared_pod(self, raw: Mapping[str, Any]) -> PendingPod:
        """Read a Pod object, and wait until its workflow is prepared for planning."""
        pod = self._described(raw)
        await self.planning.wait_until_prepared(pod.function_pod)
        return pod

    def _described(self, raw: Mapping[str, Any]) -> PendingPod:
        """Read a Pod object, or take what was read of the same version in the cache."""
        known = self.state.pods.pending.get((raw.get("metadata") or {}).get("uid") or "")
        if known is not None and 0 < version_of(raw) == version_of(known.raw):
            return replace(known, raw=raw)
        return describe(raw)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the cluster while inside, and bind pods."""
        works = (
            self.ownership.run(),
            repeat(self._upkeep, UPKEEP_S),
            repeat(self.document_conditions.write, PERIOD_S),
        )
        async with self.planning.running():
            async with background_tasks(works, self.planning.note_exit):
                yield
            await self.binder.until_idle()
            await self.ownership.release()
            await self.document_conditions.release()

    async def _upkeep(self) -> None:
        """Settle lost Bindings, and report over-commits and configurations without a node."""
        await self.binder.reconcile_lost_bindings()
        self._report_overcommits()
        self._report_name_conflicts()
        await self._report_excess()

    def _report_overcommits(self) -> None:
        """Report each over-commit once: a log line, and an Event on the node."""
        overcommits = {(o.node, o.gpu_uuid): o for o in self.state.ledger.overcommitted()}
        for key, over in overcommits.items():
            if key in self._reported_overcommits:
                continue
            message = (
                f"GPU {over.index} ({over.gpu_uuid}) has {over.percent} % and "
                f"{over.memory_mib:,} MiB granted, more than its capacity: {', '.join(over.pods)}"
            )
            log.error("over-commit", node=over.node, problem=message)
            self.link.record_event(
                Reference.node(over.node),
                type="Warning",
                reason="GPUOvercommitted",
                message=message,
            )
        self._reported_overcommits = set(overcommits)

    def _report_name_conflicts(self) -> None:
        """Report each GPU under several node names once: a log line, and an Event on each node."""
        shared = set(self.state.ledger.name_conflicts())
        for gpu in shared - self._reported_names:
            message = (
                f"nothing is placed on GPU {gpu.gpu_index} ({gpu.uuid}): it is known as a GPU of "
                f"{listed(list(gpu.others))}, too; delete the Node that the machine no longer has"
            )
            log.error("GPU under several node names", node=gpu.node, problem=message)
            self.link.record_event(
                Reference.node(gpu.node),
                type="Warning",
                reason="GPUOfSeveralNodes",
                message=message,
            )
        self._reported_names = shared

    async def _report_excess(self) -> None:
        """Report each Workflow's configurations that no node can hold: an Event on it."""
        if self.planning.not_ready_reason():
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
        self.metrics.ready.labels("extender").set(not self.planning.not_ready_reason())
        self.metrics.overcommitted.set(len(self.state.ledger.overcommitted()))
        self.metrics.name_conflicts.set(
            len({gpu.uuid for gpu in self.state.ledger.name_conflicts()})
        )
        self.metrics.unreadable_grants.set(len(self.state.pods.problems))
        self.metrics.unusable_documents.set(self.state.documents.problem_count())
        self.metrics.claims_unwritten.set(self.link.unwritten_claims())
        for resource, seconds in self.link.staleness_s().items():
            self.metrics.staleness.labels(resource).set(seconds)
