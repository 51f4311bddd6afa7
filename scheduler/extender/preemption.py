"""Preempt: nodes where eviction frees enough of one GPU, and the victims there.

kube-scheduler's own dry run counts GPU percent per node, not per GPU: its victims may free two
halves of two GPUs for a pod that needs a whole one. Here its victims are tried on each GPU, and
pods of lower priority on that GPU are added until the pod fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.extender.pods import describe
from scheduler.extender.scheduling import Scheduler
from scheduler.extender.state import State
from scheduler.extender.wire import ExtenderPreemptionArgs, MetaPod, MetaVictims
from scheduler.ledger.reservation import Reservation
from scheduler.model.plan import Candidate
from scheduler.model.pod import FunctionPod
from scheduler.server.errors import RefusedError

Demands = Sequence[tuple[int, int]]  # (percent, memory in MiB) of each candidate for a GPU


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
            self.clients + 1,
        )

    def fits(self, demands: Demands) -> bool:
        """Return True where some candidate fits."""
        return self.clients > 0 and any(
            percent <= self.percent and memory_mib <= self.memory_mib
            for percent, memory_mib in demands
        )


class Preemptor:
    """Answers preempt calls from the ledger."""

    def __init__(self, state: State, scheduler: Scheduler) -> None:
        self._state = state
        self._scheduler = scheduler

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
        plan, latencies = self._scheduler.plan_for_nodes(pod.function_pod, victims)
        answer = {}
        for index, (node, proposed) in enumerate(victims.items()):
            uids = {victim.UID for victim in proposed.Pods or []}
            candidates = [c for c in plan.candidates if c.start_ms >= latencies.at_ms(index)]
            extra = self._extra_victims(pod.function_pod, candidates, node, uids)
            if extra is not None and uids | extra:
                added = [MetaPod(UID=uid) for uid in sorted(extra)]
                answer[node] = proposed.model_copy(
                    update={"Pods": [*(proposed.Pods or []), *added]}
                )
        return answer

    def _extra_victims(
        self, pod: FunctionPod, candidates: Sequence[Candidate], node: str, uids: set[str]
    ) -> set[str] | None:
        """Select victims in addition to ``uids``: the least important, then the fewest.

        None where no eviction helps.
        """
        fleet = self._state.ledger.fleet
        row = fleet.node_row.get(node)
        known = None if row is None else fleet.nodes[row]
        if known is None:
            return None
        reservations = self._state.ledger.on_node(node)
        choices = []
        for gpu in known.gpus:
            demands = [
                (candidate.configuration.gpu_percent, candidate.configuration.memory_mib)
                for candidate in candidates
                if candidate.gpu_model == gpu.model
            ]
            if not demands or not gpu.healthy:
                continue
            gpu_row = fleet.gpu_row(node, gpu.uuid)
            capacity = _Capacity(
                int(fleet.arrays.gpu_free_percent[gpu_row]),
                int(fleet.arrays.gpu_free_memory_mib[gpu_row]),
                int(fleet.arrays.gpu_free_clients[gpu_row]),
            )
            on_gpu = [held for held in reservations if held.gpu_uuid == gpu.uuid]
            for reservation in on_gpu:
                if reservation.uid in uids:
                    capacity = capacity.without(reservation)
            lower = [r for r in on_gpu if r.uid not in uids and r.priority < pod.priority]
            choices.append(_fewest(capacity, demands, lower))
        best = min((choice for choice in choices if choice is not None), key=_loss, default=None)
        return None if best is None else {victim.uid for victim in best}


def _loss(victims: Sequence[Reservation]) -> tuple[int, int]:
    """Order of kube-scheduler: the highest priority among the victims, then their number."""
    return max((victim.priority for victim in victims), default=-(2**31)), len(victims)


def _fewest(
    capacity: _Capacity, demands: Demands, lower: list[Reservation]
) -> list[Reservation] | None:
    """Take victims until some candidate fits: the least important first, then the largest."""
    victims: list[Reservation] = []
    for reservation in sorted(lower, key=lambda held: (held.priority, -held.gpu_percent)):
        if capacity.fits(demands):
            break
        victims.append(reservation)
        capacity = capacity.without(reservation)
    return victims if capacity.fits(demands) else None
