"""Metrics of the gateway: what its calls and batches report, and gauges read at the scrape."""

import time
from collections import Counter as Count
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from prometheus_client import Counter, Info
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from scheduler import __version__
from scheduler.dispatch.pods import FunctionKey
from scheduler.dispatch.requests import WorkflowKey
from scheduler.dispatch.slices import Slice
from scheduler.gateway.discovery.server_pods import POD_STATES, ServerPod
from scheduler.gateway.pod_demand import PodDemand
from scheduler.gateway.serving.recorder import BatchEnded, CallResult
from scheduler.histograms import BucketCounts, LabelledHistogram
from scheduler.model.documents import Workflow
from scheduler.model.plan import MS_PER_HOUR, Prices
from scheduler.workflow_metrics import WorkflowMetrics

_REFUSALS = (400, 401, 403, 404, 413, 429, 503)  # counted from 0 on
_UNSERVED = (429, 503)  # pods are missing
_RATIOS = (0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2, 3)


class PoolGauge(NamedTuple):
    """State of a namespace's pool.

    Attributes:
        slice_percent: percent of GPUs that its slices hold, open or closed.
        running_percent: percent of the batches that run in them.
        process_percent: percent of all pods in them, idle or not.
        dollars_per_hour: price of the slices.
    """

    slice_percent: int
    running_percent: int
    process_percent: int
    dollars_per_hour: float


def pool_gauges(
    slices: Iterable[Slice], pods: Iterable[ServerPod], prices: Prices
) -> dict[str, PoolGauge]:
    """Return the state of the pool of each namespace with slices."""
    processes: Count[str] = Count()
    for pod in pods:
        processes[pod.function[0]] += pod.gpu_percent if pod.pooled else 0
    by_namespace: defaultdict[str, list[Slice]] = defaultdict(list)
    for gpu_slice in slices:
        by_namespace[gpu_slice.namespace].append(gpu_slice)
    return {
        namespace: PoolGauge(
            slice_percent=sum(gpu_slice.percent for gpu_slice in of_pool),
            running_percent=sum(gpu_slice.used_percent for gpu_slice in of_pool),
            process_percent=processes[namespace],
            dollars_per_hour=sum(
                prices.request_cost_dollars(MS_PER_HOUR, s.cpus, s.percent, 1, s.gpu_model)
                for s in of_pool
            ),
        )
        for namespace, of_pool in by_namespace.items()
    }


class Gauges(NamedTuple):
    """State of the gateway at a scrape.

    Attributes:
        queued_rows: number of rows that wait, by namespace, workflow and stage.
        pods: number of pods in each state, by function.
        pods_wanted: number of pods that a function needs, by function.
        dollars_per_hour: price of a function's pods, idle or not, without those in slices.
        body_bytes: memory of the bodies that the fronts hold.
        pools: state of the pool of each namespace with slices.
        p95_ratios: largest p95 / latency in the profile of a stage that has run.
        limits_dollars: least cost of a request in time, by workflow.
    """

    queued_rows: Mapping[tuple[str, str, str], int]
    pods: Mapping[FunctionKey, Count[str]]
    pods_wanted: Mapping[FunctionKey, int]
    dollars_per_hour: Mapping[FunctionKey, float]
    body_bytes: int
    pools: Mapping[str, PoolGauge]
    p95_ratios: Mapping[tuple[str, str, str], float] = {}
    limits_dollars: Mapping[WorkflowKey, float] = {}


class _StageSeries(NamedTuple):
    """Series of one stage: looking one up by its labels takes longer than counting."""

    function: FunctionKey
    batch_sizes: BucketCounts
    queue: BucketCounts
    execute: BucketCounts
    run_ratios: BucketCounts
    cost: Counter


