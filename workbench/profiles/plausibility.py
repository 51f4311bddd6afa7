"""Measured values that cannot be right: other units, or times of a request for those of a batch."""

from collections import defaultdict
from collections.abc import Iterable

from scheduler.model.document_reader import Problem
from scheduler.model.documents import ProfiledConfiguration
from workbench.profiles.measured_rows import MeasuredRows, Row

SINGLE_MAX_MS = 60_000.0
"""Longest time of a batch of one request."""
FALL_MAX_RATIO = 0.5
"""Least part of a smaller batch's time that a larger one takes; measured ones fell to 0.74."""
NOISE_MAX_MS = 2.0
"""Longest time of a smaller batch that noise alone may halve; larger ones are not compared."""


def implausible(
    read: MeasuredRows, measured: Iterable[tuple[Row, ProfiledConfiguration]]
) -> Iterable[Problem]:
    """Return a problem for each row whose latency cannot be right.

    Args:
        read: rows of the measurements, for the places of problems.
        measured: valid configurations and their rows.
    """
    series = defaultdict(list)
    for row, configuration in measured:
        place = row.function, configuration.cpu, configuration.gpu_percent
        series[place].append((configuration.batch, configuration.latency_ms, row))
    for batches in series.values():
        slowest_ms, of_batch = 0.0, 0
        for batch, latency_ms, row in sorted(batches, key=lambda item: item[0]):
            if batch == 1 and latency_ms > SINGLE_MAX_MS:
                message = (
                    f"{latency_ms:,.0f} ms for a batch of 1 is above {SINGLE_MAX_MS:,.0f} ms; "
                    "name the unit of the column: --unit us"
                )
                yield read.problem(row.place, "latency_ms", message)
            if slowest_ms > NOISE_MAX_MS and latency_ms < FALL_MAX_RATIO * slowest_ms:
                message = (
                    f"batch {batch} takes {latency_ms:,.6g} ms and batch {of_batch} "
                    f"{slowest_ms:,.6g} ms; give the time of a whole batch, not of a request"
                )
                yield read.problem(row.place, "latency_ms", message)
            if latency_ms > slowest_ms:
                slowest_ms, of_batch = latency_ms, batch
