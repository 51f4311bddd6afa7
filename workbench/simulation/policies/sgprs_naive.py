"""Baseline of SGPRS: each task is bound to one context, in turn.

Source: the comparison in SGPRS (DATE 2024). The pool is the same; a task's stages run in its
context alone, in the order of their readiness.
"""

from collections.abc import Sequence
from typing import ClassVar

from workbench.simulation.policies.sgprs import context_sizes
from workbench.simulation.policies.station_queues import StationQueues
from workbench.simulation.stations.policy import StationSize
from workbench.simulation.stations.station import StageTask


class SgprsNaive(StationQueues):
    """Binds workflow i to context i modulo the number of contexts."""

    name: ClassVar[str] = "sgprs-naive"

    def sizes(self) -> Sequence[StationSize]:
        """Return the same contexts as SGPRS has."""
        return context_sizes(self.context)

    def station_number(self, task: StageTask) -> int:
        """Return the workflow's context."""
        return task.workflow % len(self.stations)
