"""Series that extender and gateway have in common: workflows, stages and caches.

Each process counts its own requests: the extender those of pods with the label ``request``, the
gateway those that it answers. No request is counted by both.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from scheduler.histograms import BucketCounts, LabelledHistogram, histogram_family
from scheduler.model.documents import Workflow
from scheduler.model.plan import Prices
from scheduler.slo.tracker import RequestEnded, Result

# By default every counter has a second series, its creation time, which is not used.
disable_created_metrics()  # type: ignore[no-untyped-call]
PHASES = ("queue", "start", "execute")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_BATCHES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(eq=False)  # the registry keeps collectors by identity
class WorkflowDurations(Collector):
    """Histogram per workflow with a bucket edge at that workflow's SLO.

    prometheus_client's Histogram has the same buckets for all labels; here the buckets give the
    ratio of requests within the SLO. A workflow's series begin with its first request. When an SLO
    changes, they begin again, which Prometheus treats as a counter reset.
    """

    _edges_s: dict[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    _series: dict[tuple[str, ...], BucketCounts] = field(default_factory=dict)

    def set_slo(self, namespace: str, workflow: str, slo_s: float) -> None:
        """Set the bucket edge of a workflow."""
        key, edges_s = (namespace, workflow), tuple(sorted({*_SECONDS, slo_s}))
        if self._edges_s.get(key) != edges_s:
            self._edges_s[key] = edges_s
            self._series.pop(key, None)

    def remove(self, namespace: str, workflow: str) -> None:
        """End the series of a workflow."""
        del self._edges_s[namespace, workflow]
        self._series.pop((namespace, workflow), None)

    def observe(self, namespace: str, workflow: str, seconds: float) -> None:
        """Count a finished request."""
        key = namespace, workflow
        durations = self._series.get(key)
        if durations is None:
            edges_s = self._edges_s.get(key)
            if edges_s is None:
                return
            durations = self._series[key] = BucketCounts(edges_s)
        durations.observe(seconds)

    def set_exemplar(self, namespace: str, workflow: str, exemplar: Exemplar) -> None:
        """Set the exemplar of a bucket to a request that was observed."""
        durations = self._series.get((namespace, workflow))
        if durations is not None:
            durations.set_exemplar(exemplar)

    def collect(self) -> Iterable[Metric]:
        """Render the family for the registry."""
        yield histogram_family(
            "esg_workflow_duration_seconds",
            "Time from a request's arrival to the end of its last stage; one bucket edge is the "
            "SLO.",
            ["namespace", "workflow"],
            self._series,
        )


class WorkflowMetrics:
    """Series of workflows, stages and caches, in a registry of their own."""

    def __init__(self, prices: Prices | None = None) -> None:
        self.registry = registry = CollectorRegistry()
        self.prices = prices or Prices()
        self._results: dict[tuple[str, str], dict[Result, Counter]] = {}  # by workflow
        self.workflows: set[tuple[str, str]] = set()
        self.stages: set[tuple[str, str, str]] = set()  # namespace, workflow, stage
        self.workflow_durations = WorkflowDurations()
        registry.register(self.workflow_durations)
        self.requests = Counter(
            "esg_workflow_requests",
            "Workflow requests by result: within the SLO (hit), late (miss), not finished "
            "(dropped).",
            ["namespace", "workflow", "result"],
            registry=registry,
        )
        self.objectives = Gauge(
            "esg_workflow_slo_objective_ratio",
            "Ratio of a workflow's requests that must end within its SLO, from its document.",
            ["namespace", "workflow"],
            registry=registry,
        )
        self.slos = Gauge(
            "esg_workflow_slo_seconds",
            "Latency SLO of a workflow, from its document.",
            ["namespace", "workflow"],
            registry=registry,
        )
        self.stage_durations = LabelledHistogram(
            "esg_stage_duration_seconds",
            "Time of a stage by phase: waiting for a node or a batch (queue), for its pod's start "
            "(start), running (execute).",
            ["namespace", "workflow", "stage", "phase"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.batch_sizes = LabelledHistogram(
            "esg_batch_size",
            "Batch size granted to a pod at its Binding, or rows of a batch that the gateway ran.",
            ["namespace", "workflow", "stage"],
            buckets=_BATCHES,
            registry=registry,
        )
        self.cost = Counter(
            "esg_cost_dollars",
            "Cost of vCPUs and GPU shares, dollars: of the gateway's batches, or of finished pods "
            "while they ran, except servers (of a ReplicaSet, StatefulSet or FunctionServer).",
            ["namespace", "workflow"],
            registry=registry,
        )
        self.ready = Gauge(
            "esg_ready",
            "1 if the process can serve now, as /readyz says.",
            ["component"],
            registry=registry,
        )
        self.staleness = Gauge(
            "esg_reflector_staleness_seconds",
            "Time since the last message of the watch on a resource.",
            ["resource"],
            registry=registry,
        )
        self.unusable_documents = Gauge(
            "esg_unusable_documents",
            "Documents that are invalid or not used, with the reason in the log; should be 0.",
            registry=registry,
        )

    def workflow_changed(self, before: Workflow | None, after: Workflow | None) -> None:
        """Update the series of a Workflow that was added, changed or deleted.

        Counters of its requests start at zero when it is added: Prometheus' ``rate`` does not see
        the first event of a series that starts with that event, and the first request may be late.
        All other series start with the first request. They end when the workflow is deleted, and so
        do the series of a stage.
        """
        stages, stages_before = _stage_keys(after), _stage_keys(before)
        self.stages |= stages
        for removed in stages_before - stages:
            self.stages.remove(removed)
            self.end_stage(*removed)
        if after is not None:
            self._start_workflow(after)
        elif before is not None:
            self._end_workflow(*before.key)

    def _start_workflow(self, workflow: Workflow) -> None:
        key, slo = workflow.key, workflow.spec.slo
        self.workflows.add(key)
        self.workflow_durations.set_slo(*key, slo.latency_ms / 1000)
        self.slos.labels(*key).set(slo.latency_ms / 1000)
        self.objectives.labels(*key).set(slo.objective)
        self._results[key] = {
            result: self.requests.labels(*key, result) for result in get_args(Result)
        }

    def _end_workflow(self, namespace: str, name: str) -> None:
        self.workflows.remove((namespace, name))
        self.workflow_durations.remove(namespace, name)
        for gauge in (self.slos, self.objectives):
            gauge.remove(namespace, name)
        for result in self._results.pop((namespace, name)):
            self.requests.remove(namespace, name, result)
        self.cost.remove(namespace, name)

    def end_stage(self, namespace: str, workflow: str, stage: str) -> None:
        """End the series of a stage."""
        self.batch_sizes.remove(namespace, workflow, stage)
        for phase in PHASES:
            self.stage_durations.remove(namespace, workflow, stage, phase)

    def request_ended(self, ended: RequestEnded) -> None:
        """Count a workflow request that ended, unless the workflow is unknown.

        The name is free text from a pod's label; a series for each would be unbounded.
        """
        self.count_request((ended.namespace, ended.workflow), ended.result, ended.duration_s)

    def count_request(
        self, workflow: tuple[str, str], result: Result, duration_s: float | None
    ) -> None:
        """Count a request of a workflow by namespace and name; see `request_ended`."""
        results = self._results.get(workflow)
        if results is None:
            return
        results[result].inc()
        if duration_s is not None:
            self.workflow_durations.observe(*workflow, duration_s)


def _stage_keys(workflow: Workflow | None) -> set[tuple[str, str, str]]:
    if workflow is None:
        return set()
    return {(*workflow.key, stage.name) for stage in workflow.spec.stages}
