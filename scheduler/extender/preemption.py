"""Preempt: nodes where eviction frees enough of one GPU, and the victims there.

kube-scheduler's own dry run counts GPU percent per node, not per GPU: its victims may free two
halves of two GPUs for a pod that needs a whole one. Here its victims are tried on each GPU, and
pods of lower priority on that GPU are added until the pod fits. Victims on other GPUs are spared,
unless the node needs their vCPUs or percent. Victims that violate no disruption budget go first.

A member of a pool frees memory and no percent, a holder percent and no memory. A member that waits
needs a slice of its pool and no percent beside it, so no holder is added to its victims.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from scheduler.extender.disruption_budgets import DisruptionBudgets
from scheduler.extender.nominations import Nomination
from scheduler.extender.scheduling import Scheduler
from scheduler.extender.wire import ExtenderPreemptionArgs, MetaPod, MetaVictims
from scheduler.ledger.reservation import Reservation
from scheduler.model.names import POOL_HOLDER, POOL_MEMBER
from scheduler.model.node import Gpu
from scheduler.model.plan import Candidate, Configuration
from scheduler.model.pod import FunctionPod
from scheduler.planning.pods import describe
from scheduler.planning.state import State
from scheduler.server.errors import RefusedError

Demands = Sequence[Configuration]  # of the candidates for a GPU, in their order


@dataclass(frozen=True, slots=True)
class _Capacity:
    """Free capacity of one GPU."""

    percent: int
    memory_mib: int
    clients: int

    def without(self, victim: Reservation) -> "_Capacity":
        """Capacity after the eviction of a pod."""
        return _Capacity(
            self.percent + victim.gpu_percent,
            self.memory_mib + victim.memory_mib,
            self.clients + (victim.memory_mib > 0),
        )

    def first_fit(self, demands: Demands) -> Configuration | None:
        """Return the first candidate that fits; None where none does."""
        if self.clients <= 0:
            return None
        return next(
            (
                demand
                for demand in demands
                if demand.gpu_percent <= self.percent and demand.memory_mib <= self.memory_mib
            ),
            None,
        )


@dataclass(frozen=True, slots=True)
class _Choice:
    """A GPU for the pod.

    Attributes:
        violations: number of victims whose eviction violates a disruption budget.
        nomination: share of the pod, and the pods to evict, the most important first.
        loss: violations, rank of the victims that kube-scheduler did not propose, and rank of all
            victims, compared in this order. The rank is kube-scheduler's: the highest priority,
            then the number.
    """

    violations: int
    nomination: Nomination
    loss: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _NodeCall:
    """One node of a call: candidates that start in time there, UIDs of the proposed victims."""

    node: str
    candidates: Sequence[Candidate]
    uids: Sequence[str]

    def demands(self, gpu: Gpu) -> Demands:
        """Return the configurations of the candidates for a GPU."""
        return [c.configuration for c in self.candidates if c.gpu_model == gpu.model]


class Preemptor:
    """Answers preempt calls from the ledger."""

    def __init__(
        self, state: State, scheduler: Scheduler, disruption_budgets: DisruptionBudgets
    ) -> None:
        self._state = state
        self._scheduler = scheduler
        self._disruption_budgets = disruption_budgets

    def preempt(self, args: ExtenderPreemptionArgs) -> dict[str, MetaVictims]:
        """Select the nodes of the call where the pod will fit, with the victims of each.

        Raises:
            RefusedError: the pod is a function pod and cannot be planned.
        """
        pod = describe(args.Pod)
        if pod.problem:
            raise RefusedError(pod.problem)
        victims = args.victims()
        if pod.function_pod is None:
            return victims
        node_rows = self._state.ledger.fleet.rows(list(victims))
        plan, latencies = self._scheduler.planner.plan_for_nodes(pod.function_pod, node_rows)
        calls = [
            _NodeCall(
                node,
                [c for c in plan.candidates if c.start_ms >= latencies.at_ms(index)],
                [victim.UID for victim in proposed.Pods or []],
            )
            for index, (node, proposed) in enumerate(victims.items())
        ]
        # Another pod waits for its victims, too: what they free is its share.
        promised = self._scheduler.promises.against(pod.uid)
        with self._scheduler.nominations.reserved(self._state.ledger.fleet, pod, promised):
            choices = self._repeated(pod.uid, pod.function_pod, calls) or {
                call.node: choice
                for call in calls
                if (choice := self._choose_gpu(pod.function_pod, call)) is not None
                and choice.nomination.victims
            }
        self._scheduler.nominations.choose(pod.uid, {n: c.nomination for n, c in choices.items()})
        return {
            node: MetaVictims(
                Pods=[MetaPod(UID=uid) for uid in choice.nomination.victims],
                NumPDBViolations=choice.violations,
            )
            for node, choice in choices.items()
            if choice.nomination.victims
        }

    def _repeated(
        self, uid: str, pod: FunctionPod, calls: Sequence[_NodeCall]
    ) -> dict[str, _Choice]:
        """Return earlier choices that still suffice: those of which victims have ended, or all."""
        repeated: dict[str, _Choice] = {}
        progressed: dict[str, _Choice] = {}
        for call in calls:
            earlier = self._scheduler.nominations.choice(uid, call.node)
            if earlier is not None and (again := self._repeat(pod, call, earlier)):
                repeated[call.node] = again
                if len(again.nomination.victims) < len(earlier.victims):
                    progressed[call.node] = again
        return progressed or repeated

    def _repeat(self, pod: FunctionPod, call: _NodeCall, earlier: Nomination) -> _Choice | None:
        """Return an earlier choice with the victims that remain, if they suffice.

        kube-scheduler calls again when one victim has ended, before its cache shows that the others
        terminate or have ended, too. Other victims would then be evicted for nothing. So a call
        after the end of all gets none, once: kube-scheduler counts requests, and may need more.
        """
        fleet = self._state.ledger.fleet
        reservations = self._evictable(earlier.node)
        remaining = [reservations[uid] for uid in earlier.victims if uid in reservations]
        unknown = [uid for uid in earlier.victims if uid in call.uids and uid not in reservations]
        gpu_row = fleet.gpu_row(earlier.node, earlier.gpu_uuid)
        gpu = None if gpu_row < 0 else fleet.gpus[gpu_row]
        if gpu is None or not earlier.victims:
            return None
        capacity = self._capacity(gpu_row)
        for victim in remaining:
            if victim.gpu_uuid == earlier.gpu_uuid:
                capacity = capacity.without(victim)
        demands = self._demands(pod, call, gpu)
        granted = capacity.first_fit(demands) if gpu.healthy else None
        if granted is None:
            return None
        nomination = Nomination.of(pod, earlier.node, earlier.gpu_uuid, granted)
        if min(self._spare(pod, nomination, remaining)) < 0:
            return None
        return self._choice(pod, nomination, remaining, [], unknown)

    def _choose_gpu(self, pod: FunctionPod, call: _NodeCall) -> _Choice | None:
        """Choose the GPU whose victims violate the fewest budgets, are least important and fewest.

        None where no eviction helps.
        """
        fleet, node = self._state.ledger.fleet, call.node
        row = fleet.node_row.get(node)
        gpu_node = None if row is None else fleet.nodes[row]
        if gpu_node is None:
            return None
        reservations = self._evictable(node)
        proposed = [reservations[uid] for uid in call.uids if uid in reservations]
        unknown = [uid for uid in call.uids if uid not in reservations]
        choices = []
        for gpu in gpu_node.gpus:
            demands = self._demands(pod, call, gpu)
            if not demands or not gpu.healthy:
                continue
            gpu_row = fleet.gpu_row(node, gpu.uuid)
            capacity = self._capacity(gpu_row)
            on_gpu = [r for r in reservations.values() if r.gpu_uuid == gpu.uuid]
            for reservation in proposed:
                if reservation.gpu_uuid == gpu.uuid:
                    capacity = capacity.without(reservation)
            lower = [
                r
                for r in on_gpu
                if r not in proposed
                and r.priority < pod.priority
                and not (pod.is_member and r.pool == POOL_HOLDER)
            ]
            extra, capacity = _fewest(capacity, demands, self._by_importance(lower, proposed))
            granted = capacity.first_fit(demands)
            if granted is not None:
                nomination = Nomination.of(pod, node, gpu.uuid, granted)
                choices.append(self._choice(pod, nomination, proposed, extra, unknown))
        return min(choices, key=lambda choice: choice.loss, default=None)

    def _demands(self, pod: FunctionPod, call: _NodeCall, gpu: Gpu) -> Demands:
        """Return what the candidates for a GPU demand of it; none where the pod cannot be there."""
        demands = call.demands(gpu)
        if not pod.pool:
            return demands
        slices = [
            slice_
            for slice_ in self._state.ledger.pools.slices(pod.pool_name)
            if (slice_.node, slice_.gpu_uuid) == (call.node, gpu.uuid)
        ]
        if pod.is_holder:
            return [] if slices else demands
        return [
            replace(demand, gpu_percent=0)
            for demand in demands
            if any(
                slice_.uid not in call.uids
                and not slice_.problem(demand.gpu_percent, 1000 * demand.cpu)
                for slice_ in slices
            )
        ]

    def _evictable(self, node: str) -> dict[str, Reservation]:
        """Return the reservations of a node's pods, by UID, without pods that have vanished."""
        state = self._state
        reservations = state.ledger.on_node(node)
        return {r.uid: r for r in reservations if not state.pods.is_ending(r.uid)}

    def _by_importance(
        self, lower: list[Reservation], proposed: list[Reservation]
    ) -> list[Reservation]:
        """Order pods: those that violate no budget, then the least important, then the largest."""
        ordered = sorted(lower, key=lambda r: (r.priority, -r.gpu_percent))
        violating = self._disruption_budgets.violating((*proposed, *ordered))
        return sorted(ordered, key=lambda r: r.uid in violating)

    def _choice(
        self,
        pod: FunctionPod,
        nomination: Nomination,
        proposed: list[Reservation],
        extra: list[Reservation],
        unknown: list[str],
    ) -> _Choice:
        """Spare proposed victims on other GPUs while the pod fits.

        Those that violate a budget are spared first, then the most important ones. ``unknown`` are
        proposed UIDs without a reservation; they remain.

        The node must have the pod's vCPUs and percent, too. Its percent are counted by grants here,
        and by requests, which may be larger, in kube-scheduler: that preempts again if it must.
        """
        victims = {victim.uid: victim for victim in (*proposed, *extra)}
        spare_milli, spare_percent = self._spare(pod, nomination, victims.values())
        violating = self._disruption_budgets.violating(victims.values())
        elsewhere = [v for v in proposed if v.gpu_uuid not in (None, nomination.gpu_uuid)]
        for victim in sorted(elsewhere, key=lambda v: (v.uid not in violating, -v.priority)):
            if (
                len(victims) > 1  # kube-scheduler takes a node without victims for an error
                and victim.cpu_milli <= spare_milli
                and victim.gpu_percent <= spare_percent
            ):
                del victims[victim.uid]
                spare_milli -= victim.cpu_milli
                spare_percent -= victim.gpu_percent
        # kube-scheduler takes the first victim for the most important one.
        remaining = sorted(victims.values(), key=lambda victim: -victim.priority)
        violations = len(self._disruption_budgets.violating(remaining))
        uids = (*(victim.uid for victim in remaining), *unknown)
        return _Choice(
            violations,
            replace(nomination, victims=uids),
            (violations, *_rank(extra), *_rank(remaining)),
        )

    def _spare(
        self, pod: FunctionPod, nomination: Nomination, victims: Collection[Reservation]
    ) -> tuple[int, int]:
        """Return the vCPUs, in thousandths, and percent of the node that remain without victims."""
        fleet, arrays = self._state.ledger.fleet, self._state.ledger.fleet.arrays
        row = fleet.node_row[nomination.node]
        milli = int(arrays.node_free_cpu_milli[row]) - nomination.cpu_milli
        gpus = fleet.gpu_rows_of(row)
        free_percent = arrays.gpu_free_percent[gpus].clip(0)
        percent = int(free_percent[arrays.gpu_model[gpus] >= 0].sum())  # of healthy GPUs
        percent -= max(pod.gpu_percent_ceiling or 0, nomination.gpu_percent)
        return (
            milli + sum(victim.cpu_milli for victim in victims),
            percent + sum(victim.gpu_percent for victim in victims),
        )

    def _capacity(self, gpu_row: int) -> _Capacity:
        arrays = self._state.ledger.fleet.arrays
        return _Capacity(
            int(arrays.gpu_free_percent[gpu_row]),
            int(arrays.gpu_free_memory_mib[gpu_row]),
            int(arrays.gpu_free_clients[gpu_row]),
        )


def _rank(victims: Collection[Reservation]) -> tuple[int, int]:
    return max((victim.priority for victim in victims), default=-(2**31)), len(victims)


def _fewest(
    capacity: _Capacity, demands: Demands, lower: list[Reservation]
) -> tuple[list[Reservation], _Capacity]:
    """Take victims, in their order, until some candidate fits, and spare members of no use to it.

    Return them, and the capacity after their eviction.
    """
    victims: list[Reservation] = []
    for reservation in lower:
        if capacity.first_fit(demands) is not None:
            break
        victims.append(reservation)
        capacity = capacity.without(reservation)
    for member in [victim for victim in victims if victim.pool == POOL_MEMBER]:
        spared = _Capacity(
            capacity.percent, capacity.memory_mib - member.memory_mib, capacity.clients - 1
        )
        if spared.first_fit(demands) is not None:
            victims.remove(member)
            capacity = spared
    return victims, capacity
