"""Reduction of a failing run to few incidents, by delta debugging."""

from collections.abc import Callable, Sequence

from tests.campaign.incidents import Incident

RUNS_MAX = 400


def shrink(
    incidents: Sequence[Incident], fails: Callable[[Sequence[Incident]], bool]
) -> list[Incident]:
    """Return a part of the incidents that still fails, and from which none can be left out.

    After `RUNS_MAX` runs, the smallest so far.
    """
    current = list(incidents)
    size = max(1, len(current) // 2)
    runs = 0
    while True:
        is_smaller = False
        begin = 0
        while begin < len(current) and runs < RUNS_MAX:
            candidate = current[:begin] + current[begin + size :]
            runs += 1
            if fails(candidate):
                current, is_smaller = candidate, True
            else:
                begin += size
        if runs >= RUNS_MAX or (size == 1 and not is_smaller):
            return current
        size = max(1, size // 2)
