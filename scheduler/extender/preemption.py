"""Preempt: where evicting pods makes room on one GPU, and whom to evict there.

kube-scheduler's own dry run counts GPU percent per node, not per GPU, so its victims may free two
halves of two GPUs where one whole is asked. Here its victims are tried on each GPU, and pods of
lower priority on the GPU that is nearest are added until the pod fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.extender.pods import describe
from scheduler.extender.scheduling import RefusedError, Scheduler
from scheduler.extender.state import State
from scheduler.extender.wire import ExtenderPreemptionArgs, MetaPod, MetaVictims
from scheduler.ledger.reservation import Reservation
from scheduler.model.plan import Candidate
from scheduler.model.pod import FunctionPod

Asks = Sequence[tuple[int, int]]  # (percent, memory in MiB) of each candidate that holds on a GPU


@dataclass(frozen=True, slots=True)
class _Room:
    """What is free on one GPU."""

    percent: int
    memory_mib: int
    clients: int

    def without(self, hold: Reservation) -> "_Room":
        """The room when that pod is gone."""
        return _Room(
            self.percent + hold.gpu_percent, self.memory_mib + hold.memory_mib, self.clients + 1
        )

    def fits(self, asks: Asks) -> bool:
        """Whether some candidate fits."""
        return self.clients > 0 and any(
            percent <= self.percent and memory_mib <= self.memory_mib
            for percent, memory_mib in asks
        )


class Preemptor:
    """Answers preempt calls from the ledger."""

    def __init__(self, state: State, decider: Scheduler) -> None:
        self._state = state
        self._decider = decider

    def preempt(self, args: ExtenderPreemptionArgs) -> dict[str, MetaVictims]:
        """The nodes of the question where the pod will fit, each with its victims.

        Raises:
            RefusedError: the pod is ours and cannot be planned.
        """
        known = describe(args.Pod)
        if known.pod is None:
            if known.problem:
                raise RefusedError(known.problem)
            return args.victims()
        victims = args.victims()
        plan, taken = self._decider.plan_for(known.pod, victims)
        answer = {}
        for place, (node, proposed) in enumerate(victims.items()):
            uids = {victim.UID for victim in proposed.Pods or []}
            candidates = [c for c in plan.candidates if c.start_ms >= taken.at(place)]
            extra = self._extra_victims(known.pod, candidates, node, uids)
            if extra is not None and uids | extra:
                more = [MetaPod(UID=uid) for uid in sorted(extra)]
                answer[node] = proposed.model_copy(update={"Pods": [*(proposed.Pods or []), *more]})
        return answer

    def _extra_victims(
        self, pod: FunctionPod, candidates: Sequence[Candidate], node: str, uids: set[str]
    ) -> set[str] | None:
        """Whom to evict beside ``uids``: the least important over the node's GPUs, then the fewest.

        None where nothing helps.
        """
        fleet = self._state.ledger.fleet
        row = fleet.node_row.get(node)
        known = None if row is None else fleet.nodes[row]
        if known is None:
            return None
        held = self._state.ledger.on_node(node)
        choices = []
        for gpu in known.gpus:
            asks = [
                (candidate.configuration.gpu_percent, candidate.configuration.memory_mib)
                for candidate in candidates
                if candidate.gpu_model == gpu.model
            ]
            if not asks or not gpu.healthy:
                continue
            gpu_row = fleet.gpu_row(node, gpu.uuid)
            room = _Room(
                int(fleet.arrays.gpu_free_percent[gpu_row]),
                int(fleet.arrays.gpu_free_memory_mib[gpu_row]),
                int(fleet.arrays.gpu_free_clients[gpu_row]),
            )
            here = [hold for hold in held if hold.gpu_uuid == gpu.uuid]
            for hold in here:
                if hold.uid in uids:
                    room = room.without(hold)
            lower = [h for h in here if h.uid not in uids and h.priority < pod.priority]
            choices.append(_fewest(room, asks, lower))
        best = min((choice for choice in choices if choice is not None), key=_loss, default=None)
        return None if best is None else {hold.uid for hold in best}


def _loss(victims: Sequence[Reservation]) -> tuple[int, int]:
    """As kube-scheduler compares: the highest priority that is lost, then how many are."""
    return max((hold.priority for hold in victims), default=-(2**31)), len(victims)


def _fewest(room: _Room, asks: Asks, lower: list[Reservation]) -> list[Reservation] | None:
    """Whom of ``lower`` to evict until some candidate fits: the least important, largest first."""
    chosen: list[Reservation] = []
    for hold in sorted(lower, key=lambda hold: (hold.priority, -hold.gpu_percent)):
        if room.fits(asks):
            break
        chosen.append(hold)
        room = room.without(hold)
    return chosen if room.fits(asks) else None
