"""Counters of the last hour, for the live page: a sample every 15 s of what Prometheus scrapes."""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from prometheus_client.core import Metric

from scheduler.dispatch.pods import FunctionKey
from scheduler.dispatch.requests import WorkflowKey
from scheduler.gateway.metrics import GatewayMetrics, Gauges

PERIOD_S: Final = 15.0
HOUR_S: Final = 3600.0
WINDOW_S: Final = 300.0
_SAMPLES_MAX: Final = round(HOUR_S / PERIOD_S) + 1
StageKey = tuple[str, str, str]  # namespace, workflow, name


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters at one time; all of them rise.

    Attributes:
        at_s: time of the clock.
        requests: number of requests by workflow and result.
        durations: number of answers up to each edge in seconds, by workflow.
        dollars: price of batches by workflow.
        cold_starts: requests that waited for a pod's start, by workflow.
        batches, rows: number of batches and of their rows by stage.
        run_ratios: number and sum of run times over the profile's, by stage.
        held_dollars: price of what the pods of a function have held since the first sample.
        pool_dollars: price of what the pool of a namespace has held since then.
    """

    at_s: float
    requests: Mapping[WorkflowKey, Mapping[str, float]]
    durations: Mapping[WorkflowKey, Mapping[float, float]]
    dollars: Mapping[WorkflowKey, float]
    cold_starts: Mapping[WorkflowKey, float]
    batches: Mapping[StageKey, float]
    rows: Mapping[StageKey, float]
    run_ratios: Mapping[StageKey, tuple[float, float]]
    held_dollars: Mapping[FunctionKey, float] = field(default_factory=dict)
    pool_dollars: Mapping[str, float] = field(default_factory=dict)


class PageHistory:
    """Samples of the last hour.

    Args:
        metrics: series of the gateway.
        gauges: reads the state of queues and pods.
        clock_s: monotonic seconds.
    """

    def __init__(
        self,
        metrics: GatewayMetrics,
        gauges: Callable[[], Gauges],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._gauges = gauges
        self._clock_s = clock_s
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES_MAX)
        self._samples.append(self.now(gauges()))

    async def sample(self) -> None:
        """Add a sample."""
        self._samples.append(self.now(self._gauges()))

    def now(self, gauges: Gauges) -> Sample:
        """Return the counters of this moment, at which the gauges were read."""
        metrics, at_s = self._metrics, self._clock_s()
        held: defaultdict[FunctionKey, float] = defaultdict(float)
        pools: defaultdict[str, float] = defaultdict(float)
        elapsed_hours = 0.0
        if self._samples:
            last = self._samples[-1]
            held.update(last.held_dollars)
            pools.update(last.pool_dollars)
            elapsed_hours = (at_s - last.at_s) / HOUR_S
        for function, per_hour in gauges.dollars_per_hour.items():
            held[function] += per_hour * elapsed_hours
        for namespace, pool in gauges.pools.items():
            pools[namespace] += pool.dollars_per_hour * elapsed_hours
        requests: defaultdict[WorkflowKey, dict[str, float]] = defaultdict(dict)
        for labels, value in _values(metrics.requests.collect(), "_total"):
            requests[_workflow(labels)][labels["result"]] = value
        durations: defaultdict[WorkflowKey, dict[float, float]] = defaultdict(dict)
        for labels, value in _values(metrics.workflow_durations.collect(), "_bucket"):
            durations[_workflow(labels)][float(labels["le"])] = value
        sizes, ratios = list(metrics.batch_sizes.collect()), list(metrics.run_ratios.collect())
        ratio_sums = {_stage(labels): value for labels, value in _values(ratios, "_sum")}
        return Sample(
            at_s,
            requests,
            durations,
            {_workflow(labels): v for labels, v in _values(metrics.cost.collect(), "_total")},
            {
                _workflow(labels): v
                for labels, v in _values(metrics.cold_starts.collect(), "_total")
            },
            {_stage(labels): value for labels, value in _values(sizes, "_count")},
            {_stage(labels): value for labels, value in _values(sizes, "_sum")},
            {
                _stage(labels): (value, ratio_sums[_stage(labels)])
                for labels, value in _values(ratios, "_count")
            },
            dict(held),
            dict(pools),
        )

    def before(self, now: Sample, seconds: float) -> Sample:
        """Return the oldest sample of the last seconds; the sample itself where there is none."""
        return next((s for s in self._samples if s.at_s >= now.at_s - seconds - 1.0), now)

    def minutes(self, now: Sample) -> Sequence[tuple[Sample, Sample]]:
        """Return pairs of samples a minute apart, the oldest first."""
        every = round(60 / PERIOD_S)
        samples = [*self._samples, now]
        return list(pairwise(samples[::-1][::every][::-1]))


def _values(families: Iterable[Metric], suffix: str) -> Iterable[tuple[dict[str, str], float]]:
    for family in families:
        for series in family.samples:
            if series.name.endswith(suffix):
                yield series.labels, series.value


def _workflow(labels: Mapping[str, str]) -> WorkflowKey:
    return labels["namespace"], labels["workflow"]


def _stage(labels: Mapping[str, str]) -> StageKey:
    return labels["namespace"], labels["workflow"], labels["stage"]
