"""Handlers of the reflectors: nodes and pods go to the ledger and the tracker.

An invalid object is logged and set aside; it never stops the stream and never hides other objects.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Any

import structlog

from scheduler.ledger.ledger import Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.model.grant import grant_of
from scheduler.model.names import POOL_HOLDER
from scheduler.model.node import Node, NodeError, node_from_json
from scheduler.model.pod import FunctionPod, grace_period_s, has_ended, is_daemon
from scheduler.model.pod_fields import PodError
from scheduler.model.pod_resources import requested_cpu_milli
from scheduler.model.rejection import rejection_of
from scheduler.planning.pods import PendingPod, cpu_request, describe, version_of
from scheduler.slo.tracker import Tracker

log = structlog.get_logger(__name__)


class NodeHandler:
    """Nodes: their GPUs and vCPUs go to the ledger.

    Attributes:
        problems: why a node cannot be read, by its name.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.problems: dict[str, str] = {}

    def replace(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Replace all nodes by those of a list."""
        seen = set()
        for raw in items:
            seen.add(str(raw["metadata"]["name"]))
            with _set_aside("node", raw):
                self._set(raw)
        for name in self._ledger.node_names():
            if name not in seen:
                self._remove(name)

    def upsert(self, item: Mapping[str, Any]) -> None:
        """Add or change a node."""
        self._set(item)

    def delete(self, item: Mapping[str, Any]) -> None:
        """Remove a node."""
        self._remove(item["metadata"]["name"])

    def _set(self, raw: Mapping[str, Any]) -> None:
        name = str(raw["metadata"]["name"])
        try:
            node = node_from_json(raw)
        except NodeError as error:
            # Its GPUs are unknown now: nothing is placed there, and its reservations remain.
            if self.problems.get(name) != str(error):
                log.error("node cannot be read", node=name, problem=str(error))
            self.problems[name] = str(error)
            node = Node(name, (), 0)
        else:
            self.problems.pop(name, None)
        self._ledger.set_node(node)

    def _remove(self, name: str) -> None:
        self.problems.pop(name, None)
        self._ledger.remove_node(name)


class PodHandler:
    """Pods: reservations of bound pods go to the ledger, timelines to the tracker.

    The share of a GPU that a bound pod has is free once its kubelet reports the end of the
    containers. A pod that vanishes without that keeps its share for its grace period (ADR 43). The
    slice of a holder is free neither before its grace period from its deletion, or its end, on:
    until then batches of members may run in it, whose containers are others (ADR 44).

    Attributes:
        listed_s: time of the last list, on the monotonic clock. What happened before and is not in
            the list is not known.
        version: the newest resourceVersion since the last list. The watch covers all pods, so it
            tells how current the cache is.
        pending: function pods that are not bound, and malformed ones, by UID.
        problems: why the grant of a bound pod cannot be read, by UID.
    """

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        ledger: Ledger,
        tracker: Tracker,
        *,
        function_of: Callable[[FunctionPod], str],
        on_rejected: Callable[[], None],
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        grace_max_s: float,
    ) -> None:
        self._ledger = ledger
        self._tracker = tracker
        self._grace_max_s = grace_max_s
        self._function_of = function_of
        self._on_rejected = on_rejected
        self._clock = clock
        self._monotonic = monotonic
        self.version = 0
        self.listed_s = -inf
        self.pending: dict[str, PendingPod] = {}
        self.problems: dict[str, str] = {}
        # When the containers of vanished pods, and the batches in ended slices, have ended, by UID.
        self._ending_s: dict[str, float] = {}
        self._closed_s: dict[str, float] = {}  # when a holder was seen deleted first, by UID

    def replace(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Replace all pods by those of a list.

        Assumed reservations remain: their pod may be newer than the list.
        """
        self.version = 0  # a restored etcd counts from an older one
        self.listed_s = self._monotonic()
        seen = set()
        for raw in items:
            seen.add(raw["metadata"]["uid"])
            with _set_aside("pod", raw):
                self._observe(raw, live=False)
        confirmed = [bound.uid for bound in self._ledger.reservations() if bound.confirmed]
        for uid in {*confirmed, *self.pending, *self._tracker.uids()} - seen:
            self.vanish(uid)
        # A pod that was adopted and deleted before the watch showed it has no reservation left.
        for uid in [uid for uid in self.problems if self._ledger.reservation(uid) is None]:
            del self.problems[uid]

    def upsert(self, item: Mapping[str, Any]) -> None:
        """Add or change a pod."""
        self._observe(item, live=True)

    def delete(self, item: Mapping[str, Any]) -> None:
        """Remove a pod; ``item`` is its last state."""
        self.version = max(self.version, version_of(item))
        uid = item["metadata"]["uid"]
        if not (item.get("spec") or {}).get("nodeName"):
            self._release(uid)
        elif has_ended(item):
            self._end(uid)
        elif (reservation := self._ledger.reservation(uid)) is None or not reservation.confirmed:
            self._account(describe(item), item)
        self.vanish(uid)

    def vanish(self, uid: str) -> None:
        """Forget a pod that does not exist any more, and whose end nothing has shown.

        Its share of a GPU stays reserved until its containers must have ended.
        """
        self.pending.pop(uid, None)
        self._tracker.remove(uid, self._clock())
        reservation = self._ledger.reservation(uid)
        if reservation is None or reservation.gpu_uuid is None or not self._grace_max_s:
            self._release(uid)
        else:
            self._keep_for_grace(reservation)

    def _end(self, uid: str) -> None:
        """Release what a pod has whose containers have ended, but the slice of a holder later."""
        reservation = self._ledger.reservation(uid)
        if reservation is None or reservation.pool != POOL_HOLDER or not self._grace_max_s:
            self._release(uid)
        else:
            self._keep_for_grace(reservation)

    def _keep_for_grace(self, reservation: Reservation) -> None:
        """Keep a reservation for its grace period from now on, or from a holder's deletion on."""
        uid = reservation.uid
        if uid not in self._ending_s:
            self._ledger.confirm(replace(reservation, is_ending=True))
            since_s = self._closed_s.get(uid, self._monotonic())
            self._ending_s[uid] = since_s + min(reservation.grace_s, self._grace_max_s)

    def vanish_unconfirmed(self, assumed: Reservation) -> None:
        """Do so for a pod that may have been bound, unless the watch was faster."""
        if self._ledger.reservation(assumed.uid) is assumed:
            self.vanish(assumed.uid)

    def is_ending(self, uid: str) -> bool:
        """Return true if a pod keeps its share for its grace period, and is gone or has ended."""
        return uid in self._ending_s

    def expire(self) -> None:
        """Release the shares of pods that vanished, and slices, where all must have ended."""
        now_s = self._monotonic()
        for uid in [uid for uid, end_s in self._ending_s.items() if end_s <= now_s]:
            self._release(uid)

    @contextmanager
    def without_ending(self) -> Iterator[bool]:
        """Leave out the shares that wait for a grace period, and yield if there are any.

        The block must not await.
        """
        ending = list(filter(None, map(self._ledger.reservation, self._ending_s)))
        for reservation in ending:
            self._ledger.fleet.release(reservation)
            self._ledger.pools.remove(reservation)
        try:
            yield bool(ending)
        finally:
            for reservation in ending:
                self._ledger.fleet.reserve(reservation)
                self._ledger.pools.add(reservation)

    def adopt(self, item: Mapping[str, Any], assumed: Reservation | None) -> None:
        """Reserve what a bound pod shows that was read outside the watch, for its Binding.

        ``assumed`` is its reservation when the read began. If that has changed, the watch was
        faster and its state remains.
        """
        pod = describe(item)
        if self._ledger.reservation(pod.uid) is not assumed:
            return
        self.pending.pop(pod.uid, None)
        if has_ended(item):
            self._end(pod.uid)
            return
        reservation = self._reservation(pod, str(item["spec"]["nodeName"]))
        self._ledger.adopt(replace(reservation, assumed_at_s=self._monotonic()))

    def refresh(self, item: Mapping[str, Any]) -> None:
        """Take in an unbound pod that was read outside the watch, if it is newer."""
        pending = self.pending.get(item["metadata"]["uid"])
        if pending is not None and version_of(pending.raw) < version_of(item):
            self._account(describe(item), item)

    def _release(self, uid: str) -> None:
        self._ledger.release(uid)
        self.problems.pop(uid, None)
        self._ending_s.pop(uid, None)
        self._closed_s.pop(uid, None)

    def _observe(self, raw: Mapping[str, Any], *, live: bool) -> None:
        self.version = max(self.version, version_of(raw))
        pod = describe(raw)
        self._account(pod, raw)
        if pod.function_pod is not None and not pod.function_pod.states_share:
            # After the ledger: whatever fails in the statistics, the share is counted.
            function = self._function_of(pod.function_pod)
            self._tracker.observe(raw, pod.function_pod, function, self._clock(), live=live)

    def _account(self, pod: PendingPod, raw: Mapping[str, Any]) -> None:
        """Reserve or release what the pod shows, or keep it as pending."""
        node = (raw.get("spec") or {}).get("nodeName")
        if has_ended(raw):
            self._report_rejection(pod, raw)
            self.pending.pop(pod.uid, None)
            self._end(pod.uid)
        elif node:
            self.pending.pop(pod.uid, None)
            self._ending_s.pop(pod.uid, None)
            reservation = self._reservation(pod, str(node))
            if reservation.pool == POOL_HOLDER and reservation.is_ending:
                self._closed_s.setdefault(pod.uid, self._monotonic())
            self._ledger.confirm(reservation)
        else:
            self._release_outdated(pod)
            if pod.function_pod is not None or pod.problem:
                self.pending[pod.uid] = pod

    def _report_rejection(self, pod: PendingPod, raw: Mapping[str, Any]) -> None:
        """Report a function pod that its kubelet rejects, when that is seen first."""
        why = rejection_of(raw)
        if pod.function_pod is not None and why and self._ledger.reservation(pod.uid) is not None:
            self._on_rejected()
            log.warning(
                "the kubelet rejected a function pod; its owner must create it again",
                pod=f"{pod.namespace}/{pod.name}",
                node=raw["spec"].get("nodeName"),
                reason=why,
            )

    def _release_outdated(self, pod: PendingPod) -> None:
        """Release what is assumed for a pod that has changed since: its Binding is void."""
        assumed = self._ledger.reservation(pod.uid)
        if assumed is None or assumed.confirmed or not assumed.pod_version:
            return
        if version_of(pod.raw) > assumed.pod_version:
            self._ledger.withdraw(assumed)

    def _reservation(self, pod: PendingPod, node: str) -> Reservation:
        try:
            grant = grant_of(pod.raw)
        except PodError as error:
            # Its share is unknown, so the GPU may be used by more than the ledger counts.
            problem = str(error)
            if self.problems.get(pod.uid) != problem:
                log.error(
                    "grant cannot be read", pod=f"{pod.namespace}/{pod.name}", problem=problem
                )
            self.problems[pod.uid] = problem
            grant = None
        else:
            self.problems.pop(pod.uid, None)
        metadata = pod.raw.get("metadata") or {}
        # A later deletion, by force, does not shorten the grace period of an earlier one.
        earlier = self._ledger.reservation(pod.uid)
        grace_s = max(grace_period_s(pod.raw), 0.0 if earlier is None else earlier.grace_s)
        function_pod = pod.function_pod
        if grant is None or function_pod is None:
            cpu_milli = requested_cpu_milli(pod.raw)
        else:
            # The planned vCPUs count where the container does not request them.
            if grant.pool != function_pod.pool:
                function_pod = replace(function_pod, pool=grant.pool)
            cpu_milli = cpu_request(function_pod).with_configuration(grant.cpu)
        reservation = Reservation(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            node=node,
            cpu_milli=cpu_milli,
            function="" if pod.function_pod is None else self._function_of(pod.function_pod),
            priority=(pod.raw.get("spec") or {}).get("priority") or 0,
            is_daemon=grant is None and is_daemon(pod.raw),
            grace_s=grace_s,
            is_ending=bool(metadata.get("deletionTimestamp")),
            pod_version=version_of(pod.raw),
            labels=metadata.get("labels") or {},
        )
        return reservation if grant is None else reservation.with_grant(grant)


@contextmanager
def _set_aside(kind: str, raw: Mapping[str, Any]) -> Iterator[None]:
    """Log an object of a list that cannot be taken in: it hides none of the others."""
    try:
        yield
    except Exception:
        metadata = raw["metadata"]
        log.exception(
            "object of a list is set aside",
            kind=kind,
            namespace=metadata.get("namespace"),
            name=metadata.get("name"),
        )
