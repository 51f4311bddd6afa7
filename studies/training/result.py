"""Result of a run: the record of each job, and its GPUs over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from statistics import fmean
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One completed job.

    Attributes:
        name, model, submit_s, gpus: values of the trace.
        start_s, end_s: times of first placement and completion; both the end of a job that never
            ran.
        service_gpu_s: GPU-seconds that it received.
        restarts: number of restarts after the first start.
        deadline_s: time by which it should end; inf: best effort.
    """

    name: str
    model: str
    submit_s: float
    gpus: int
    start_s: float
    end_s: float
    service_gpu_s: float
    restarts: int
    deadline_s: float = inf

    @property
    def jct_s(self) -> float:
        """Job completion time: from submission to completion."""
        return self.end_s - self.submit_s


class GpuSpan(NamedTuple):
    """Time during which a job used the same GPUs."""

    job: int  # index of its record
    gpus: tuple[int, ...]
    begin_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class JobsResult:
    """Result of one policy on one workload.

    Attributes:
        jobs: jobs in the order of the workload.
        spans: spans in the order of their ends.
        nodes: number of GPUs of each node.
        decisions: number of calls of the policy.
        gpus_shared: true if several jobs may use a GPU at a time.
    """

    jobs: tuple[JobRecord, ...]
    spans: tuple[GpuSpan, ...]
    nodes: tuple[int, ...]
    decisions: int
    gpus_shared: bool = False

    @property
    def jcts_s(self) -> list[float]:
        """Job completion times in the order of the workload."""
        return [job.jct_s for job in self.jobs]

    @property
    def mean_jct_s(self) -> float:
        """Mean job completion time."""
        return fmean(self.jcts_s)

    @property
    def makespan_s(self) -> float:
        """Time from the first submission to the last completion."""
        return max(job.end_s for job in self.jobs) - min(job.submit_s for job in self.jobs)

    @property
    def gpu_use_ratio(self) -> float:
        """GPU-seconds of all jobs, divided by those of the cluster during the makespan."""
        held_gpu_s = sum(len(span.gpus) * (span.end_s - span.begin_s) for span in self.use_spans)
        return held_gpu_s / (sum(self.nodes) * self.makespan_s) if self.makespan_s else 0.0

    @cached_property
    def use_spans(self) -> tuple[GpuSpan, ...]:
        """Spans without the time during which an earlier job holds the same GPU, too."""
        if not self.gpus_shared:
            return self.spans
        until_s: dict[int, float] = {}
        spans = []
        for span in sorted(self.spans, key=lambda span: span.begin_s):
            for gpu in span.gpus:
                begin_s = max(span.begin_s, until_s.get(gpu, span.begin_s))
                if span.end_s > begin_s:
                    spans.append(GpuSpan(span.job, (gpu,), begin_s, span.end_s))
                    until_s[gpu] = span.end_s
        return tuple(spans)

    @property
    def restarts(self) -> int:
        """Restarts of all jobs together."""
        return sum(job.restarts for job in self.jobs)

    @property
    def deadline_hit_ratio(self) -> float | None:
        """Part of the jobs with a deadline that met it; None: no job has one."""
        hits = [job.end_s <= job.deadline_s for job in self.jobs if job.deadline_s < inf]
        return fmean(hits) if hits else None

    def summary(self) -> dict[str, Any]:
        """Return the figures of the table."""
        deadlines = {"deadline_hit_ratio": self.deadline_hit_ratio}
        return {
            "jobs": len(self.jobs),
            "mean_jct_s": self.mean_jct_s,
            "p50_jct_s": quantile(self.jcts_s, 0.5),
            "p99_jct_s": quantile(self.jcts_s, 0.99),
            "makespan_s": self.makespan_s,
            "gpu_use_ratio": self.gpu_use_ratio,
            "restarts": self.restarts,
            "decisions": self.decisions,
            **{name: ratio for name, ratio in deadlines.items() if ratio is not None},
        }


def quantile(values: Sequence[float], ratio: float) -> float:
    """Return a quantile, linear between neighbours."""
    ordered = sorted(values)
    place = ratio * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
