"""Waits between stages: from the end of a stage's last predecessor until the stage runs.

That is the time of the client that creates the pods, of kube-scheduler and of the pod's start.
Profiles do not have it, but requests pay it at each later stage, so plans hold it back.
"""

from collections import deque
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from statistics import median

from scheduler.model.documents import Workflow

OBSERVED = 32  # last waits of a stage; their median ignores the few of a cluster that was full


@dataclass(slots=True)
class _Waits:
    """Last waits of one stage, in ms."""

    last_ms: deque[float] = field(default_factory=lambda: deque(maxlen=OBSERVED))
    median_ms: float = 0.0


class StageWaits:
    """Observed waits of the stages of all workflows."""

    def __init__(self) -> None:
        self._stages: dict[tuple[str, str], dict[str, _Waits]] = {}  # by namespace and workflow

    def record(self, namespace: str, workflow: str, stage: str, wait_s: float) -> None:
        """Record a wait; a stage that ran before its predecessors ended did not wait."""
        waits = self._stages.setdefault((namespace, workflow), {}).setdefault(stage, _Waits())
        waits.last_ms.append(1000.0 * max(0.0, wait_s))
        waits.median_ms = median(waits.last_ms)

    def remove(self, namespace: str, workflow: str) -> None:
        """Remove the waits of a deleted workflow."""
        self._stages.pop((namespace, workflow), None)

    def later_ms(self, workflow: Workflow, stage: str) -> float:
        """Sum of the median waits after a stage, on the path to an end where it is the largest."""
        waits = self._stages.get(workflow.key)
        if waits is None:
            return 0.0
        after = {later.name: later.after for later in workflow.spec.stages}
        longest_ms = {stage: 0.0}
        for name in TopologicalSorter(after).static_order():
            before_ms = [longest_ms[before] for before in after[name] if before in longest_ms]
            if before_ms:
                wait_ms = waits[name].median_ms if name in waits else 0.0
                longest_ms[name] = max(before_ms) + wait_ms
        return max(longest_ms.values())
