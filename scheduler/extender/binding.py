"""Bind: check again, choose the GPU, reserve it, write one Binding, trust only what was read."""

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import structlog

from scheduler.cluster.binding import Binding, BindOutcome, BindResult
from scheduler.cluster.errors import ClusterError
from scheduler.cluster.events import Reference
from scheduler.cluster.link import ClusterLink
from scheduler.extender.bind_ownership import BindOwnership
from scheduler.extender.binding_voider import BindingVoider
from scheduler.extender.scheduling import Scheduler
from scheduler.extender.wire import ExtenderBindingArgs
from scheduler.ledger.ledger import DoesNotFitError
from scheduler.ledger.reservation import Reservation
from scheduler.model.grant import Grant, cdi_annotations, grant_annotations
from scheduler.model.plan import Plan
from scheduler.model.pod import FunctionPod, grace_period_s
from scheduler.placement.fleet import Fleet
from scheduler.placement.placement import Placement
from scheduler.planning.pods import PendingPod, cpu_request, describe, version_of
from scheduler.planning.state import State
from scheduler.server.errors import RefusedError

log = structlog.get_logger(__name__)
# Lost Bindings are read so many at once: one slow answer delays few others, and most connections
# remain for binds.
_CONCURRENT_READS = 8


class Binder:
    """Binds pods: one Binding per pod at a time, any number of pods at once.

    Between an `await` and its end the watch may confirm, move or release what was assumed before
    it. So only the very reservation that was known before the `await` is released or replaced.
    """

    def __init__(
        self,
        state: State,
        scheduler: Scheduler,
        link: ClusterLink,
        ownership: BindOwnership,
        voider: BindingVoider,
    ) -> None:
        self._state = state
        self._scheduler = scheduler
        self._link = link
        self._ownership = ownership
        self._voider = voider
        self._in_progress: dict[str, asyncio.Task[None]] = {}
        self._unanswered: dict[str, Reservation] = {}  # by pod UID

    async def bind(self, args: ExtenderBindingArgs) -> None:
        """Bind the pod to the node; all reads included, within ``ESG_API_TIMEOUT_S``.

        Idempotent: a second call for the same pod and node waits for the first, or succeeds.

        Raises:
            RefusedError: it is not bound; the message says why.
        """
        deadline_s = self._state.monotonic() + self._state.settings.api_timeout_s
        while (earlier := self._in_progress.get(args.PodUID)) is not None:
            await asyncio.wait([earlier])
        task = asyncio.ensure_future(self._bind(args, deadline_s))
        self._in_progress[args.PodUID] = task
        task.add_done_callback(lambda _: self._in_progress.pop(args.PodUID, None))
        # kube-scheduler hangs up after its time-out; that must not abort the Binding half-way.
        await asyncio.shield(task)

    async def until_idle(self) -> None:
        """Wait until all bind calls so far have ended."""
        if self._in_progress:
            await asyncio.wait(self._in_progress.values())

    async def reconcile_lost_bindings(self) -> None:
        """Learn the outcome of unanswered Bindings, and of those that the watch has not shown."""
        state = self._state
        self._unanswered = {
            uid: lost
            for uid, lost in self._unanswered.items()
            if state.ledger.reservation(uid) is lost
        }
        slots = asyncio.Semaphore(_CONCURRENT_READS)
        overdue = state.ledger.unconfirmed_since(state.monotonic() - state.settings.assumed_ttl_s)
        lost = {reservation.uid: reservation for reservation in overdue} | self._unanswered
        async with asyncio.TaskGroup() as group:
            for reservation in lost.values():
                group.create_task(self._reconcile(reservation, slots))

    async def _reconcile(self, reservation: Reservation, slots: asyncio.Semaphore) -> None:
        async with slots:
            if reservation.uid not in self._in_progress:
                await self._binding_outcome(reservation, self._state.settings.api_timeout_s)

    async def _binding_outcome(
        self, reservation: Reservation, timeout_s: float
    ) -> Literal["bound", "void", "unknown"]:
        """Learn what became of an assumed reservation's Binding; an unanswered one is made void."""
        try:
            if self._unanswered.get(reservation.uid) is reservation:
                outcome = await self._voider.void(
                    reservation.namespace,
                    reservation.name,
                    reservation.uid,
                    reservation.pod_version,
                    timeout_s=timeout_s,
                )
                return "void" if outcome == "gone" else outcome
            raw = await self._link.get_pod(
                reservation.namespace, reservation.name, timeout_s=timeout_s
            )
        except ClusterError as error:
            log.warning(
                "the outcome of a Binding is unknown", pod=reservation.name, error=str(error)
            )
            return "unknown"
        if raw is None or raw["metadata"]["uid"] != reservation.uid:
            self._state.pods.vanish_unconfirmed(reservation)
        elif _is_bound(raw, reservation.uid):
            self._state.pods.adopt(raw, reservation)
            return "bound"
        else:
            self._state.ledger.withdraw(reservation)
        return "void"

    async def _bind(self, args: ExtenderBindingArgs, deadline_s: float) -> None:
        state = self._state
        try:
            await self._ownership.ensure(self._remaining_s(deadline_s))
            if await self._is_bound_already(args, deadline_s):
                state.metrics.bind_ended("repeated")
                return
            pod = await self._pending_pod(args, deadline_s)
        except RefusedError:
            state.metrics.bind_ended("refused")
            raise
        changed = await self._bind_version(pod, args, deadline_s, may_have_changed=True)
        if changed is not None:
            # kube-scheduler writes status.nominatedNodeName just before it binds a pod that waits
            # for others, for volumes or for claims, and the cache may not have it yet.
            await self._bind_version(changed, args, deadline_s, may_have_changed=False)

    async def _bind_version(
        self,
        pod: PendingPod,
        args: ExtenderBindingArgs,
        deadline_s: float,
        *,
        may_have_changed: bool,
    ) -> PendingPod | None:
        """Reserve a share for the pod in this version, and write its Binding.

        Return the pod in another version if it is unbound in that one, the server has answered, and
        the caller ``may_have_changed``; nothing is reserved then.

        Raises:
            RefusedError: the pod is not bound to the node.
        """
        state = self._state
        try:
            if pod.problem:
                raise RefusedError(pod.problem)  # noqa: TRY301
            # kube-scheduler has given up by then, so no Binding may follow.
            self._remaining_s(deadline_s)
            # The pod's version is known, and nothing is awaited until the reservation: a process
            # that becomes the owner later makes a Binding of this version void.
            self._ownership.require()
            period = self._ownership.period
            reserved = None if pod.function_pod is None else self._reserve(pod, args)
        except RefusedError:
            state.metrics.bind_ended("refused")
            raise
        assumed, grant = reserved or (None, None)
        annotations = {}
        if pod.function_pod is not None and grant is not None:
            annotations = grant_annotations(grant) | cdi_annotations(
                pod.function_pod, grant, state.settings.cdi_kind
            )
        version = str(version_of(pod.raw) or "")
        binding = Binding(
            args.PodNamespace, args.PodName, args.PodUID, args.Node, annotations, version
        )
        if assumed is not None:
            self._unanswered[binding.uid] = assumed
        result = await self._link.bind(binding, timeout_s=deadline_s - state.monotonic())
        if may_have_changed and result.is_outdated and result.pod is not None:
            self._unanswered.pop(binding.uid, None)
            if assumed is not None:
                state.ledger.withdraw(assumed)
            return describe(result.pod)
        is_ours = self._settle(binding, assumed, period, result)
        if is_ours and pod.function_pod is not None and grant is not None:
            self._report(pod.function_pod, grant)
        return None

    def _remaining_s(self, deadline_s: float) -> float:
        """Time left for a bind call, s.

        Raises:
            RefusedError: none is left.
        """
        remaining_s = deadline_s - self._state.monotonic()
        if remaining_s <= 0:
            limit_s = self._state.settings.api_timeout_s
            raise RefusedError(
                f"the {limit_s:g} s for a bind call (ESG_API_TIMEOUT_S) were over before a Binding "
                "was sent: the API server is slow"
            )
        return remaining_s

    async def _is_bound_already(self, args: ExtenderBindingArgs, deadline_s: float) -> bool:
        """Return True where an earlier call has bound the pod to the node.

        Raises:
            RefusedError: the pod is bound elsewhere, or may be.
        """
        reservation = self._state.ledger.reservation(args.PodUID)
        if reservation is None:
            return False
        outcome = "bound"
        if not reservation.confirmed:
            outcome = await self._binding_outcome(reservation, self._remaining_s(deadline_s))
        if outcome == "void":
            return False
        if outcome != "bound":
            raise RefusedError(
                f"an earlier Binding of this pod to node {reservation.node} may still arrive; its "
                "outcome is read before another is tried"
            )
        reservation = self._state.ledger.reservation(args.PodUID) or reservation
        if reservation.node != args.Node:
            raise RefusedError(f"the pod is bound to node {reservation.node} already")
        return True

    async def _pending_pod(self, args: ExtenderBindingArgs, deadline_s: float) -> PendingPod:
        """Look the pod up in the cache, or else read it from the API server."""
        pod = self._state.pods.pending.get(args.PodUID)
        if pod is not None:
            return pod
        name = f"{args.PodNamespace}/{args.PodName}"
        try:
            raw = await self._link.get_pod(
                args.PodNamespace, args.PodName, timeout_s=self._remaining_s(deadline_s)
            )
        except ClusterError as error:
            raise RefusedError(f"pod {name}: {error}") from error
        if raw is None:
            raise RefusedError(f"pod {name} does not exist any more")
        pod = describe(raw)
        if pod.uid != args.PodUID:
            raise RefusedError(f"pod {name} was recreated: its uid is {pod.uid}, not {args.PodUID}")
        return pod

    def _reserve(self, pod: PendingPod, args: ExtenderBindingArgs) -> tuple[Reservation, Grant]:
        """Choose the configuration and the GPU on this node, and reserve them."""
        state = self._state
        self._scheduler.promises.bind(args.PodUID, args.Node)
        decision = self._scheduler.schedule(pod, [args.Node])
        if refusal := decision.refusals.get(args.Node):
            raise RefusedError(f"node {args.Node}: {refusal.reason}")
        plan, placement = decision.plan, decision.placement
        if pod.function_pod is None or plan is None or placement is None:
            # The watch has confirmed another Binding of the pod to this node in the meantime.
            raise RefusedError(f"the pod has a reservation on node {args.Node} already")
        grant = _grant(pod.function_pod, plan, placement, state.ledger.fleet)
        reservation = Reservation(
            uid=args.PodUID,
            namespace=args.PodNamespace,
            name=args.PodName,
            node=args.Node,
            cpu_milli=cpu_request(pod.function_pod).with_configuration(grant.cpu),
            function=state.documents.function_of(pod.function_pod),
            priority=pod.function_pod.priority,
            grace_s=grace_period_s(pod.raw),
            assumed_at_s=state.monotonic(),
            pod_version=version_of(pod.raw),
        ).with_grant(grant)
        try:
            state.ledger.assume(reservation)
        except DoesNotFitError as error:
            raise RefusedError(str(error)) from None
        return reservation, grant

    def _settle(
        self,
        binding: Binding,
        assumed: Reservation | None,
        period: int | None,
        result: BindResult,
    ) -> bool:
        """Account for a Binding; release the share when the Binding certainly did not arrive.

        Return whether the grant on the pod is this one; False: an earlier Binding's to the node, or
        that of a process that has become the owner since ``period``.

        Raises:
            RefusedError: the pod is not bound to the node.
        """
        state = self._state
        outcome = result.outcome
        if outcome is BindOutcome.BOUND and result.pod and period != self._ownership.period:
            outcome = BindOutcome.ALREADY_BOUND  # the grant may be another owner's, and equal
        state.metrics.bind_ended(outcome.name.lower())
        if outcome is not BindOutcome.UNKNOWN:
            self._unanswered.pop(binding.uid, None)
        if outcome is BindOutcome.BOUND:
            state.pods.pending.pop(binding.uid, None)
            return True
        if result.pod is not None and _is_bound(result.pod, binding.uid):
            state.pods.adopt(result.pod, assumed)
        elif outcome is BindOutcome.REFUSED and assumed is not None:
            state.ledger.withdraw(assumed)
        if outcome is BindOutcome.ALREADY_BOUND:
            return False
        raise RefusedError(result.message)

    def _report(self, pod: FunctionPod, grant: Grant) -> None:
        if not pod.states_share:
            self._state.metrics.batch_granted(pod, grant.batch)
        if not grant.plan["feasible"]:
            self._link.record_event(
                Reference.pod(pod.namespace, pod.name, pod.uid),
                type="Warning",
                reason="SLOCannotBeMet",
                message=slo_message(grant),
            )


