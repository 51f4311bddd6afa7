"""CSV of all requests of a run, in the order in which they ended."""

from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from workbench.simulation.result import RequestRecord, Span

COLUMNS = (
    "request",
    "workflow",
    "arrival_ms",
    "end_ms",
    "latency_ms",
    "slo_ms",
    "outcome",
    "queue_ms",
    "start_ms",
    "transfer_ms",
    "execute_ms",
    "cost_dollars",
    "batch",
    "node",
    "gpu_percent",
)
_BUFFER_BYTES = 1 << 20


class RequestsCsv:
    """CSV with a row for each request.

    Times are of the virtual clock, to a thousandth of a millisecond. The four phases are of the
    request's longest chain of stages; their sum is its latency. ``batch``, ``node`` and
    ``gpu_percent`` have a part for each stage that ran, in the order of the workflow's stages:
    number of requests in its batch, node, and GPU share.
    """

    def __init__(self, path: Path, workflows: Sequence[str]) -> None:
        """Write to ``path``; ``workflows`` are the names of those that records number."""
        self._workflows = workflows
        self._runs: defaultdict[int, dict[int, Span]] = defaultdict(dict)  # by request and stage
        self._file = path.open("w", encoding="utf-8", newline="", buffering=_BUFFER_BYTES)
        self._file.write(",".join(COLUMNS) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def add_run(self, span: Span) -> None:
        """Take the run of a batch, for the rows of its requests."""
        for request, stage in span.requests:
            self._runs[request][stage] = span

    def write(self, record: RequestRecord) -> None:
        """Write a request at its end."""
        (
            number,
            workflow,
            arrival_ms,
            end_ms,
            slo_ms,
            outcome,
            queue_ms,
            start_ms,
            transfer_ms,
            execute_ms,
            cost_dollars,
        ) = record
        spans = [span for _, span in sorted(self._runs.pop(number, {}).items(), key=itemgetter(0))]
        batches = ";".join(str(span.jobs) for span in spans)
        nodes = ";".join(span.node for span in spans)
        percents = ";".join(str(span.gpu_percent) for span in spans)
        self._file.write(
            f"{number},{self._workflows[workflow]},{arrival_ms:.3f},{end_ms:.3f},"
            f"{end_ms - arrival_ms:.3f},{slo_ms:.3f},{outcome},{queue_ms:.3f},{start_ms:.3f},"
            f"{transfer_ms:.3f},{execute_ms:.3f},{cost_dollars:.9g},"
            f"{batches},{nodes},{percents}\n"
        )
