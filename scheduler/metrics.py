"""Metrics of the service: declaration and documentation of every series of ``/metrics``.

Base units, no label of high cardinality. Series of GPUs are rendered from the fleet at the scrape,
so that they end with the node (`scheduler.gpu_series`).
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler import __version__
from scheduler.gpu_series import GpuSeries
from scheduler.model.documents import Workflow
from scheduler.model.plan import Plan, Prices
from scheduler.model.pod import FunctionPod, Grant
from scheduler.placement.fleet import Fleet
from scheduler.placement.options import Limits
from scheduler.slo.pod_timeline import StageEnded
from scheduler.slo.tracker import RequestEnded, Result

# By default every counter has a second series, its creation time, which is not used.
disable_created_metrics()  # type: ignore[no-untyped-call]
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_CALL_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_PLAN_SECONDS = (10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 100e-3, 1)
_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_OUTCOMES = ("expanded", "cut_by_time", "cut_by_cost")
_PHASES = ("queue", "start", "execute")
_BINDS = ("bound", "already_bound", "repeated", "refused", "unknown")


@dataclass(slots=True)
class _Durations:
    edges_s: tuple[float, ...]
    counts: list[int]
    total_s: float = 0.0


@dataclass(eq=False)  # the registry keeps collectors by identity
class WorkflowDurations(Collector):
    """Histogram per workflow with a bucket edge at that workflow's SLO.

    prometheus_client's Histogram has the same buckets for all labels; here the buckets give the
    ratio of requests within the SLO. When an SLO changes, the workflow's series restarts at zero,
    which Prometheus treats as a counter reset.
    """

    _series: dict[tuple[str, str], _Durations] = field(default_factory=dict)

    def set_slo(self, namespace: str, workflow: str, slo_s: float) -> None:
        """Set the bucket edge of a workflow."""
        edges_s = tuple(sorted({*_SECONDS, slo_s}))
        known = self._series.get((namespace, workflow))
        if known is None or known.edges_s != edges_s:
            self._series[namespace, workflow] = _Durations(edges_s, [0] * (len(edges_s) + 1))

    def remove(self, namespace: str, workflow: str) -> None:
        """End the series of a workflow."""
        del self._series[namespace, workflow]

    def observe(self, namespace: str, workflow: str, seconds: float) -> None:
        """Count a finished request."""
        durations = self._series.get((namespace, workflow))
        if durations is not None:
            durations.counts[bisect_left(durations.edges_s, seconds)] += 1
            durations.total_s += seconds

    def collect(self) -> Iterable[Metric]:
        """Render the family for the registry."""
        family = HistogramMetricFamily(
            "esg_workflow_duration_seconds",
            "Time from a request's arrival to the end of its last stage; one bucket edge is the "
            "SLO.",
            labels=["namespace", "workflow"],
        )
        # A copy: the scrape reads it in a thread.
        for key, durations in list(self._series.items()):
            reached = 0
            buckets: list[tuple[str, float]] = []
            for edge, count in zip(
                (*durations.edges_s, float("inf")), durations.counts, strict=True
            ):
                reached += count
                buckets.append(("+Inf" if edge == float("inf") else repr(float(edge)), reached))
            family.add_metric(list(key), buckets, sum_value=durations.total_s)
        yield family


class Metrics:
    """All series of one service, in their own registry."""

    def __init__(self, prices: Prices | None = None) -> None:
        self.registry = registry = CollectorRegistry()
        self._prices = prices or Prices()
        self._gpus = GpuSeries()
        self._workflows: set[tuple[str, str]] = set()
        self._stages: set[tuple[str, str, str]] = set()  # namespace, workflow, stage
        self._lone: set[tuple[str, str]] = (
            set()
        )  # namespace, function: functions without a workflow that have series
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
        self.stage_durations = Histogram(
            "esg_stage_duration_seconds",
            "Time of a stage's pod by phase: unscheduled (queue), starting (start), running "
            "(execute).",
            ["namespace", "workflow", "stage", "phase"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.batch_sizes = Histogram(
            "esg_batch_size",
            "Batch size granted to a pod at its Binding.",
            ["namespace", "workflow", "stage"],
            buckets=_BATCHES,
            registry=registry,
        )
        self.cost = Counter(
            "esg_cost_dollars",
            "Cost of the vCPUs and GPU shares of finished pods while they ran, dollars.",
            ["namespace", "workflow"],
            registry=registry,
        )
        self.plan_duration = Histogram(
            "esg_plan_duration_seconds",
            "Duration of one search.",
            buckets=_PLAN_SECONDS,
            registry=registry,
        )
        self.plans_inexact = Counter(
            "esg_plans_inexact",
            "Plans that may not be optimal: the search ended early, or frontiers were thinned.",
            registry=registry,
        )
        self.search_states = Counter(
            "esg_search_states",
            "States of the search: expanded, or pruned by time or by cost.",
            ["outcome"],
            registry=registry,
        )
        self.call_duration = Histogram(
            "esg_extender_request_duration_seconds",
            "Duration of one call by kube-scheduler, from the read body to the response.",
            ["verb"],
            buckets=_CALL_SECONDS,
            registry=registry,
        )
        for outcome in _OUTCOMES:
            self.search_states.labels(outcome)
        self.binds = Counter(
            "esg_bind",
            "Bind calls by result.",
            ["result"],
            registry=registry,
        )
        for result in _BINDS:
            self.binds.labels(result)
        self.overcommitted = Gauge(
            "esg_gpu_overcommitted",
            "GPUs whose grants exceed their capacity; should be 0.",
            registry=registry,
        )
        self.staleness = Gauge(
            "esg_reflector_staleness_seconds",
            "Time since the last message of the watch on a resource.",
            ["resource"],
            registry=registry,
        )
        self.unreadable_grants = Gauge(
            "esg_unreadable_grants",
            "Bound pods with an unreadable grant, whose share is not counted; should be 0.",
            registry=registry,
        )
        self.unusable_documents = Gauge(
            "esg_unusable_documents",
            "Invalid Workflows and FunctionProfiles, with the reason in the log; should be 0.",
            registry=registry,
        )
        Info("esg", "Version of the service.", registry=registry).info({"version": __version__})

    def workflow_changed(self, before: Workflow | None, after: Workflow | None) -> None:
        """Update the series of a Workflow that was added, changed or deleted.

        Counters of a workflow start at zero when it is added: Prometheus' ``rate`` does not see the
        first event of a series that starts with that event. They end when it is deleted, and so do
        the series of a stage.
        """
        stages, stages_before = _stage_keys(after), _stage_keys(before)
        self._stages |= stages
        for removed in stages_before - stages:
            self._stages.remove(removed)
            self._end_stage(*removed)
        if after is not None:
            self._start_workflow(after)
        elif before is not None:
            self._end_workflow(*before.key)

    def _start_workflow(self, workflow: Workflow) -> None:
        key, slo = workflow.key, workflow.spec.slo
        self._workflows.add(key)
        self.workflow_durations.set_slo(*key, slo.latency_ms / 1000)
        self.slos.labels(*key).set(slo.latency_ms / 1000)
        self.objectives.labels(*key).set(slo.objective)
        for result in get_args(Result):
            self.requests.labels(*key, result)
        self.cost.labels(*key)

    def _end_workflow(self, namespace: str, name: str) -> None:
        self._workflows.remove((namespace, name))
        self.workflow_durations.remove(namespace, name)
        for gauge in (self.slos, self.objectives):
            gauge.remove(namespace, name)
        for result in get_args(Result):
            self.requests.remove(namespace, name, result)
        self.cost.remove(namespace, name)

    def profile_removed(self, function: str) -> None:
        """End the series of a function without a workflow."""
        self._end_lone({key for key in self._lone if key[1] == function})

    def namespace_emptied(self, namespace: str) -> None:
        """End the series of functions without a workflow in a namespace without function pods.

        Series of workflows end with their documents.
        """
        self._end_lone({key for key in self._lone if key[0] == namespace})

    def _end_lone(self, removed: Iterable[tuple[str, str]]) -> None:
        for namespace, function in removed:
            self._lone.remove((namespace, function))
            # A workflow with the function's name has the same series.
            if (namespace, function) not in self._workflows:
                self.cost.remove(namespace, function)
            if (namespace, function, function) not in self._stages:
                self._end_stage(namespace, function, function)

    def _end_stage(self, namespace: str, workflow: str, stage: str) -> None:
        self.batch_sizes.remove(namespace, workflow, stage)
        for phase in _PHASES:
            self.stage_durations.remove(namespace, workflow, stage, phase)

    def planned(self, plan: Plan, seconds: float) -> None:
        """Count a search."""
        self.plan_duration.observe(seconds)
        if not plan.exact:
            self.plans_inexact.inc()
        for outcome in _OUTCOMES:
            self.search_states.labels(outcome).inc(getattr(plan.effort, outcome))

    def request_ended(self, ended: RequestEnded) -> None:
        """Count a workflow request that ended, unless the workflow is unknown.

        The name is free text from a pod's label; a series for each would be unbounded.
        """
        if (ended.namespace, ended.workflow) not in self._workflows:
            return
        self.requests.labels(ended.namespace, ended.workflow, ended.result).inc()
        if ended.duration_s is not None:
            self.workflow_durations.observe(ended.namespace, ended.workflow, ended.duration_s)

    def batch_granted(self, pod: FunctionPod, batch: int) -> None:
        """Count the batch of a bound pod, unless its stage was deleted in the meantime."""
        if pod.workflow and (pod.namespace, pod.workflow, pod.stage) not in self._stages:
            return
        self.batch_sizes.labels(pod.namespace, self._workflow(pod), pod.stage).observe(batch)

    def stage_ended(self, ended: StageEnded, grant: Grant | None = None) -> None:
        """Count the phases and the cost of a stage's pod that ended."""
        pod = ended.timeline.pod
        workflow = self._workflow(pod)
        durations_s = (ended.queue_s, ended.start_s, ended.execute_s)
        for phase, seconds in zip(_PHASES, durations_s, strict=True):
            if seconds is not None:
                self.stage_durations.labels(pod.namespace, workflow, pod.stage, phase).observe(
                    seconds
                )
        if grant is not None and ended.execute_s is not None:
            dollars = self._prices.request_cost_dollars(
                ended.execute_s * 1000, grant.cpu, grant.gpu_percent, 1, _gpu_model(grant)
            )
            self.cost.labels(pod.namespace, workflow).inc(dollars)

    def _workflow(self, pod: FunctionPod) -> str:
        """Return the label ``workflow``; the function's name if there is no workflow."""
        if pod.workflow is not None:
            return pod.workflow
        self._lone.add((pod.namespace, pod.stage))
        return pod.stage

    async def exposition(self, fleet: Fleet, limits: Limits) -> AsyncIterator[bytes]:
        """Render the text of ``/metrics`` in slices."""
        # A hundred workflows are some ten thousand series: a thread takes the interpreter's lock
        # for five milliseconds at a time.
        yield await asyncio.to_thread(generate_latest, self.registry)
        async for part in self._gpus.exposition(fleet, limits):
            yield part


def _stage_keys(workflow: Workflow | None) -> set[tuple[str, str, str]]:
    if workflow is None:
        return set()
    return {(*workflow.key, stage.name) for stage in workflow.spec.stages}


def _gpu_model(grant: Grant) -> str:
    """Read the GPU model of the plan; empty if the annotation has an invalid one."""
    model = grant.plan.get("gpu_model")
    return model if isinstance(model, str) else ""
