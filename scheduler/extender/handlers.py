"""What the reflectors feed: nodes, pods and documents, each handed to who keeps it.

A single bad object is told and set aside; it never stops the stream, and never hides what else the
cluster holds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from scheduler.extender.pods import PendingPod, cpu_request, describe, version_of
from scheduler.ledger.reservation import Reservation
from scheduler.model.documents import Document, FunctionProfile, Workflow
from scheduler.model.node import Node, NodeError, node_from_json
from scheduler.model.pod import PodError, grant_of, has_ended, requested_cpu_milli
from scheduler.model.reading import DocumentError, parse_document

if TYPE_CHECKING:  # the state makes its handlers, and they write to it
    from scheduler.extender.state import State

log = structlog.get_logger(__name__)


class NodeHandler:
    """Nodes: their GPUs and vCPUs go to the ledger."""

    def __init__(self, state: "State") -> None:
        self._state = state

    def replace(self, items: Iterable[Mapping[str, Any]]) -> None:
        """All nodes there are."""
        seen = {self._set(raw) for raw in items}
        for name in self._state.ledger.node_names():
            if name not in seen:
                self._remove(name)

    def upsert(self, item: Mapping[str, Any]) -> None:
        """A node came or changed."""
        self._set(item)

    def delete(self, item: Mapping[str, Any]) -> None:
        """A node went."""
        self._remove(item["metadata"]["name"])

    def _set(self, raw: Mapping[str, Any]) -> str:
        state = self._state
        name = str(raw["metadata"]["name"])
        try:
            node = node_from_json(raw)
        except NodeError as error:
            # Its GPUs are unknown now, so nothing more may be put there; what it holds stays held.
            if state.node_problems.get(name) != str(error):
                log.error("node cannot be read", node=name, problem=str(error))
            state.node_problems[name] = str(error)
            node = Node(name, (), 0)
        else:
            state.node_problems.pop(name, None)
        state.ledger.set_node(node)
        return name

    def _remove(self, name: str) -> None:
        self._state.node_problems.pop(name, None)
        self._state.ledger.remove_node(name)


class PodHandler:
    """Pods: what is bound goes to the ledger, what waits is remembered, lives go to the tracker."""

    def __init__(self, state: "State") -> None:
        self._state = state
        # The newest resourceVersion heard since the last list: of the watch, so of all pods.
        self.version = 0
        self.problems: dict[str, str] = {}  # why a bound pod's grant cannot be read, by its UID

    def replace(self, items: Iterable[Mapping[str, Any]]) -> None:
        """All pods there are. Assumed holds stay: their pod may be younger than the list."""
        state = self._state
        self.version = 0  # an etcd that was restored counts from an older one
        seen = set()
        for raw in items:
            seen.add(raw["metadata"]["uid"])
            self._see(raw, live=False)
        held = [hold.uid for hold in state.ledger.reservations() if hold.confirmed]
        for uid in {*held, *state.waiting, *state.tracker.uids()} - seen:
            self._forget(uid)
        # One that was adopted, and was gone before the watch had shown it, is nobody's any more.
        for uid in [uid for uid in self.problems if state.ledger.reservation(uid) is None]:
            del self.problems[uid]

    def upsert(self, item: Mapping[str, Any]) -> None:
        """A pod came or changed."""
        self._see(item, live=True)

    def delete(self, item: Mapping[str, Any]) -> None:
        """A pod is gone: now, and not earlier, its share is free."""
        self.version = max(self.version, version_of(item))
        self._forget(item["metadata"]["uid"])

    def adopt(self, item: Mapping[str, Any], assumed: Reservation | None) -> None:
        """A bound pod that was read on its own, past the watch, because of its Binding.

        ``assumed`` is what it held when the read began. Where that is so no more, the watch was
        faster, and what it has shown stays.
        """
        known = describe(item)
        if self._state.ledger.reservation(known.uid) is not assumed:
            return
        self._state.waiting.pop(known.uid, None)
        if has_ended(item):
            self._release(known.uid)
            return
        held = self._hold(item, known, str(item["spec"]["nodeName"]))
        self._state.ledger.adopt(replace(held, assumed_at_s=self._state.monotonic()))

    def _forget(self, uid: str) -> None:
        state = self._state
        state.waiting.pop(uid, None)
        self._release(uid)
        state.tracker.remove(uid, state.clock())

    def _release(self, uid: str) -> None:
        self._state.ledger.release(uid)
        self.problems.pop(uid, None)

    def _see(self, raw: Mapping[str, Any], *, live: bool) -> None:
        state = self._state
        self.version = max(self.version, version_of(raw))
        known = describe(raw)
        spec = raw.get("spec") or {}
        if known.pod is not None:
            function = state.function_of(known.pod)
            state.tracker.observe(raw, known.pod, function, state.clock(), live=live)
        if has_ended(raw):
            state.waiting.pop(known.uid, None)
            self._release(known.uid)
        elif node := spec.get("nodeName"):
            state.waiting.pop(known.uid, None)
            state.ledger.confirm(self._hold(raw, known, str(node)))
        elif known.pod is not None or known.problem:
            state.waiting[known.uid] = known

    def _hold(self, raw: Mapping[str, Any], known: PendingPod, node: str) -> Reservation:
        try:
            grant = grant_of(raw)
        except PodError as error:
            # Its share cannot be counted, so the GPU may hold more than the ledger knows.
            problem = str(error)
            if self.problems.get(known.uid) != problem:
                pod = f"{known.namespace}/{known.name}"
                log.error("grant cannot be read", pod=pod, problem=problem)
            self.problems[known.uid] = problem
            grant = None
        else:
            self.problems.pop(known.uid, None)
        cpu_milli = requested_cpu_milli(raw)
        if grant is not None and known.pod is not None:
            # What was planned counts where the container does not request it.
            cpu_milli = cpu_request(known.pod).with_configuration(grant.cpu)
        return Reservation(
            uid=known.uid,
            namespace=known.namespace,
            name=known.name,
            node=node,
            cpu_milli=cpu_milli,
            gpu_uuid=None if grant is None else grant.gpu_uuid,
            gpu_percent=0 if grant is None else grant.gpu_percent,
            memory_mib=0 if grant is None else grant.memory_mib,
            batch=0 if grant is None else grant.batch,
            function="" if known.pod is None else self._state.function_of(known.pod),
            priority=(raw.get("spec") or {}).get("priority") or 0,
        )


class DocumentHandler:
    """Workflows or FunctionProfiles by namespace and name."""

    def __init__(self, kind: type[Workflow] | type[FunctionProfile]) -> None:
        self._kind = kind
        self._documents: dict[tuple[str, str], Document] = {}
        self.problems: dict[tuple[str, str], list[str]] = {}  # why one cannot be used
        self.changed = True

    def known(self) -> Iterable[Document]:
        """The documents that are there and sound."""
        return self._documents.values()

    def replace(self, items: Iterable[Mapping[str, Any]]) -> None:
        """All documents there are."""
        seen = {self._set(raw) for raw in items}
        for key in {*self._documents, *self.problems} - seen:
            self._forget(key)
        self.changed = True

    def upsert(self, item: Mapping[str, Any]) -> None:
        """A document came or changed."""
        self._set(item)

    def delete(self, item: Mapping[str, Any]) -> None:
        """A document went."""
        self._forget(_key(item))
        self.changed = True

    def _forget(self, key: tuple[str, str]) -> None:
        self._documents.pop(key, None)
        self.problems.pop(key, None)

    def _set(self, raw: Mapping[str, Any]) -> tuple[str, str]:
        key = _key(raw)
        try:
            # The items of a list carry neither kind nor apiVersion of their own.
            document = parse_document({"kind": self._kind.__name__, **raw}, "the API server")
        except DocumentError as error:
            problems = [str(problem) for problem in error.problems]
            if self.problems.get(key) != problems:
                log.error("document cannot be used", problems=problems)
            self.problems[key] = problems
            self._documents.pop(key, None)
        else:
            self.problems.pop(key, None)
            if document is not None:
                self._documents[key] = document
        self.changed = True
        return key


def _key(raw: Mapping[str, Any]) -> tuple[str, str]:
    metadata = raw["metadata"]
    return metadata.get("namespace") or "", metadata["name"]
