"""Cache of the cluster: ledger, tracker, documents and pending pods; and the planner over it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from scheduler.ledger.ledger import Ledger
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.grant import grant_of
from scheduler.model.pod import FunctionPod, is_server
from scheduler.model.pod_fields import PodError
from scheduler.model.progress import InstanceProgress
from scheduler.planning.document_store import Change, DocumentStore
from scheduler.planning.handlers import NodeHandler, PodHandler
from scheduler.planning.metrics import Metrics
from scheduler.planning.warm_rows import WarmRows, WarmRowsCache
from scheduler.search.planner import Planner
from scheduler.settings import Settings
from scheduler.slo.pod_timeline import StageEnded
from scheduler.slo.tracker import Tracker


class RunHistory(Protocol):
    """Nodes on which functions and stages ran lately."""

    def stage_nodes(self, pod: FunctionPod) -> Mapping[str, str]:
        """Nodes of the stages of the pod's instance, by stage."""

    def progress(self, pod: FunctionPod, now_s: float) -> InstanceProgress:
        """Stages of the pod's instance that have ended or run."""

    def later_waits_ms(self, pod: FunctionPod) -> float:
        """Observed waits at all stages after the pod's, ms."""

    def warm_nodes(self, namespace: str, function: str) -> frozenset[str]:
        """Nodes on which the function is warm."""


class State:
    """Ledger, tracker, documents with the planner over them, and pending pods.

    ``clock`` is seconds since the epoch. ``monotonic`` measures waiting times: setting the system
    clock must neither end an assumed reservation nor extend it.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        self.clock = clock
        self.monotonic = monotonic
        self.ledger = Ledger(settings.limits)
        self.documents = DocumentStore(
            stages_max=settings.stages_max,
            on_workflow=self._workflow_changed,
            on_profile=self._profile_changed,
        )
        self.planner = Planner(self.documents.catalogue, settings.rules)
        self.documents.on_discard.append(self.planner.discard)
        self.tracker = Tracker(
            workflow_of=self.documents.workflow,
            on_stage=self._stage_ended,
            on_request=metrics.request_ended,
            on_empty=metrics.namespace_emptied,
            abandoned_after_s=settings.abandoned_after_s,
            keep_alive_s=settings.keep_alive_s,
        )
        self.history: RunHistory = self.tracker
        self._warm_rows = WarmRowsCache(self.ledger.fleet)
        self.nodes = NodeHandler(self.ledger)
        self.pods = PodHandler(
            self.ledger,
            self.tracker,
            function_of=self.documents.function_of,
            on_rejected=metrics.rejected_pods.inc,
            clock=clock,
            monotonic=monotonic,
            grace_max_s=settings.deletion_grace_max_s,
        )

    def warm_rows(self, pod: FunctionPod) -> WarmRows:
        """Return the rows of the nodes on which the pod's function is warm."""
        function = self.documents.function_of(pod)
        names = self.history.warm_nodes(pod.namespace, function)
        return self._warm_rows.get((pod.namespace, function), names)

    def _workflow_changed(self, change: Change[Workflow]) -> None:
        self.metrics.workflow_changed(*change)
        if change.after is None and change.before is not None:
            self.tracker.waits.remove(*change.before.key)

    def _profile_changed(self, change: Change[FunctionProfile]) -> None:
        if change.after is None and change.before is not None:
            self.metrics.profile_removed(change.before.metadata.name)

    def _stage_ended(self, ended: StageEnded, raw: Mapping[str, Any]) -> None:
        if not self.documents.knows(ended.timeline.pod):
            return  # labels are free text: a series for each would be unbounded
        if is_server(raw):  # the gateway counts runs and cost of its batches
            ended = replace(ended, execute_s=None)
        try:
            grant = grant_of(raw)
        except PodError:
            grant = None
        self.metrics.stage_ended(ended, grant)
