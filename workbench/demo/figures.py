"""The figures of a run: by this side's own clock and count, and the service's beside them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from workbench.demo.engine import Engine
from workbench.demo.requests import DemoRequest

Samples = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]


@dataclass(frozen=True, slots=True)
class WorkflowFigures:
    """One workflow's requests, or all of them.

    None: nothing of the kind has happened yet.
    """

    workflow: str
    slo_ms: float | None
    arrived: int
    done: int
    hits: int
    hit_rate: float | None  # of those that are done, or too late already
    p50_over_slo: float | None
    p99_over_slo: float | None
    cost_per_1000: float | None  # dollars


@dataclass(frozen=True, slots=True)
class DemoComparison:
    """The service's count of requests, and ours of the same ones.

    A pod that serves several requests has one label ``request``, the oldest's; so the service can
    follow a request to its end only if it was the oldest in each pod that served it. What the
    service saw happened between our asking and its answering, hence our ranges.
    """

    service_ended: int
    demo_ended: int
    service_hits: int
    demo_hits: tuple[int, int]
    service_dollars: float
    demo_dollars: tuple[float, float]

    @property
    def agree(self) -> bool:
        """Whether the service's figures are possible ones by our own clock and count."""
        return (
            self.service_ended == self.demo_ended
            and self.demo_hits[0] <= self.service_hits <= self.demo_hits[1]
            and self.demo_dollars[0] <= self.service_dollars <= self.demo_dollars[1]
        )


@dataclass(frozen=True, slots=True)
class Misses:
    """Of the requests that ended too late: means, in ms."""

    count: int
    late_ms: float
    waited_ms: float  # for a pod that is bound, over all stages
    beyond_plan_ms: float  # run times over the planned ones, over all stages


@dataclass(frozen=True, slots=True)
class Summary:
    """What a whole run came to."""

    seconds: float  # from the first arrival on until all was served
    workflows: list[WorkflowFigures]
    total: WorkflowFigures
    misses: Misses | None
    pods: int
    batch_mean: float
    pods_per_second: float
    filters_nowhere: int
    binds_refused: int
    plans_late: int
    decision_p50_ms: float | None  # from the filter that found room to the answer of bind
    decision_p99_ms: float | None
    gpu_fill_mean: float
    comparison: DemoComparison

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        told = asdict(self)
        told["comparison"]["agree"] = self.comparison.agree
        return told


def figures(
    workflow: str, slo_ms: float | None, requests: Sequence[DemoRequest], now: float
) -> WorkflowFigures:
    """The figures of these requests at ``now``, in seconds since the epoch."""
    done = [request for request in requests if request.ended is not None]
    lost = sum(
        request.ended is None and now > request.arrived + request.slo_s for request in requests
    )
    over_slo = sorted(request.latency_s / request.slo_s for request in done)
    hits = sum(request.hit for request in done)
    return WorkflowFigures(
        workflow,
        slo_ms,
        len(requests),
        len(done),
        hits,
        hits / (len(done) + lost) if done or lost else None,
        percentile(over_slo, 0.5),
        percentile(over_slo, 0.99),
        1000 * fmean(request.cost for request in done) if done else None,
    )


def by_workflow(requests: Sequence[DemoRequest], now: float) -> list[WorkflowFigures]:
    """The figures of each workflow, in the order of their names."""
    kinds = {request.workflow.key: request.workflow for request in requests}
    return [
        figures(
            workflow.metadata.name,
            workflow.spec.slo.latency_ms,
            [request for request in requests if request.workflow.key == key],
            now,
        )
        for key, workflow in sorted(kinds.items())
    ]


def summary(
    engine: Engine, *, began: float, ended: float, fills: Sequence[float], samples: Samples
) -> Summary:
    """The figures of a whole run; ``samples`` are the service's metrics at its end."""
    tally, requests = engine.tally, engine.requests
    decided_ms = sorted(1000 * seconds for seconds in tally.decided_s)
    return Summary(
        seconds=ended - began,
        workflows=by_workflow(requests, ended),
        total=figures("all", None, requests, ended),
        misses=_misses(requests),
        pods=len(tally.batches),
        batch_mean=fmean(tally.batches) if tally.batches else 0.0,
        pods_per_second=len(tally.batches) / (ended - began),
        filters_nowhere=tally.nowhere,
        binds_refused=tally.refused,
        plans_late=tally.late,
        decision_p50_ms=percentile(decided_ms, 0.5),
        decision_p99_ms=percentile(decided_ms, 0.99),
        gpu_fill_mean=fmean(fills) if fills else 0.0,
        comparison=_comparison(engine, samples),
    )


def percentile(ordered: Sequence[float], part: float) -> float | None:
    """The least of the values, in ascending order, that ``part`` of them do not exceed."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else None


def _misses(requests: Sequence[DemoRequest]) -> Misses | None:
    missed = [request for request in requests if request.ended is not None and not request.hit]
    if not missed:
        return None
    return Misses(
        len(missed),
        1000 * fmean(request.latency_s - request.slo_s for request in missed),
        1000 * fmean(request.waited_s for request in missed),
        1000 * fmean(request.beyond_plan_s for request in missed),
    )


def _comparison(engine: Engine, samples: Samples) -> DemoComparison:
    service = {"hit": 0, "miss": 0, "dropped": 0}
    for labels, value in samples.get("esg_workflow_requests_total", ()):
        service[labels["result"]] += round(value)
    same = [each for each in engine.requests if each.led and each.ended is not None]
    return DemoComparison(
        service_ended=service["hit"] + service["miss"],
        demo_ended=len(same),
        service_hits=service["hit"],
        demo_hits=(sum(each.hit_when_told for each in same), sum(each.hit for each in same)),
        service_dollars=sum(value for _, value in samples.get("esg_cost_dollars_total", ())),
        demo_dollars=(engine.tally.dollars_least, engine.tally.dollars_most),
    )
