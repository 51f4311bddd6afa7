"""The service's picture of the cluster, kept true by the reflectors: nodes, pods and documents.

The four handlers here are what the cluster room feeds. A single bad object is told and set aside;
it never stops the stream, and never hides what else the cluster holds.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from scheduler.ledger.ledger import Ledger
from scheduler.ledger.reservation import Reservation
from scheduler.metrics import Metrics
from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.documents import Document, FunctionProfile, Workflow
from scheduler.model.node import Node, NodeError, node_from_json
from scheduler.model.pod import (
    FunctionPod,
    PodError,
    function_pod,
    grant_of,
    has_ended,
    is_function_pod,
    requested_cpu_milli,
)
from scheduler.model.reading import DocumentError, parse_document
from scheduler.placement.placing import CpuRequest
from scheduler.search.planner import Planner
from scheduler.settings import Settings
from scheduler.slo.lives import StageEnded
from scheduler.slo.tracker import Tracker

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KnownPod:
    """A pod that waits for a node: ours and readable, ours and malformed, or none of ours."""

    namespace: str
    name: str
    uid: str
    pod: FunctionPod | None = None
    problem: str = ""


class State:
    """Ledger, tracker, documents and waiting pods."""

    def __init__(
        self, settings: Settings, metrics: Metrics, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        self.clock = clock
        self.ledger = Ledger(settings.limits)
        self.tracker = Tracker(
            workflow_of=lambda namespace, name: self.catalogue.workflows.get((namespace, name)),
            on_stage=self._stage_ended,
            on_request=metrics.request_ended,
            abandoned_after_s=settings.abandoned_after_s,
            keep_alive_s=settings.keep_alive_s,
        )
        self.node_problems: dict[str, str] = {}
        self.waiting: dict[str, KnownPod] = {}
        self.nodes = NodeHandler(self)
        self.pods = PodHandler(self)
        self.workflows = DocumentHandler(self, Workflow)
        self.profiles = DocumentHandler(self, FunctionProfile)
        self._catalogue = Catalogue()
        self._planner = Planner(
            self._catalogue,
            settings.prices,
            on_lost_slo=settings.on_lost_slo,
            expansions_max=settings.expansions_max,
        )

    @property
    def catalogue(self) -> Catalogue:
        """The documents that are known now; made anew when they change."""
        if self.workflows.changed or self.profiles.changed:
            self.workflows.changed = self.profiles.changed = False
            self._catalogue = Catalogue.of([*self.workflows.known(), *self.profiles.known()])
            self._planner = self._planner.replaced(self._catalogue)
            self.metrics.documents_changed(self._catalogue)
        return self._catalogue

    @property
    def planner(self) -> Planner:
        """The planner over the documents that are known now."""
        _ = self.catalogue  # which renews the planner with itself
        return self._planner

    def _stage_ended(self, ended: StageEnded, raw: Mapping[str, Any]) -> None:
        if not self._is_known(ended.life.pod):
            return  # labels are free text: a series for each would have no bound
        try:
            grant = grant_of(raw)
        except PodError:
            grant = None
        self.metrics.stage_ended(ended, grant)

    def _is_known(self, pod: FunctionPod) -> bool:
        if pod.workflow is None:
            return pod.stage in self.catalogue.profiles
        workflow = self.catalogue.workflows.get((pod.namespace, pod.workflow))
        return workflow is not None and workflow.stage(pod.stage) is not None

    def function_of(self, pod: FunctionPod) -> str:
        """The function that the pod's stage runs; the stage's own name where that is not known."""
        if pod.workflow is None:
            return pod.stage
        try:
            stage = self.catalogue.workflow(pod.namespace, pod.workflow).stage(pod.stage)
        except UnknownDocumentError:
            return pod.stage
        return pod.stage if stage is None else stage.function


class NodeHandler:
    """Nodes: their GPUs and vCPUs go to the ledger."""

    def __init__(self, state: State) -> None:
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

    def __init__(self, state: State) -> None:
        self._state = state
        self._listed = False
        self.version = 0  # the newest resourceVersion heard: of the watch, so of all pods

    def replace(self, items: Iterable[Mapping[str, Any]]) -> None:
        """All pods there are. Assumed holds stay: their pod may be younger than the list."""
        state = self._state
        live = self._listed
        seen = set()
        for raw in items:
            seen.add(raw["metadata"]["uid"])
            self._see(raw, live=live)
        held = [hold.uid for hold in state.ledger.reservations() if hold.confirmed]
        for uid in {*held, *state.waiting, *state.tracker.uids()} - seen:
            self._forget(uid)
        self._listed = True

    def upsert(self, item: Mapping[str, Any]) -> None:
        """A pod came or changed."""
        self._see(item, live=True)

    def delete(self, item: Mapping[str, Any]) -> None:
        """A pod is gone: now, and not earlier, its share is free."""
        self.version = max(self.version, version_of(item))
        self._forget(item["metadata"]["uid"])

    def adopt(self, item: Mapping[str, Any]) -> None:
        """A bound pod that was read on its own, past the watch, because of its Binding."""
        known = describe(item)
        self._state.waiting.pop(known.uid, None)
        if has_ended(item):
            self._state.ledger.release(known.uid)
            return
        held = self._hold(item, known, str(item["spec"]["nodeName"]))
        self._state.ledger.adopt(replace(held, assumed_at=self._state.clock()))

    def _forget(self, uid: str) -> None:
        state = self._state
        state.waiting.pop(uid, None)
        state.ledger.release(uid)
        state.tracker.gone(uid, state.clock())

    def _see(self, raw: Mapping[str, Any], *, live: bool) -> None:
        state = self._state
        self.version = max(self.version, version_of(raw))
        known = describe(raw)
        spec = raw.get("spec") or {}
        if known.pod is not None:
            function = state.function_of(known.pod)
            state.tracker.see(raw, known.pod, function, state.clock(), live=live)
        if has_ended(raw):
            state.waiting.pop(known.uid, None)
            state.ledger.release(known.uid)
        elif node := spec.get("nodeName"):
            state.waiting.pop(known.uid, None)
            state.ledger.confirm(self._hold(raw, known, str(node)))
        elif known.pod is not None or known.problem:
            state.waiting[known.uid] = known

    def _hold(self, raw: Mapping[str, Any], known: KnownPod, node: str) -> Reservation:
        try:
            grant = grant_of(raw)
        except PodError as error:
            # Its share cannot be counted, so the GPU may hold more than the ledger knows.
            log.error(
                "grant cannot be read", pod=f"{known.namespace}/{known.name}", problem=str(error)
            )
            self._state.metrics.unreadable_grants.inc()
            grant = None
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

    def __init__(self, state: State, kind: type[Workflow] | type[FunctionProfile]) -> None:
        self._state = state
        self._kind = kind
        self._documents: dict[tuple[str, str], Document] = {}
        self.changed = True

    def known(self) -> Iterable[Document]:
        """The documents that are there and sound."""
        return self._documents.values()

    def replace(self, items: Iterable[Mapping[str, Any]]) -> None:
        """All documents there are."""
        seen = {self._set(raw) for raw in items}
        for key in [key for key in self._documents if key not in seen]:
            del self._documents[key]
        self.changed = True

    def upsert(self, item: Mapping[str, Any]) -> None:
        """A document came or changed."""
        self._set(item)

    def delete(self, item: Mapping[str, Any]) -> None:
        """A document went."""
        self._documents.pop(_key(item), None)
        self.changed = True

    def _set(self, raw: Mapping[str, Any]) -> tuple[str, str]:
        key = _key(raw)
        try:
            # The items of a list carry neither kind nor apiVersion of their own.
            document = parse_document({"kind": self._kind.__name__, **raw}, "the API server")
        except DocumentError as error:
            log.error("document cannot be used", problems=[str(p) for p in error.problems])
            self._state.metrics.unusable_documents.inc()
            self._documents.pop(key, None)
        else:
            if document is not None:
                self._documents[key] = document
        self.changed = True
        return key


def describe(raw: Mapping[str, Any]) -> KnownPod:
    """A Pod object as a `KnownPod`; what is malformed about it is kept as its ``problem``."""
    metadata = raw.get("metadata") or {}
    facts = (
        metadata.get("namespace") or "default",
        metadata.get("name") or "",
        metadata.get("uid") or "",
    )
    if not is_function_pod(raw):
        return KnownPod(*facts)
    try:
        return KnownPod(*facts, pod=function_pod(raw))
    except PodError as error:
        return KnownPod(*facts, problem=str(error))


def version_of(raw: Mapping[str, Any]) -> int:
    """An object's resourceVersion, which orders the changes of its kind; 0 where it has none."""
    version = (raw.get("metadata") or {}).get("resourceVersion")
    return int(version) if isinstance(version, str) and version.isdecimal() else 0


def cpu_request(pod: FunctionPod) -> CpuRequest:
    """What the pod requests whatever its configuration."""
    return CpuRequest(pod.cpu_ceiling_milli or 0, pod.cpu_beside_milli)


def _key(raw: Mapping[str, Any]) -> tuple[str, str]:
    metadata = raw["metadata"]
    return metadata.get("namespace") or "", metadata["name"]
