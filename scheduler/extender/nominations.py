"""GPUs that are held for pods whose victims are being evicted.

A pod that preempts others waits until their containers have ended. Until then kube-scheduler counts
its requests on the nominated node, against pods of no higher priority, but not on a GPU: such a pod
could take the GPU that becomes free, and the first one would have to preempt again. So the GPU
that preempt chose is held until the pod is bound, is deleted, or loses its nomination.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from scheduler.ledger.ledger import Ledger
from scheduler.model.plan import Configuration
from scheduler.model.pod import FunctionPod
from scheduler.placement.fleet import Fleet
from scheduler.planning.pods import PendingPod, cpu_request


@dataclass(frozen=True, slots=True)
class Nomination:
    """The share of one GPU that a pod will take when its victims, by UID, have ended."""

    node: str
    gpu_uuid: str
    gpu_percent: int
    memory_mib: int
    cpu_milli: int
    is_daemon: bool = False
    victims: Sequence[str] = ()

    @classmethod
    def of(cls, pod: FunctionPod, node: str, gpu_uuid: str, granted: Configuration) -> "Nomination":
        """Build the share that a pod takes with a configuration."""
        cpu_milli = cpu_request(pod).with_configuration(granted.cpu)
        percent = 0 if pod.is_member else granted.gpu_percent  # its slice has the percent
        return cls(node, gpu_uuid, percent, granted.memory_mib, cpu_milli)


class Nominations:
    """Shares that preempt chose, by pod and by node; a pod's status names one of the nodes.

    ``pending`` are the pods of the cache that are not bound, by UID. The ``ledger`` has the share
    of one that is being bound. A restart forgets the choices: such a pod preempts again if another
    one has taken its share.
    """

    def __init__(self, pending: Mapping[str, PendingPod], ledger: Ledger) -> None:
        self._pending = pending
        self._ledger = ledger
        self._choices: dict[str, dict[str, Nomination]] = {}

    def choose(self, uid: str, choices: Mapping[str, Nomination]) -> None:
        """Store what preempt chose for a pod, by node."""
        self._expire()
        if choices:
            self._choices[uid] = dict(choices)

    def choice(self, uid: str, node: str) -> Nomination | None:
        """Return what preempt chose last for a pod on a node."""
        return self._choices.get(uid, {}).get(node)

    def victims(self, pod: PendingPod) -> Sequence[str]:
        """Return the UIDs of the pods that were evicted for a pod on its nominated node."""
        nomination = self.choice(pod.uid, _nominated_node(pod))
        return () if nomination is None else nomination.victims

    @contextmanager
    def reserved(
        self, fleet: Fleet, pod: PendingPod, further: Iterable[Nomination] = ()
    ) -> Iterator[None]:
        """Reserve nominated shares of pods of no lower priority; the block must not await.

        ``further`` are shares that are reserved, too.
        """
        nominations = [*self._against(pod), *further]
        for nomination in nominations:
            fleet.reserve(nomination)
        try:
            yield
        finally:
            for nomination in nominations:
                fleet.release(nomination)

    def _against(self, pod: PendingPod) -> Iterator[Nomination]:
        for uid, choices in self._choices.items():
            waiting = self._pending.get(uid)
            if waiting is None or uid == pod.uid or _priority(waiting) < _priority(pod):
                continue
            if self._ledger.reservation(uid) is not None:
                continue  # it is being bound, and has its share
            if (nominated := _nominated_node(waiting)) in choices:
                yield choices[nominated]

    def _expire(self) -> None:
        """Forget pods that are bound or deleted."""
        self._choices = {u: by_node for u, by_node in self._choices.items() if u in self._pending}


def _nominated_node(pod: PendingPod) -> str:
    return (pod.raw.get("status") or {}).get("nominatedNodeName") or ""


def _priority(pod: PendingPod) -> int:
    return 0 if pod.function_pod is None else pod.function_pod.priority
