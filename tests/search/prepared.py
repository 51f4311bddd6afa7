"""A stage asked about so often that nothing is left to be prepared."""

from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.sweeping import Sweep
from scheduler.search.tail import Tail

PIECES = 100  # more than any sweep is done in


def prepared(planner: Planner, request: PlanRequest) -> Tail:
    """What is planned after the stage, prepared as far as it will ever be."""
    tail = planner.stage(request).tail
    for _ in range(PIECES):
        tail.carry_on()
    return tail


def swept(sweep: Sweep) -> Sweep:
    """The same sweep, at its end."""
    for _ in range(PIECES):
        sweep.carry_on()
    assert sweep.swept is not None
    return sweep
