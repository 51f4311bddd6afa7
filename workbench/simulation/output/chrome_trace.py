"""Chrome trace of the beginning of a run: for chrome://tracing, Perfetto, speedscope.

A GPU is a process, a container on it a thread, and what runs in it a slice; above them the share
that runs hold. Requests are spans of their own, from arrival to end.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from pathlib import Path

from workbench.files.trace_events import TraceFile
from workbench.simulation.result import RequestRecord, Span

_US_PER_MS = 1000.0
_REQUESTS = 0  # the process that requests are shown as
_DIGITS = 3  # of a microsecond


class ChromeTrace:
    """Trace of all runs that begin before so many requests have ended.

    Each of those runs is shown to its end.
    """

    def __init__(self, path: Path, workflows: Sequence[str], requests_max: int) -> None:
        """Write to ``path``; ``workflows`` are the names of those that records number."""
        self._workflows = workflows
        self._requests_remaining = requests_max
        self._gpus: dict[str, int] = {}  # number of its process
        self._threads: set[int] = set()
        self._percents: dict[int, int] = {}
        self._ends: list[tuple[float, int, int]] = []  # when, which GPU, percent
        self._file = TraceFile(path, f"what began before {requests_max:,} requests had ended")
        self._file.name_process(_REQUESTS, "requests")

    def close(self) -> None:
        """End the trace and the file."""
        self._release_until(float("inf"))
        self._file.close()

    def end_request(self, record: RequestRecord) -> None:
        """Add a request at its end."""
        if not self._requests_remaining:
            return
        self._requests_remaining -= 1
        shown = {
            "cat": "request",
            "id": record.number,
            "pid": _REQUESTS,
            "tid": 0,
            "name": self._workflows[record.workflow],
        }
        args = {
            "outcome": record.outcome,
            "slo_ms": record.slo_ms,
            "cost_dollars": record.cost_dollars,
        }
        self._file.add({**shown, "ph": "b", "ts": _us(record.arrival_ms), "args": args})
        self._file.add({**shown, "ph": "e", "ts": _us(record.end_ms)})

    def begin_run(self, span: Span) -> None:
        """Add a container's run when it begins."""
        if not self._requests_remaining:
            return
        gpu = self._gpu(span)
        where = {"ph": "X", "pid": gpu, "tid": span.container}
        if span.container not in self._threads:
            self._threads.add(span.container)
            self._file.name_thread(gpu, span.container, f"{span.function} {span.container}")
        started_ms = span.begin_ms + span.start_ms
        for phase, from_ms, to_ms in (
            ("start", span.begin_ms, started_ms),
            ("transfer", started_ms, span.execute_ms),
        ):
            if to_ms > from_ms:
                times = {"ts": _us(from_ms), "dur": _us(to_ms - from_ms)}
                self._file.add({**where, **times, "cat": phase, "name": phase})
        self._file.add(
            {
                **where,
                "ts": _us(span.execute_ms),
                "dur": _us(span.end_ms - span.execute_ms),
                "cat": "execute",
                "name": span.stage,
                "args": {
                    "workflow": self._workflows[span.workflow],
                    "jobs": span.jobs,
                    "batch": span.batch,
                    "cpu": span.cpu,
                    "gpu_percent": span.gpu_percent,
                    "memory_mib": span.memory_mib,
                    "cost_dollars": span.cost_dollars,
                },
            }
        )
        self._release_until(span.begin_ms)
        self._change(gpu, span.gpu_percent, span.begin_ms)
        heappush(self._ends, (span.end_ms, gpu, span.gpu_percent))

    def _gpu(self, span: Span) -> int:
        number = self._gpus.get(span.gpu)
        if number is None:
            number = self._gpus[span.gpu] = len(self._gpus) + 1
            self._file.name_process(number, f"{span.node} {span.gpu}")
        return number

    def _release_until(self, now_ms: float) -> None:
        while self._ends and self._ends[0][0] <= now_ms:
            end_ms, gpu, percent = heappop(self._ends)
            self._change(gpu, -percent, end_ms)

    def _change(self, gpu: int, percent: int, now_ms: float) -> None:
        used_percent = self._percents[gpu] = self._percents.get(gpu, 0) + percent
        at = {"ph": "C", "pid": gpu, "ts": _us(now_ms), "name": "share of runs, percent"}
        self._file.add({**at, "args": {"percent": used_percent}})


def _us(time_ms: float) -> float:
    return round(time_ms * _US_PER_MS, _DIGITS)
