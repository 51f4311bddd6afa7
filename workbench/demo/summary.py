"""Summary of a run, by the client's clock and counts, and compared with the service's metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from workbench.demo.engine import DemoEngine
from workbench.demo.requests import DemoRequest
from workbench.simulation.recorder import Tally, counts
from workbench.simulation.result import Counts

Samples = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]
DollarRange = tuple[float, float]


@dataclass(frozen=True, slots=True)
class WorkflowSummary:
    """Requests of one workflow, or of all.

    Attributes:
        late: requests that have not ended, and whose SLO is over.
        ended: results of those that have.
    """

    workflow: str
    slo_ms: float | None
    arrived: int
    late: int
    ended: Counts

    @property
    def hit_ratio(self) -> float | None:
        """Hits over requests that have ended or are late; None without any."""
        decided = self.ended.requests + self.late
        return self.ended.hits / decided if decided else None

    def as_json(self) -> dict[str, Any]:
        """Return the values of ``--json``."""
        latency = self.ended.latency
        return {
            "workflow": self.workflow,
            "slo_ms": self.slo_ms,
            "arrived": self.arrived,
            "done": self.ended.requests,
            "hits": self.ended.hits,
            "hit_rate": self.hit_ratio,
            "p50_over_slo": latency.quantile(0.5),
            "p99_over_slo": latency.quantile(0.99),
            "cost_per_1000": self.ended.dollars_per_thousand,
        }


@dataclass(frozen=True, slots=True)
class DemoComparison:
    """Counts of the service, and those of the client for the same requests.

    A pod that serves several requests has one label ``request``, the oldest's, so the service can
    follow a request to its end only if it was the oldest in each pod that served it. Its events
    happened between the client's call and the answer, hence the client's ranges.
    """

    service_ended: int
    demo_ended: int
    service_hits: int
    demo_hits: tuple[int, int]
    service_dollars: float
    demo_dollars: DollarRange

    @property
    def agree(self) -> bool:
        """True when the service's values are within the client's ranges."""
        return (
            self.service_ended == self.demo_ended
            and self.demo_hits[0] <= self.service_hits <= self.demo_hits[1]
            and self.demo_dollars[0] <= self.service_dollars <= self.demo_dollars[1]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSummary:
    """Summary of a whole run."""

    seconds: float  # from the first arrival until all requests had ended
    workflows: list[WorkflowSummary]
    total: WorkflowSummary
    pods: int
    mean_batch_size: float
    infeasible_filters: int
    refused_binds: int
    late_plans: int
    decision_p50_ms: float
    decision_p99_ms: float
    gpu_utilisation_ratio: float
    comparison: DemoComparison

    @property
    def pods_per_s(self) -> float:
        """Pods placed a second."""
        return self.pods / self.seconds

    def as_json(self) -> dict[str, Any]:
        """Return the object of ``--json``."""
        values = {name: getattr(self, name) for name in self.__slots__}
        values |= {
            "workflows": [workflow.as_json() for workflow in self.workflows],
            "total": self.total.as_json(),
            "misses": asdict(self.total.ended.missed) | {"count": self.total.ended.misses},
            "pods_per_s": self.pods_per_s,
            "comparison": {**asdict(self.comparison), "agree": self.comparison.agree},
        }
        return values


def by_workflow(engine: DemoEngine, now_ms: float) -> list[WorkflowSummary]:
    """Summarise each workflow with requests, in the order of their names."""
    return [
        _summary(
            workflow.key[1],
            [workflow.tally],
            [request for request in engine.requests if request.workflow is workflow],
            now_ms,
        )
        for workflow in sorted(engine.workflows, key=lambda workflow: workflow.key)
    ]


def total_of(engine: DemoEngine, now_ms: float) -> WorkflowSummary:
    """Summarise all requests."""
    tallies = [workflow.tally for workflow in engine.workflows]
    return _summary("all", tallies, engine.requests, now_ms)


def _summary(
    name: str, tallies: Sequence[Tally], requests: Sequence[DemoRequest], now_ms: float
) -> WorkflowSummary:
    late = sum(
        request.ended_ms is None and now_ms > request.arrival_ms + request.slo_ms
        for request in requests
    )
    slo_ms = tallies[0].slo_ms if len(tallies) == 1 else None
    return WorkflowSummary(name, slo_ms, len(requests), late, Counts(**counts(tallies)))


def summarise(
    engine: DemoEngine,
    *,
    began_ms: float,
    ended_ms: float,
    utilisations: Sequence[float],
    samples: Samples,
) -> DemoSummary:
    """Summarise a whole run; ``samples`` are the service's metrics at its end."""
    pods = engine.counts
    p50_ms, p99_ms = np.percentile(pods.decisions_ms or [0.0], [50, 99], method="inverted_cdf")
    return DemoSummary(
        seconds=(ended_ms - began_ms) / 1000,
        workflows=by_workflow(engine, ended_ms),
        total=total_of(engine, ended_ms),
        pods=len(pods.batches),
        mean_batch_size=fmean(pods.batches) if pods.batches else 0.0,
        infeasible_filters=pods.infeasible,
        refused_binds=pods.refused,
        late_plans=pods.late,
        decision_p50_ms=float(p50_ms),
        decision_p99_ms=float(p99_ms),
        gpu_utilisation_ratio=fmean(utilisations) if utilisations else 0.0,
        comparison=_comparison(engine, samples),
    )


def _comparison(engine: DemoEngine, samples: Samples) -> DemoComparison:
    service = {"hit": 0, "miss": 0, "dropped": 0}
    for labels, value in samples.get("esg_workflow_requests_total", ()):
        service[labels["result"]] += round(value)
    same = [r for r in engine.requests if r.led and r.ended_ms is not None]
    return DemoComparison(
        service_ended=service["hit"] + service["miss"],
        demo_ended=len(same),
        service_hits=service["hit"],
        demo_hits=(sum(r.hit_when_reported for r in same), sum(r.hit for r in same)),
        service_dollars=sum(value for _, value in samples.get("esg_cost_dollars_total", ())),
        demo_dollars=engine.counts.cost_dollars,
    )
