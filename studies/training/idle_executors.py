"""Idle executors of jobs of tasks: what policies for graphs of tasks have in common.

An executor with a task stays. Each idle one, those that a job holds first, goes to the job that a
policy chooses among those with a task that no executor has yet. Some policies count only tasks that
may start; under the others idle executors wait with a job for stages whose parents still run.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from studies.training.job import DagJob, JobPlacement
from studies.training.policy import JobsState, Placements, TrainingPolicy


class IdleExecutor(NamedTuple):
    """An executor without a task, and the jobs that may get it.

    Attributes:
        candidates: jobs with a task that has no executor, in the order of the workload.
        counts: number of executors of each active job.
        holder: job that holds the executor; it begins there without delay.
        executors: number of all executors.
    """

    candidates: Sequence[DagJob]
    counts: Mapping[str, int]
    holder: str | None
    executors: int

    @property
    def holding_job(self) -> DagJob | None:
        """The holder, if it is a candidate."""
        return next((job for job in self.candidates if job.name == self.holder), None)


class ExecutorPolicy(TrainingPolicy[DagJob]):
    """One idle executor after the other.

    Attributes:
        waits: true if tasks whose parents have not ended count, too.
    """

    needs = (DagJob,)
    waits: ClassVar[bool] = False

    def decide(self, state: JobsState[DagJob]) -> Placements:
        """Assign idle executors."""
        jobs, cluster, placements = state.jobs, state.cluster, state.placements
        holders = {gpu: name for name, placement in placements.items() for gpu in placement.gpus}
        gpus = {job.name: sorted(job.busy_gpus) for job in jobs}
        busy = {gpu for executors in gpus.values() for gpu in executors}
        tasks = Counter(
            {job.name: job.waiting_tasks if self.waits else job.ready_tasks for job in jobs}
        )
        idle = (executor for executor in range(cluster.gpus) if executor not in busy)
        for executor in sorted(idle, key=lambda executor: executor not in holders):
            candidates = [job for job in jobs if tasks[job.name] > 0]
            counts = {job.name: len(gpus[job.name]) for job in jobs}
            holder = holders.get(executor)
            job = self.choose(IdleExecutor(candidates, counts, holder, cluster.gpus))
            if job is not None:
                gpus[job.name].append(executor)
                tasks[job.name] -= 1
        return {
            name: JobPlacement(tuple(executors)) for name, executors in gpus.items() if executors
        }

    @abstractmethod
    def choose(self, idle: IdleExecutor) -> DagJob | None:
        """Return the job of an idle executor; None: no job."""
