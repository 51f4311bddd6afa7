"""Idle executors of jobs of tasks: what policies for graphs of tasks have in common.

An executor with a task stays. Each idle one goes to the job that a policy chooses among those with
a ready task that no executor has yet.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence

from workbench.jobs.cluster import TrainingCluster
from workbench.jobs.job import DagJob, JobPlacement
from workbench.jobs.policy import Placements, TrainingPolicy


class ExecutorPolicy(TrainingPolicy[DagJob]):
    """One idle executor after the other."""

    needs = (DagJob,)

    def decide(
        self,
        now_s: float,  # noqa: ARG002
        jobs: Sequence[DagJob],
        cluster: TrainingCluster,
        placements: Placements,
    ) -> Placements:
        """Assign idle executors; one whose job has a ready task is asked for first."""
        holders = {gpu: name for name, held in placements.items() for gpu in held.gpus}
        gpus = {job.name: sorted(job.busy_gpus) for job in jobs}
        busy = {gpu for held in gpus.values() for gpu in held}
        ready = Counter({job.name: job.ready_tasks for job in jobs})
        for executor in range(cluster.gpus):
            candidates = [job for job in jobs if ready[job.name] > 0]
            if executor in busy or not candidates:
                continue
            counts = {job.name: len(gpus[job.name]) for job in jobs}
            job = self.choose(candidates, counts, holders.get(executor), cluster.gpus)
            gpus[job.name].append(executor)
            ready[job.name] -= 1
        return {name: JobPlacement(tuple(held)) for name, held in gpus.items() if held}

    @abstractmethod
    def choose(
        self,
        candidates: Sequence[DagJob],
        counts: dict[str, int],
        holder: str | None,
        executors: int,
    ) -> DagJob:
        """Return the job of an idle executor.

        Args:
            candidates: jobs with a ready task that has no executor, in the order of the workload.
            counts: executors of all active jobs.
            holder: job for which the executor ran before; it begins there without delay.
            executors: number of all executors.
        """
