"""A stage that waits for a station, or runs there: the loop's own form of it."""

from dataclasses import dataclass

from workbench.simulation.loop import Job
from workbench.simulation.stations.station import StageTask
from workbench.simulation.workflow_state import StageQueue


@dataclass(slots=True, eq=False, kw_only=True)
class QueuedTask(StageTask):
    """A stage with what the loop knows of it.

    Attributes:
        is_waiting: true until the policy returns the stage.
    """

    queue: StageQueue
    job: Job
    is_waiting: bool = True
