"""Bind: re-check, choose the GPU, assume, write one Binding, believe nothing that was not read."""

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import structlog

from scheduler.cluster.binding import Binding, BindOutcome
from scheduler.cluster.errors import ClusterError
from scheduler.cluster.events import Reference
from scheduler.cluster.link import ClusterLink
from scheduler.extender.pods import PendingPod, cpu_request, describe
from scheduler.extender.scheduling import Decision, RefusedError, Scheduler
from scheduler.extender.state import State
from scheduler.extender.wire import ExtenderBindingArgs
from scheduler.ledger.ledger import DoesNotFitError
from scheduler.ledger.reservation import Reservation
from scheduler.model.pod import FunctionPod, Grant, grant_annotations

log = structlog.get_logger(__name__)
# Lost Bindings are asked about so many at once: one answer that stays away holds up few others, and
# most connections are left to binds.
_ASKED_AT_ONCE = 8


class Binder:
    """Binds pods; one Binding a pod at a time, any number of pods at once.

    What was assumed before an `await` may have been confirmed, moved or freed by the watch after
    it. So nothing is given back, or put in its place, but the very hold that was known before.
    """

    def __init__(self, state: State, decider: Scheduler, link: ClusterLink) -> None:
        self._state = state
        self._decider = decider
        self._link = link
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def bind(self, args: ExtenderBindingArgs) -> None:
        """Bind the pod to the node, or raise; within ``ESG_API_TIMEOUT_S``, reads and all.

        Idempotent: a second call for the same pod and node waits for the first, or finds it done.

        Raises:
            RefusedError: it is not bound; the message says why.
        """
        deadline = self._state.monotonic() + self._state.settings.api_timeout_s
        while (earlier := self._under_way.get(args.PodUID)) is not None:
            await asyncio.wait([earlier])
        task = asyncio.ensure_future(self._bind(args, deadline))
        self._under_way[args.PodUID] = task
        task.add_done_callback(lambda _: self._under_way.pop(args.PodUID, None))
        # kube-scheduler hangs up after its time-out; the Binding is not left half-way for that.
        await asyncio.shield(task)

    async def settle(self) -> None:
        """Ask about every hold whose Binding nobody saw for too long."""
        state = self._state
        turns = asyncio.Semaphore(_ASKED_AT_ONCE)
        lost = state.ledger.unconfirmed_since(state.monotonic() - state.settings.assumed_ttl_s)
        async with asyncio.TaskGroup() as group:
            for held in lost:
                group.create_task(self._settle(held, turns))

    async def _settle(self, held: Reservation, turns: asyncio.Semaphore) -> None:
        ledger = self._state.ledger
        async with turns:
            if held.uid in self._under_way:
                return
            fate = await self._fate(held, self._state.settings.api_timeout_s)
        if fate == "waits" and ledger.withdraw(held):
            log.warning("a Binding never landed; its share is free", pod=held.name)

    async def _fate(
        self, held: Reservation, timeout_s: float
    ) -> Literal["bound", "waits", "gone", "unknown"]:
        """Read the pod of an assumed hold, and hold what it shows where that is sure.

        "waits" says that it was not bound when it was read; its Binding may land yet, or have
        landed since.
        """
        try:
            raw = await self._link.get_pod(held.namespace, held.name, timeout_s=timeout_s)
        except ClusterError as error:
            log.warning("the fate of a Binding is unknown", pod=held.name, error=str(error))
            return "unknown"
        if raw is None or raw["metadata"]["uid"] != held.uid:
            self._state.ledger.release(held.uid)
            return "gone"
        if not (raw.get("spec") or {}).get("nodeName"):
            return "waits"
        self._state.pods.adopt(raw, held)
        return "bound"

    async def _bind(self, args: ExtenderBindingArgs, deadline: float) -> None:
        state = self._state
        try:
            if await self._is_bound_there(args, deadline):
                state.metrics.binds.labels("repeated").inc()
                return
            known = await self._known(args, deadline)
            if known.problem:
                raise RefusedError(known.problem)  # noqa: TRY301
            # kube-scheduler, which has given up by then, is not to be contradicted later.
            self._left_s(deadline)
            assumed, grant = (None, None) if known.pod is None else self._assume(known.pod, args)
        except RefusedError:
            state.metrics.binds.labels("refused").inc()
            raise
        annotations = {} if grant is None else grant_annotations(grant)
        await self._write(args, annotations, assumed, deadline)
        if known.pod is not None and grant is not None:
            self._granted(known.pod, grant)

    def _left_s(self, deadline: float) -> float:
        """How much of the time for a bind call is left, s.

        Raises:
            RefusedError: nothing is.
        """
        left_s = deadline - self._state.monotonic()
        if left_s <= 0:
            limit_s = self._state.settings.api_timeout_s
            raise RefusedError(
                f"the {limit_s:g} s for a bind call (ESG_API_TIMEOUT_S) were over before a Binding "
                "was sent: the API server is slow"
            )
        return left_s

    async def _is_bound_there(self, args: ExtenderBindingArgs, deadline: float) -> bool:
        """Whether an earlier call did all of it.

        Raises:
            RefusedError: the pod is bound elsewhere, or may be.
        """
        held = self._state.ledger.reservation(args.PodUID)
        if held is None:
            return False
        fate = "bound" if held.confirmed else await self._fate(held, self._left_s(deadline))
        if fate == "gone":
            return False
        if fate != "bound":
            raise RefusedError(
                f"a Binding of this pod to node {held.node} may have landed; "
                "it is asked about before anything else is tried"
            )
        held = self._state.ledger.reservation(args.PodUID) or held
        if held.node != args.Node:
            raise RefusedError(f"the pod is bound to node {held.node} already")
        return True

    async def _known(self, args: ExtenderBindingArgs, deadline: float) -> PendingPod:
        """The pod as the reflector knows it, or else as the API server does."""
        known = self._state.waiting.get(args.PodUID)
        if known is not None:
            return known
        try:
            raw = await self._link.get_pod(
                args.PodNamespace, args.PodName, timeout_s=self._left_s(deadline)
            )
        except ClusterError as error:
            raise RefusedError(f"pod {args.PodNamespace}/{args.PodName}: {error}") from error
        name = f"{args.PodNamespace}/{args.PodName}"
        if raw is None:
            raise RefusedError(f"pod {name} is not there any more")
        known = describe(raw)
        if known.uid != args.PodUID:
            raise RefusedError(
                f"pod {name} was made anew: its uid is {known.uid}, not {args.PodUID}"
            )
        return known

    def _assume(self, pod: FunctionPod, args: ExtenderBindingArgs) -> tuple[Reservation, Grant]:
        """Choose the configuration and the GPU on this node, and hold them."""
        state = self._state
        decision = self._decider.decide(pod, [args.Node])
        candidate = decision.placing.candidate
        if candidate is None:
            raise RefusedError(
                f"node {args.Node}: {self._decider.refusals(decision)[args.Node].reason}"
            )
        gpu = state.ledger.fleet.gpus[int(decision.placing.gpu_rows[0])]
        assert gpu is not None  # noqa: S101 - a row that holds a candidate has a GPU
        configuration = candidate.configuration
        reservation = Reservation(
            uid=args.PodUID,
            namespace=args.PodNamespace,
            name=args.PodName,
            node=args.Node,
            cpu_milli=cpu_request(pod).with_configuration(configuration.cpu),
            gpu_uuid=gpu.uuid,
            gpu_percent=configuration.gpu_percent,
            memory_mib=configuration.memory_mib,
            batch=configuration.batch,
            function=state.function_of(pod),
            priority=pod.priority,
            assumed_at_s=state.monotonic(),
        )
        try:
            state.ledger.assume(reservation)
        except DoesNotFitError as error:
            raise RefusedError(str(error)) from None
        return reservation, Grant(
            gpu.uuid,
            configuration.gpu_percent,
            configuration.memory_mib,
            configuration.batch,
            plan_json(decision),
        )

    async def _write(
        self,
        args: ExtenderBindingArgs,
        annotations: Mapping[str, str],
        assumed: Reservation | None,
        deadline: float,
    ) -> None:
        """Write the Binding; give back what was assumed when it is sure that it did not land."""
        state = self._state
        wanted = Binding(args.PodNamespace, args.PodName, args.PodUID, args.Node, annotations)
        result = await self._link.bind(wanted, timeout_s=deadline - state.monotonic())
        state.metrics.binds.labels(result.outcome.name.lower()).inc()
        if result.outcome is BindOutcome.BOUND:
            state.waiting.pop(args.PodUID, None)
            return
        if result.pod is not None and _is_bound(result.pod, args.PodUID):
            state.pods.adopt(result.pod, assumed)
        elif result.outcome is BindOutcome.REFUSED and assumed is not None:
            state.ledger.withdraw(assumed)
        if result.outcome is BindOutcome.ALREADY_BOUND:
            return
        raise RefusedError(result.message)

    def _granted(self, pod: FunctionPod, grant: Grant) -> None:
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


def plan_json(decision: Decision) -> dict[str, Any]:
    """What a pod's annotation ``plan`` says: the candidate that was taken, and out of what."""
    placing = decision.placing
    assert placing.candidate is not None  # noqa: S101 - there is a plan only for what is granted
    budget_ms = decision.plan.budget_ms
    return placing.candidate.as_json() | {
        "feasible": decision.plan.feasible,
        "budget_ms": budget_ms,
        "rank": placing.chosen,
        "exact": decision.plan.exact,
        "epsilon": decision.plan.epsilon,
        "says": decision.plan.says,
    }


def slo_message(grant: Grant) -> str:
    """Why the SLO cannot be met, for people."""
    plan = grant.plan
    return (
        f"{plan['says']}; as granted the stages left take {plan['path_ms']:,.0f} ms with "
        f"batch {plan['batch']}, {plan['cpu']} vCPU and {plan['gpu_percent']} % of a GPU"
    )
