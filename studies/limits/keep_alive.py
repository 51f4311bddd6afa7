"""Cost of having a process ready for each run of a list: idle times and starts.

The runs are given, of one function under one share, so a process of either can take any of them. A
run takes a process that has been idle since its last run, or a new one, which is paid from the
begin of its start. All times count in ms of one process.

`least_ready_ms` knows all runs beforehand. It is a bound for all ways to keep and start processes
for these runs. `kept_ready_ms` ends a process that has been idle for a fixed time, and knows
nothing of what comes; but its starts end in time, as if each run were announced one start before,
so it counts their cost and not the waits. An idle time equal to the start is ski rental: it pays at
most twice the least cost.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import inf


def least_ready_ms(
    runs: Sequence[tuple[float, float]], start_ms: float, *, ready_at_ms: float | None = None
) -> float:
    """Return the least cost.

    A run takes the process that became idle last, or a new one if that has been idle for longer
    than a start takes. No exchange of the processes of two runs is cheaper, because the cost of a
    gap, at most that of a start, is concave.

    Args:
        runs: begin and end of each run, ms, ordered by begin.
        start_ms: duration of a start.
        ready_at_ms: time at which any number of processes is ready, before the first run. Default:
            there is none.
    """
    return _ready_ms(runs, start_ms, ready_at_ms, longest_ms=start_ms, unused_ms=0.0)


def kept_ready_ms(
    runs: Sequence[tuple[float, float]],
    start_ms: float,
    keep_ms: float,
    *,
    ready_at_ms: float | None = None,
) -> float:
    """Return the cost if a process ends after an idle time of ``keep_ms``.

    The other arguments are those of `least_ready_ms`. Of the processes that are ready at first,
    those count that get a run.
    """
    return _ready_ms(runs, start_ms, ready_at_ms, longest_ms=keep_ms, unused_ms=keep_ms)


def _ready_ms(
    runs: Sequence[tuple[float, float]],
    start_ms: float,
    ready_at_ms: float | None,
    *,
    longest_ms: float,
    unused_ms: float,
) -> float:
    """Return the cost if runs take processes that have been idle for at most ``longest_ms``.

    ``unused_ms`` is what a process costs after its last run.
    """
    cost_ms = 0.0
    idle: list[float] = []  # ends of the last runs of idle processes, ascending
    ends: list[float] = []  # a heap: ends of the runs under way
    for begin_ms, end_ms in runs:
        while ends and ends[0] <= begin_ms:
            idle.append(heappop(ends))
        if idle and begin_ms - idle[-1] <= longest_ms:
            cost_ms += begin_ms - idle.pop()
        else:
            cost_ms += unused_ms * len(idle)
            idle.clear()
            first_ms = inf if ready_at_ms is None else begin_ms - ready_at_ms
            cost_ms += first_ms if first_ms <= longest_ms else start_ms
        heappush(ends, end_ms)
    return cost_ms + unused_ms * (len(idle) + len(ends))


def by_share(
    runs: Iterable[tuple[tuple[str, int, int], float, float]],
) -> dict[tuple[str, int, int], list[tuple[float, float]]]:
    """Group runs by function, vCPUs and percent, each ordered by begin.

    Args:
        runs: function, vCPUs and percent; begin and end, ms.
    """
    grouped: dict[tuple[str, int, int], list[tuple[float, float]]] = {}
    for share, begin_ms, end_ms in runs:
        grouped.setdefault(share, []).append((begin_ms, end_ms))
    return {share: sorted(listed) for share, listed in grouped.items()}
