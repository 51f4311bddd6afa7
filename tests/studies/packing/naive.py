"""Fragmentation as its paper says it: slow, obvious, and compared with the kernels of FGD."""

from collections.abc import Sequence
from dataclasses import dataclass

from studies.packing.trace import TracePod


@dataclass(frozen=True)
class FreeNode:
    cpu_milli: int
    model: str
    percents: tuple[int, ...]  # free on each GPU

    def holds(self, task: TracePod) -> bool:
        if self.cpu_milli < task.cpu_milli or (task.models and self.model not in task.models):
            return False
        enough = [percent for percent in self.percents if percent >= task.gpu_percent]
        return len(enough) >= task.gpus

    def fragment_for(self, task: TracePod) -> int:
        """The free share that this one task could not use."""
        if task.gpus == 0 or not self.holds(task):
            return sum(self.percents)
        return sum(percent for percent in self.percents if percent < task.gpu_percent)

    def fragment(self, workload: Sequence[TracePod]) -> int:
        return sum(self.fragment_for(task) for task in workload)

    def outcomes(self, task: TracePod) -> dict[int | None, "FreeNode"]:
        """The node after it takes the task, by the GPU for a task of one."""
        cpu_milli = self.cpu_milli - task.cpu_milli
        if task.gpus != 1:
            remaining, missing = [], task.gpus
            for percent in self.percents:
                is_granted = missing > 0 and percent == 100
                remaining.append(0 if is_granted else percent)
                missing -= is_granted
            return {None: FreeNode(cpu_milli, self.model, tuple(remaining))}
        return {
            i: FreeNode(
                cpu_milli,
                self.model,
                (*self.percents[:i], percent - task.gpu_percent, *self.percents[i + 1 :]),
            )
            for i, percent in enumerate(self.percents)
            if percent >= task.gpu_percent
        }
