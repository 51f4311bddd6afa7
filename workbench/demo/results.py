"""Results of the demo's requests, by workflow and together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workbench.demo.load_generator import RequestOutcome

_OK = 200


@dataclass
class WorkflowResults:
    """Outcomes of one workflow's requests, or of all.

    Attributes:
        name: name of the workflow.
        slo_ms: SLO of the workflow; None for several workflows.
        answered: number of requests with the right answer.
        hits: number of answered requests within their SLO.
        wrong: number of answers with wrong values.
        refusals: number of other answers, by status; 0: no answer.
        latencies_ms, lateness_ms: latencies of answered requests; delays of all requests that were
            sent.
        batch_rows: sum of the largest batches of the answered requests.
    """

    name: str
    slo_ms: float | None
    answered: int = 0
    hits: int = 0
    wrong: int = 0
    refusals: dict[int, int] = field(default_factory=dict)
    latencies_ms: list[float] = field(default_factory=list)
    lateness_ms: list[float] = field(default_factory=list)
    batch_rows: int = 0

    @property
    def ended(self) -> int:
        """Requests that have ended, however."""
        return len(self.lateness_ms)

    @property
    def hit_ratio(self) -> float | None:
        """Hits over all requests that have ended; None without any."""
        return self.hits / self.ended if self.ended else None

    @property
    def rows_per_batch(self) -> float:
        """Mean rows of the largest batch that a request was in."""
        return self.batch_rows / self.answered if self.answered else 0.0

    def add(self, outcome: RequestOutcome, slo_ms: float) -> None:
        """Count a request."""
        self.lateness_ms.append(outcome.late_ms)
        if outcome.status != _OK:
            self.refusals[outcome.status] = self.refusals.get(outcome.status, 0) + 1
        elif not outcome.is_right:
            self.wrong += 1
        else:
            self.answered += 1
            self.hits += outcome.latency_ms <= slo_ms
            self.latencies_ms.append(outcome.latency_ms)
            self.batch_rows += outcome.rows

    def latency_ms(self, percent: float) -> float | None:
        """Return a percentile of the answered requests' latencies; None without any."""
        return percentile(self.latencies_ms, percent)

    def as_json(self) -> dict[str, Any]:
        """Return the values of ``--json``."""
        return {
            "workflow": self.name,
            "slo_ms": self.slo_ms,
            "requests": self.ended,
            "answered": self.answered,
            "hits": self.hits,
            "hit_rate": self.hit_ratio,
            "wrong": self.wrong,
            "refusals": {str(status): number for status, number in self.refusals.items()},
            "p50_ms": self.latency_ms(50),
            "p99_ms": self.latency_ms(99),
        }


class Results:
    """Results by workflow, in one part of a run.

    Attributes:
        workflows: results by workflow, in the order of the load generator's indices.
        total: results of all workflows together.
    """

    def __init__(self, workflows: Iterable[tuple[str, float, int]]) -> None:
        """Begin with the name, the SLO in ms and the number of stages of each workflow."""
        self._slos_ms: list[float] = []
        self._stages: list[int] = []
        self.workflows: list[WorkflowResults] = []
        for name, slo_ms, stages in workflows:
            self._slos_ms.append(slo_ms)
            self._stages.append(stages)
            self.workflows.append(WorkflowResults(name, slo_ms))
        self.total = WorkflowResults("all", None)

    def add(self, outcome: RequestOutcome) -> None:
        """Count a request."""
        slo_ms = self._slos_ms[outcome.workflow]
        self.workflows[outcome.workflow].add(outcome, slo_ms)
        self.total.add(outcome, slo_ms)

    @property
    def stage_rows(self) -> int:
        """Rows that model servers got for the answered requests."""
        return sum(
            workflow.answered * stages
            for workflow, stages in zip(self.workflows, self._stages, strict=True)
        )

    @property
    def slo_min_ms(self) -> float:
        """The shortest SLO."""
        return min(self._slos_ms)


class RunResults:
    """Results of a whole run.

    Attributes:
        warm_up: results of requests while the first pods start.
        counted: results of the requests after them.

    Args:
        workflows: name, SLO in ms and number of stages of each workflow.
        warm_up_s: duration of the warm-up, in seconds.
    """

    def __init__(self, workflows: Sequence[tuple[str, float, int]], *, warm_up_s: float) -> None:
        self.warm_up, self.counted = Results(workflows), Results(workflows)
        self._warm_up_ms = 1000 * warm_up_s

    def add(self, outcomes: Iterable[RequestOutcome]) -> None:
        """Count requests."""
        for outcome in outcomes:
            is_early = outcome.arrival_ms < self._warm_up_ms
            (self.warm_up if is_early else self.counted).add(outcome)

    @property
    def current(self) -> Results:
        """Results that count, or those of the warm-up before the first of them."""
        return self.counted if self.counted.total.ended else self.warm_up

    @property
    def ended(self) -> int:
        """Requests that have ended, however."""
        return self.warm_up.total.ended + self.counted.total.ended

    @property
    def answered(self) -> int:
        """Requests with the right answer."""
        return self.warm_up.total.answered + self.counted.total.answered

    def limit_dollars(self, limits_dollars: Sequence[float]) -> float:
        """Return the least cost of the answered requests, by that of one of each workflow."""
        pairs = zip(self.warm_up.workflows, self.counted.workflows, strict=True)
        answered = [early.answered + late.answered for early, late in pairs]
        return sum(n * dollars for n, dollars in zip(answered, limits_dollars, strict=True) if n)

    @property
    def stage_rows(self) -> int:
        """Rows that model servers got for the answered requests."""
        return self.warm_up.stage_rows + self.counted.stage_rows


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile of values; None without any."""
    return float(np.percentile(values, percent)) if values else None
