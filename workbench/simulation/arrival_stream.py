"""Arrivals one by one, out of their chunks."""

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np

from workbench.simulation.errors import WorkloadError
from workbench.simulation.workflow_state import WorkflowState
from workbench.simulation.workload import Arrivals, Chunk

_NOTHING: Chunk = (np.empty(0), np.empty(0, np.int32))


def stream(
    arrivals: Arrivals, states: Sequence[WorkflowState], requests: int
) -> Iterator[tuple[float, WorkflowState | None]]:
    """Yield time and workflow of the first ``requests``; after the last one (inf, None), always.

    Raises:
        WorkloadError: they go back in time, or name no workflow.
    """
    yield from _first(arrivals, states, requests)
    while True:
        yield inf, None


def _first(
    arrivals: Arrivals, states: Sequence[WorkflowState], requests: int
) -> Iterator[tuple[float, WorkflowState]]:
    number = 0
    last_ms = 0.0
    for chunk in arrivals.chunks():
        _check(chunk, len(states), last_ms)
        times_ms, workflows = chunk
        if not len(times_ms):
            continue
        last_ms = float(times_ms[-1])
        count = min(requests - number, len(times_ms))
        for time_ms, workflow in zip(
            times_ms[:count].tolist(), workflows[:count].tolist(), strict=True
        ):
            yield time_ms, states[workflow]
        number += count
        if number == requests:
            return


def expected_rates_rps(arrivals: Arrivals) -> dict[tuple[str, str], float]:
    """Return requests a second of each workflow, over the first chunk of the arrivals.

    For arrivals of which nothing else is known: a workload has a mean rate of its own.

    Raises:
        WorkloadError: they go back in time, or name no workflow.
    """
    workflows = arrivals.workflows
    times_ms, numbers = next(iter(arrivals.chunks()), _NOTHING)
    _check((times_ms, numbers), len(workflows), 0.0)
    seconds = float(times_ms[-1] - times_ms[0]) / 1000 if len(times_ms) else 0.0
    counts = np.bincount(numbers, minlength=len(workflows)).tolist()
    return {
        key: count / seconds if seconds else 0.0
        for key, count in zip(workflows, counts, strict=True)
    }


def _check(chunk: Chunk, workflows: int, last_ms: float) -> None:
    times_ms, numbers = chunk
    if len(times_ms) != len(numbers):
        raise WorkloadError(
            f"a chunk of the arrivals has {len(times_ms)} times and {len(numbers)} workflows"
        )
    if not len(times_ms):
        return
    if not np.isfinite(times_ms).all() or times_ms[0] < last_ms or (np.diff(times_ms) < 0).any():
        raise WorkloadError(f"the arrivals go back in time, after {last_ms:,.3f} ms or later")
    if numbers.min() < 0 or numbers.max() >= workflows:
        raise WorkloadError(
            f"the arrivals name workflow {int(numbers.max())} of {workflows}, counted from 0"
        )
