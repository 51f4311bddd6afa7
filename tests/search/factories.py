"""A stage asked about so often that nothing is left to be prepared."""

from scheduler.search.downstream import Tail
from scheduler.search.frontier_refinement import RefinementPass
from scheduler.search.planner import Planner, PlanRequest

PIECES = 100  # more than any sweep is done in


def prepared(planner: Planner, request: PlanRequest) -> Tail:
    """What is planned after the stage, prepared as far as it will ever be."""
    tail = planner.stage(request).tail
    for _ in range(PIECES):
        tail.carry_on()
    return tail


def swept(sweep: RefinementPass) -> RefinementPass:
    """The same sweep, at its end."""
    for _ in range(PIECES):
        sweep.carry_on()
    assert sweep.swept is not None
    return sweep