class GatewayMetrics(WorkflowMetrics):
    """All series of one gateway, and the demand for pods that they show.

    Attributes:
        gauges: state that the next scrape shows.

    Args:
        group: group of gateways that it is one of; empty: none.
    """

    def __init__(self, prices: Prices, demand: PodDemand, group: str = "") -> None:
        super().__init__(prices)
        self.demand = demand
        self.gauges = Gauges({}, {}, {}, {}, 0, {})
        self._functions: dict[tuple[str, str, str], FunctionKey] = {}  # by stage
        self._series: dict[tuple[str, str, str], _StageSeries] = {}  # of stages that have run
        self.refused = Counter(
            "esg_gateway_requests_refused",
            "Requests refused as invalid, or before they entered a queue, by HTTP status.",
            ["status"],
            registry=self.registry,
        )
        for status in _REFUSALS:
            self.refused.labels(status)
        self.cold_starts = Counter(
            "esg_gateway_cold_starts",
            "Requests that were answered and waited for the start of a pod.",
            ["namespace", "workflow"],
            registry=self.registry,
        )
        self.run_ratios = LabelledHistogram(
            "esg_run_over_profile_ratio",
            "Run time of a batch, as a multiple of its profile's.",
            ["namespace", "workflow", "stage"],
            buckets=_RATIOS,
            registry=self.registry,
        )
        self.registry.register(_GaugeCollector(self))
        Info("esg_gateway", "Version of the gateway, and its group.", registry=self.registry).info(
            {"version": __version__, "group": group}
        )

    def workflow_changed(self, before: Workflow | None, after: Workflow | None) -> None:
        """Update the series and the functions of a Workflow that has changed."""
        for key in _functions_of(before):
            del self._functions[key]
            self._series.pop(key, None)
        self._functions |= _functions_of(after)
        super().workflow_changed(before, after)

    # -- reports of the runtime ----------------------------------------------------------------

    def call_ended(
        self,
        workflow: WorkflowKey,
        result: CallResult,
        duration_s: float | None,
        *,
        cold_start: bool = False,
    ) -> None:
        """Count a call of a whole workflow: in time, late, or without an answer (None)."""
        self.count_request(workflow, result, duration_s)
        if cold_start and workflow in self.workflows:
            self.cold_starts.labels(*workflow).inc()
        if result == "dropped":
            self._unserved(workflow)

    def late_call_traced(
        self, workflow: WorkflowKey, duration_s: float, *, request_id: str, trace_id: str
    ) -> None:
        """Make a late call the exemplar of its bucket."""
        labels = {"request_id": request_id}
        if trace_id:
            labels["trace_id"] = trace_id
        exemplar = Exemplar(labels, duration_s, round(time.time(), 3))
        self.workflow_durations.set_exemplar(*workflow, exemplar)

    def call_refused(self, workflow: WorkflowKey, status: int) -> None:
        """Count a call that was refused: any workflow may be named, and the call may be invalid."""
        self.refused.labels(status).inc()
        if status in _UNSERVED:
            self._unserved(workflow)

    def front_refused(self, status: int) -> None:
        """Count a call that came to no backend: for its token or body, or for want of an owner."""
        self.refused.labels(status).inc()

    def batch_ended(self, batch: BatchEnded) -> None:
        """Count a batch."""
        series = self._stage_series((*batch.workflow, batch.stage))
        if series is None:
            return  # the workflow has changed since the batch began
        series.batch_sizes.observe(batch.rows)
        for queue_s in batch.queue_s:
            series.queue.observe(queue_s)
        series.execute.observe(batch.execute_s, len(batch.queue_s))
        if batch.profiled_s > 0:
            series.run_ratios.observe(batch.execute_s / batch.profiled_s)
        share = batch.share
        dollars = self.prices.request_cost_dollars(
            batch.execute_s * 1000, share.cpu, share.gpu_percent, 1, share.gpu_model
        )
        series.cost.inc(dollars)
        self.demand.ran(series.function, batch.execute_s)

    def _stage_series(self, stage: tuple[str, str, str]) -> _StageSeries | None:
        series = self._series.get(stage)
        function = self._functions.get(stage)
        if series is None and function is not None:
            series = self._series[stage] = _StageSeries(
                function,
                self.batch_sizes.labels(*stage),
                self.stage_durations.labels(*stage, "queue"),
                self.stage_durations.labels(*stage, "execute"),
                self.run_ratios.labels(*stage),
                self.cost.labels(*stage[:2]),
            )
        return series

    def _unserved(self, workflow: WorkflowKey) -> None:
        for stage, function in self._functions.items():
            if stage[:2] == workflow:
                self.demand.unserved(function)

    def _end_workflow(self, namespace: str, name: str) -> None:
        super()._end_workflow(namespace, name)
        self.cold_starts.remove(namespace, name)

    def by_run_stage(
        self, values: Mapping[FunctionKey, float]
    ) -> dict[tuple[str, str, str], float]:
        """Return the value of the function of each stage that has run a batch, if it has one."""
        return {
            stage: values[series.function]
            for stage, series in self._series.items()
            if series.function in values
        }

    def has_run(self, stage: tuple[str, str, str]) -> bool:
        """Return true if a stage has run a batch."""
        return stage in self._series

    def end_stage(self, namespace: str, workflow: str, stage: str) -> None:
        """End the series of a stage."""
        super().end_stage(namespace, workflow, stage)
        self.run_ratios.remove(namespace, workflow, stage)


