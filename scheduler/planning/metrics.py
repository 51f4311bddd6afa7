"""Metrics of the extender: declaration and documentation of its series, and their exposition.

Base units, no label of high cardinality. Series of GPUs are rendered from the fleet at the scrape,
so that they end with the node (`scheduler.planning.gpu_series`).
"""

import asyncio
from collections.abc import AsyncIterator, Iterable

from prometheus_client import Counter, Gauge, Histogram, Info, generate_latest

from scheduler import __version__
from scheduler.model.grant import Grant
from scheduler.model.plan import Plan, Prices
from scheduler.model.pod import FunctionPod
from scheduler.placement.fleet import Fleet
from scheduler.placement.members import GpuSlice
from scheduler.placement.options import Limits
from scheduler.planning.gpu_series import GpuSeries, slice_exposition
from scheduler.slo.pod_timeline import StageEnded
from scheduler.workflow_metrics import PHASES, WorkflowMetrics

_CALL_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_PLAN_SECONDS = (10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 100e-3, 1)
_OUTCOMES = ("expanded", "cut_by_time", "cut_by_cost")
_VERBS = ("filter", "prioritize", "bind", "preempt")
_BINDS = ("bound", "already_bound", "repeated", "refused", "unknown")


class Metrics(WorkflowMetrics):
    """All series of one extender."""

    def __init__(self, prices: Prices | None = None) -> None:
        super().__init__(prices)
        registry = self.registry
        self._gpus = GpuSeries()
        # Namespaces and names of functions without a workflow that have series.
        self._lone: set[tuple[str, str]] = set()
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
        # A look-up of a series takes longer than to add to it.
        self._states_of = {outcome: self.search_states.labels(outcome) for outcome in _OUTCOMES}
        self.call_duration = Histogram(
            "esg_extender_request_duration_seconds",
            "Duration of one call by kube-scheduler, from the read body to the response.",
            ["verb"],
            buckets=_CALL_SECONDS,
            registry=registry,
        )
        self._calls = {verb: self.call_duration.labels(verb) for verb in _VERBS}
        self.binds = Counter(
            "esg_bind",
            "Bind calls by result.",
            ["result"],
            registry=registry,
        )
        self._bind_results = {result: self.binds.labels(result) for result in _BINDS}
        self.overcommitted = Gauge(
            "esg_gpu_overcommitted",
            "GPUs whose grants exceed their capacity; should be 0.",
            registry=registry,
        )
        self.name_conflicts = Gauge(
            "esg_gpu_names_conflicting",
            "GPUs whose UUID is known under several node names, on which nothing is placed; should "
            "be 0.",
            registry=registry,
        )
        self.unreadable_grants = Gauge(
            "esg_unreadable_grants",
            "Bound pods with an unreadable grant, whose share is not counted; should be 0.",
            registry=registry,
        )
        self.rejected_pods = Counter(
            "esg_rejected_pods",
            "Bound function pods that the kubelet rejected, mostly for vCPUs that another "
            "scheduler gave away; should be 0.",
            registry=registry,
        )
        self.claims_unwritten = Gauge(
            "esg_resource_claims_unwritten",
            "Pods that wait because their resource claim is not written; the log says why.",
            registry=registry,
        )
        Info("esg", "Version of the service.", registry=registry).info({"version": __version__})

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
            if (namespace, function) not in self.workflows:
                self.cost.remove(namespace, function)
            if (namespace, function, function) not in self.stages:
                self.end_stage(namespace, function, function)

    def call_ended(self, verb: str, seconds: float) -> None:
        """Count a call of kube-scheduler."""
        self._calls[verb].observe(seconds)

    def bind_ended(self, result: str) -> None:
        """Count a bind call."""
        self._bind_results[result].inc()

    def planned(self, plan: Plan, seconds: float) -> None:
        """Count a search."""
        self.plan_duration.observe(seconds)
        if not plan.exact:
            self.plans_inexact.inc()
        for outcome, states in self._states_of.items():
            if count := getattr(plan.effort, outcome):
                states.inc(count)

    def batch_granted(self, pod: FunctionPod, batch: int) -> None:
        """Count the batch of a bound pod, unless its stage was deleted in the meantime."""
        if pod.workflow and (pod.namespace, pod.workflow, pod.stage) not in self.stages:
            return
        self.batch_sizes.labels(pod.namespace, self._workflow(pod), pod.stage).observe(batch)

    def stage_ended(self, ended: StageEnded, grant: Grant | None = None) -> None:
        """Count the phases and the cost of a stage's pod that ended."""
        pod = ended.timeline.pod
        workflow = self._workflow(pod)
        durations_s = (ended.queue_s, ended.start_s, ended.execute_s)
        for phase, seconds in zip(PHASES, durations_s, strict=True):
            if seconds is not None:
                self.stage_durations.labels(pod.namespace, workflow, pod.stage, phase).observe(
                    seconds
                )
        if grant is not None and ended.execute_s is not None:
            dollars = self.prices.request_cost_dollars(
                ended.execute_s * 1000, grant.cpu, grant.gpu_percent, 1, _gpu_model(grant)
            )
            self.cost.labels(pod.namespace, workflow).inc(dollars)

    def _workflow(self, pod: FunctionPod) -> str:
        """Return the label ``workflow``; the function's name if there is no workflow."""
        if pod.workflow is not None:
            return pod.workflow
        self._lone.add((pod.namespace, pod.stage))
        return pod.stage

    async def exposition(
        self, fleet: Fleet, limits: Limits, slices: Iterable[GpuSlice]
    ) -> AsyncIterator[bytes]:
        """Render the text of ``/metrics`` in slices."""
        # A hundred workflows are some ten thousand series: a thread takes the interpreter's lock
        # for five milliseconds at a time.
        yield await asyncio.to_thread(generate_latest, self.registry)
        async for part in self._gpus.exposition(fleet, limits):
            yield part
        yield slice_exposition(slices)


def _gpu_model(grant: Grant) -> str:
    """Read the GPU model of the plan; empty if the annotation has an invalid one."""
    model = grant.plan.get("gpu_model")
    return model if isinstance(model, str) else ""
