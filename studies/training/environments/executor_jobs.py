"""Jobs of the environment ``executors``: stages of equal tasks in a graph, and made-up ones."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from studies.training.job import DagJob

_STAGES = (4, 13)  # of a generated job, from and below
_SIZES = (2, 5, 10, 20, 50, 80, 100)  # of the data of a job: tasks in proportion, evenly drawn
_TASKS_PER_SIZE_LOG, _TASKS_SPREAD, _TASKS_MAX = -0.7, 1.1, 1000
_TASK_LOG, _TASK_SPREAD = 0.2, 0.8  # of the logarithms of seconds, by job and by stage
_PARENT_RATIO = 0.35  # probability that an earlier stage is a parent


class TaskStage(NamedTuple):
    """Equal tasks that may start when all parents have ended."""

    tasks: int
    task_s: float
    parents: tuple[int, ...]  # numbers of earlier stages


@dataclass(slots=True)
class RunningTask:
    """A task on an executor."""

    stage: int
    begin_s: float
    end_s: float


@dataclass(slots=True, kw_only=True, eq=False)
class ExecutorJob(DagJob):
    """A job and what is left of its stages.

    Attributes:
        stages: stages, parents before children.
        waiting_counts: number of tasks by stage that have not started.
        open_counts: number of tasks by stage that have not ended.
        running_tasks: running tasks by executor.
        paths_s: longest path from the beginning of each stage, with one task a stage.
    """

    stages: Sequence[TaskStage]
    waiting_counts: list[int] = field(init=False)
    open_counts: list[int] = field(init=False)
    running_tasks: dict[int, RunningTask] = field(default_factory=dict)
    paths_s: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.waiting_counts = [stage.tasks for stage in self.stages]
        self.open_counts = list(self.waiting_counts)
        self.paths_s = [stage.task_s for stage in self.stages]
        for child in reversed(range(len(self.stages))):
            for parent in self.stages[child].parents:
                path_s = self.stages[parent].task_s + self.paths_s[child]
                self.paths_s[parent] = max(self.paths_s[parent], path_s)

    @property
    def busy_gpus(self) -> frozenset[int]:
        """Executors with a task."""
        return frozenset(self.running_tasks)

    @property
    def ready_tasks(self) -> int:
        """Tasks of stages without open parents."""
        return sum(self.waiting_counts[stage] for stage in self._ready())

    @property
    def waiting_tasks(self) -> int:
        """Tasks that have not started."""
        return sum(self.waiting_counts)

    @property
    def open_tasks(self) -> int:
        """Tasks that have not ended."""
        return sum(self.open_counts)

    @property
    def remaining_work_s(self) -> float:
        """Time of these tasks on one executor."""
        tasks = zip(self.open_counts, self.stages, strict=True)
        return sum(count * stage.task_s for count, stage in tasks)

    @property
    def critical_path_s(self) -> float:
        """Longest path through stages that have not ended."""
        paths = zip(self.open_counts, self.paths_s, strict=True)
        return max((path_s for count, path_s in paths if count), default=0.0)

    @property
    def remaining_s(self) -> float:
        """Time on as many executors as there are ready tasks, but not less than the path."""
        executors = max(1, self.ready_tasks + len(self.running_tasks))
        return max(self.critical_path_s, self.remaining_work_s / executors)

    def start_task(self, executor: int, now_s: float, delay_s: float) -> bool:
        """Start a task of the ready stage with the longest path; False: none is ready."""
        stage = max(self._ready(), key=lambda number: self.paths_s[number], default=None)
        if stage is None:
            return False
        self.waiting_counts[stage] -= 1
        end_s = now_s + delay_s + self.stages[stage].task_s
        self.running_tasks[executor] = RunningTask(stage, now_s, end_s)
        return True

    def end_task(self, executor: int) -> None:
        """Count the end of an executor's task."""
        self.open_counts[self.running_tasks.pop(executor).stage] -= 1

    def _ready(self) -> list[int]:
        return [
            number
            for number, stage in enumerate(self.stages)
            if self.waiting_counts[number]
            and not any(self.open_counts[parent] for parent in stage.parents)
        ]


def generated_stages(random: np.random.Generator) -> tuple[TaskStage, ...]:
    """Return a graph of stages whose tasks differ by orders of magnitude in number and time."""
    count = int(random.integers(*_STAGES))
    size = float(random.choice(_SIZES))
    tasks = size * random.lognormal(_TASKS_PER_SIZE_LOG, _TASKS_SPREAD, count)
    job_s = random.lognormal(_TASK_LOG, _TASK_SPREAD)
    tasks_s = job_s * random.lognormal(0.0, _TASK_SPREAD, count)
    stages = []
    for number in range(count):
        parents = np.flatnonzero(random.random(number) < _PARENT_RATIO)
        stages.append(
            TaskStage(
                int(np.clip(tasks[number], 1, _TASKS_MAX)),
                float(tasks_s[number]),
                tuple(int(parent) for parent in parents),
            )
        )
    return tuple(stages)
