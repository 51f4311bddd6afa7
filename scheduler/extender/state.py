"""The service's picture of the cluster: ledger, tracker, documents and waiting pods."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from scheduler.extender.handlers import DocumentHandler, NodeHandler, PodHandler
from scheduler.extender.pods import PendingPod
from scheduler.ledger.ledger import Ledger
from scheduler.metrics import Metrics
from scheduler.model.catalogue import Catalogue, UnknownDocumentError
from scheduler.model.documents import FunctionProfile, Stage, Workflow
from scheduler.model.pod import FunctionPod, PodError, grant_of
from scheduler.search.planner import Planner
from scheduler.settings import Settings
from scheduler.slo.pod_timeline import StageEnded
from scheduler.slo.tracker import Tracker


class State:
    """Ledger, tracker, documents and waiting pods."""

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
        # Of what is waited for: a clock that is set must neither end an assumption nor keep it.
        self.monotonic = monotonic
        self.ledger = Ledger(settings.limits)
        self.tracker = Tracker(
            workflow_of=lambda namespace, name: self.catalogue.workflows.get((namespace, name)),
            on_stage=self._stage_ended,
            on_request=metrics.request_ended,
            on_empty=metrics.namespace_emptied,
            abandoned_after_s=settings.abandoned_after_s,
            keep_alive_s=settings.keep_alive_s,
        )
        self.node_problems: dict[str, str] = {}
        self.waiting: dict[str, PendingPod] = {}
        self.nodes = NodeHandler(self)
        self.pods = PodHandler(self)
        self.workflows = DocumentHandler(Workflow)
        self.profiles = DocumentHandler(FunctionProfile)
        self._catalogue = Catalogue()
        self._planner = Planner(self._catalogue, settings.rules)

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
        if not self._is_known(ended.timeline.pod):
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

    def stages_before(self, pod: FunctionPod) -> tuple[Stage, ...]:
        """The stages whose output the pod's stage reads; none where that is not known."""
        if pod.workflow is None:
            return ()
        workflow = self.catalogue.workflows.get((pod.namespace, pod.workflow))
        stage = workflow.stage(pod.stage) if workflow else None
        if workflow is None or stage is None:
            return ()
        return tuple(each for each in workflow.spec.stages if each.name in stage.after)
