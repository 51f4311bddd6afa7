"""Chrome trace of the beginning of a run: for chrome://tracing, Perfetto, speedscope.

A GPU is a process, a container on it a thread, and what runs in it a slice; above them the share
that runs hold. Requests are spans of their own, from arrival to end.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import inf
from pathlib import Path

from workbench.files.trace_events import TraceFile
from workbench.simulation.result import RequestRecord, Span

_US_PER_MS = 1000.0
_REQUESTS = 0  # the process that requests are shown as
_DIGITS = 3  # of a microsecond


class ChromeTrace:
    """Trace of all runs that begin before so many requests have ended.

    Each of those runs is shown to its end. Runs may come in any order; their shares are written
    last.
    """

    def __init__(self, path: Path, workflows: Sequence[str], requests_max: int) -> None:
        """Write to ``path``; ``workflows`` are the names of those that records number."""
        self._workflows = workflows
        self._requests_remaining = requests_max
        self._until_ms = inf if requests_max else 0.0
        self._gpus: dict[str, int] = {}  # number of its process
        self._threads: set[int] = set()
        self._changes: list[tuple[float, int, int]] = []  # when, percent, which GPU
        self._file = TraceFile(path, f"what began before {requests_max:,} requests had ended")
        self._file.name_process(_REQUESTS, "requests")

    def close(self) -> None:
        """End the trace and the file."""
        percents: defaultdict[int, int] = defaultdict(int)
        for time_ms, percent, gpu in sorted(self._changes):  # at one moment the ends come first
            percents[gpu] += percent
            at = {"ph": "C", "pid": gpu, "ts": _us(time_ms), "name": "share of runs, percent"}
            self._file.add({**at, "args": {"percent": percents[gpu]}})
        self._file.close()

    def end_request(self, record: RequestRecord) -> None:
        """Add a request at its end."""
        if not self._requests_remaining:
            return
        self._requests_remaining -= 1
        if not self._requests_remaining:
            self._until_ms = record.end_ms
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

    def add_run(self, span: Span) -> None:
        """Add a container's run."""
        if span.begin_ms >= self._until_ms:
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
        self._changes.append((span.begin_ms, span.gpu_percent, gpu))
        self._changes.append((span.end_ms, -span.gpu_percent, gpu))

    def _gpu(self, span: Span) -> int:
        number = self._gpus.get(span.gpu)
        if number is None:
            number = self._gpus[span.gpu] = len(self._gpus) + 1
            self._file.name_process(number, f"{span.node} {span.gpu}")
        return number


def _us(time_ms: float) -> float:
    return round(time_ms * _US_PER_MS, _DIGITS)
