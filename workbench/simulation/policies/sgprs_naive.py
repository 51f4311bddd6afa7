"""Baseline of SGPRS: each task is bound to one context, in turn.

Source: the comparison in SGPRS (DATE 2024). The pool is the same; a task's stages run in its
context alone, in the order of their readiness.
"""

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from workbench.simulation.policies.sgprs import context_sizes
from workbench.simulation.policy import PolicyContext
from workbench.simulation.stations.policy import StationPolicy, StationSize
from workbench.simulation.stations.station import StageTask, Station


class SgprsNaive(StationPolicy):
    """Binds workflow i to context i modulo the number of contexts."""

    name: ClassVar[str] = "sgprs-naive"

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._queues: dict[int, deque[StageTask]] = {}

    def sizes(self) -> Sequence[StationSize]:
        """Return the same contexts as SGPRS has."""
        return context_sizes(self.context)

    def ready(self, task: StageTask, now_ms: float) -> None:  # noqa: ARG002 - its contract
        """Join the queue of the workflow's context."""
        number = task.workflow % len(self.stations)
        self._queues.setdefault(number, deque()).append(task)

    def next_task(self, station: Station, now_ms: float) -> StageTask | None:  # noqa: ARG002
        """Return the oldest of the context's queue."""
        queue = self._queues.get(station.number)
        return queue.popleft() if queue else None