def _is_bound(raw: Mapping[str, Any], uid: str) -> bool:
    return raw["metadata"]["uid"] == uid and bool((raw.get("spec") or {}).get("nodeName"))


def _grant(pod: FunctionPod, plan: Plan, placement: Placement, fleet: Fleet) -> Grant:
    """Build the grant of a placement on one node."""
    candidate = placement.candidate
    gpu = fleet.gpus[int(placement.gpu_rows[0])]
    assert candidate is not None  # noqa: S101 - the node holds a candidate
    assert gpu is not None  # noqa: S101 - and so its row has a GPU
    configuration = candidate.configuration
    return Grant(
        gpu.uuid,
        configuration.gpu_percent,
        configuration.memory_mib,
        configuration.batch,
        candidate.as_json()
        | {
            "feasible": plan.feasible,
            "budget_ms": plan.budget_ms,
            "rank": placement.candidate_index,
            "exact": plan.exact,
            "epsilon": plan.epsilon,
            "message": plan.message,
            **({"pool": pod.pool} if pod.pool else {}),
            **({"group": pod.group} if pod.pool and pod.group else {}),
        },
    )


def slo_message(grant: Grant) -> str:
    """Reason why the SLO cannot be met."""
    plan = grant.plan
    return (
        f"{plan['message']}; as granted the stages left take {plan['path_ms']:,.0f} ms with "
        f"batch {plan['batch']}, {plan['cpu']} vCPU and {plan['gpu_percent']} % of a GPU"
    )