class _GaugeCollector(Collector):
    """Gauges of the state at the scrape: their series end with what they describe."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """Render the families for the registry."""
        gauges = self._metrics.gauges
        queues = GaugeMetricFamily(
            "esg_gateway_queue_rows",
            "Rows that wait in the queue of a stage, once it has had some.",
            labels=["namespace", "workflow", "stage"],
        )
        for stage, rows in gauges.queued_rows.items():
            if rows or self._metrics.has_run(stage):
                queues.add_metric(stage, rows)
        pods = GaugeMetricFamily(
            "esg_gateway_pods",
            "Pods that serve a function, by state: starting or not ready (starting), ready, being "
            "deleted (draining).",
            labels=["namespace", "function", "state"],
        )
        wanted = GaugeMetricFamily(
            "esg_function_pods_wanted",
            "Pods that a function needs for its load, for an autoscaler.",
            labels=["namespace", "function"],
        )
        for function, states in gauges.pods.items():
            for state in POD_STATES:
                pods.add_metric([*function, state], states[state])
        for function, number in gauges.pods_wanted.items():
            wanted.add_metric(function, number)
        price = GaugeMetricFamily(
            "esg_function_pods_dollars_per_hour",
            "Price of what the pods of a function hold, idle or not, dollars an hour; pods in "
            "slices hold nothing.",
            labels=["namespace", "function"],
        )
        for function, dollars in gauges.dollars_per_hour.items():
            price.add_metric(function, dollars)
        p95 = GaugeMetricFamily(
            "esg_profile_p95_ratio",
            "Largest 95th percentile of a stage's profile, as a multiple of latencyMs, where the "
            "profile has one and the stage has run.",
            labels=["namespace", "workflow", "stage"],
        )
        for stage, ratio in gauges.p95_ratios.items():
            p95.add_metric(stage, ratio)
        limit = GaugeMetricFamily(
            "esg_workflow_cost_limit_dollars",
            "Least cost of a request in time by the profiles, dollars: batches are full, nothing "
            "waits, and nothing is idle. Absent for a workflow that cannot be in time.",
            labels=["namespace", "workflow"],
        )
        for workflow, dollars in gauges.limits_dollars.items():
            limit.add_metric(workflow, dollars)
        memory = GaugeMetricFamily(
            "esg_gateway_body_bytes", "Memory of the bodies of requests in progress."
        )
        memory.add_metric([], gauges.body_bytes)
        yield from (queues, pods, wanted, price, p95, limit, memory, *_pool_families(gauges.pools))


def _pool_families(pools: Mapping[str, PoolGauge]) -> Iterable[Metric]:
    percent = GaugeMetricFamily(
        "esg_gateway_pool_percent",
        "Percent of GPUs in this gateway's pool of a namespace: of its slices (slices), of the "
        "batches that run in them (running), of all pods in them, idle or not (processes).",
        labels=["namespace", "of"],
    )
    price = GaugeMetricFamily(
        "esg_gateway_pool_dollars_per_hour",
        "Price of the slices of this gateway's pool of a namespace, dollars an hour.",
        labels=["namespace"],
    )
    for namespace, pool in pools.items():
        percent.add_metric([namespace, "slices"], pool.slice_percent)
        percent.add_metric([namespace, "running"], pool.running_percent)
        percent.add_metric([namespace, "processes"], pool.process_percent)
        price.add_metric([namespace], pool.dollars_per_hour)
    return percent, price


def _functions_of(workflow: Workflow | None) -> dict[tuple[str, str, str], FunctionKey]:
    """Map namespace, workflow and stage to the stage's function."""
    if workflow is None:
        return {}
    namespace = workflow.key[0]
    return {
        (*workflow.key, stage.name): (namespace, stage.function) for stage in workflow.spec.stages
    }
