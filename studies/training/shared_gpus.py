"""GPUs with room for a second job, and the mean completion time of two jobs that share."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from studies.training.cluster import TrainingCluster
from studies.training.job import JobPlacement, SharableJob

JOBS_PER_GPU = 2


class SharedGpus:
    """Jobs by GPU, for policies that put at most two on one."""

    def __init__(
        self,
        cluster: TrainingCluster,
        placements: Mapping[str, JobPlacement],
        jobs: Mapping[str, SharableJob],
    ) -> None:
        self._cluster = cluster
        self._holders: dict[int, list[SharableJob]] = defaultdict(list)
        for name, placement in placements.items():
            self.add(jobs[name], placement.gpus)

    def add(self, job: SharableJob, gpus: Sequence[int]) -> None:
        """Record a placement."""
        for gpu in gpus:
            self._holders[gpu].append(job)

    def free(self, node: int) -> list[int]:
        """Return the GPUs of a node without any job."""
        return [gpu for gpu in self._cluster.gpus_of(node) if not self._holders[gpu]]

    def single(self, node: int) -> list[tuple[int, SharableJob]]:
        """Return the GPUs of a node with one job, and that job."""
        return [
            (gpu, self._holders[gpu][0])
            for gpu in self._cluster.gpus_of(node)
            if len(self._holders[gpu]) == 1
        ]

    def nodes_by_jobs(self) -> list[int]:
        """Return the nodes, first those with fewest jobs."""
        return sorted(range(len(self._cluster.nodes)), key=self._jobs_of)

    def nodes_by_fit(self, gpus: int) -> list[int]:
        """Return the nodes, first the one on which so many free GPUs leave fewest over."""

        def fit(node: int) -> tuple[int, int, int]:
            free = len(self.free(node))
            size = self._cluster.nodes[node].gpus
            return (free - gpus if free >= gpus else size, -free, self._jobs_of(node))

        return sorted(range(len(self._cluster.nodes)), key=fit)

    def _jobs_of(self, node: int) -> int:
        gpus = self._cluster.gpus_of(node)
        return len({job.name for gpu in gpus for job in self._holders[gpu]})


def mean_together_s(new: SharableJob, running: SharableJob) -> float:
    """Return the mean completion time of two jobs that share their GPUs from now on.

    The first to end leaves the other one alone.
    """
    new_ratio, running_ratio = new.slowdown_ratio(running), running.slowdown_ratio(new)
    new_s, running_s = new.remaining_s, running.remaining_s
    if new_ratio * new_s < running_ratio * running_s:
        new_ratio, running_ratio = running_ratio, new_ratio
        new_s, running_s = running_s, new_s
    return new_s / 2 + (1 - 1 / (2 * new_ratio)) * running_ratio * running_s


def mean_sequential_s(new: SharableJob, running: SharableJob) -> float:
    """Return the mean completion time if the new job starts when the running one has ended."""
    return running.remaining_s + new.remaining_s / 2
