"""AntMan: guaranteed jobs get whole GPUs, opportunistic ones share them.

Source: Xiao et al., "AntMan", OSDI 2020, in the form of Muri's public simulator. No job is stopped
or moved. A guaranteed job takes GPUs of one node that no guaranteed job holds; if no node has
enough, it reserves the largest part that a node has and waits there for more. A job larger than a
node takes whole nodes. An opportunistic job takes the least used GPUs without another opportunistic
job, all at once.
"""

from studies.training.cluster import TrainingCluster
from studies.training.job import ClassedJob, JobPlacement
from studies.training.policy import JobsState, Placements, RunParameters, TrainingPolicy


class AntMan(TrainingPolicy[ClassedJob]):
    """Two classes, first guaranteed jobs, each by arrival."""

    needs = (ClassedJob,)

    def __init__(self, parameters: RunParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._reserved: dict[str, tuple[int, ...]] = {}  # GPUs that waiting jobs hold

    def decide(self, state: JobsState[ClassedJob]) -> Placements:
        """Place waiting jobs; those that run stay."""
        jobs, cluster, placements = state.jobs, state.cluster, state.placements
        decided = dict(placements)
        ordered = sorted(jobs, key=lambda job: job.submit_s)
        used_gpus = {gpu for job in jobs if job.guaranteed for gpu in job.placement.gpus}
        used_gpus.update(gpu for gpus in self._reserved.values() for gpu in gpus)
        for job in ordered:
            if job.guaranteed and not job.running:
                gpus = self._guaranteed_gpus(job, cluster, used_gpus)
                used_gpus.update(gpus)
                if len(gpus) == job.gpus:
                    self._reserved.pop(job.name, None)
                    decided[job.name] = JobPlacement(gpus)
        shared = {gpu for job in jobs if not job.guaranteed for gpu in job.placement.gpus}
        for job in ordered:
            if not job.guaranteed and not job.running:
                free = [gpu for gpu in range(cluster.gpus) if gpu not in shared]
                free.sort(key=lambda gpu: gpu in used_gpus)
                if len(free) >= job.gpus:
                    gpus = tuple(free[: job.gpus])
                    shared.update(gpus)
                    decided[job.name] = JobPlacement(gpus)
        return decided

    def _guaranteed_gpus(
        self, job: ClassedJob, cluster: TrainingCluster, used_gpus: set[int]
    ) -> tuple[int, ...]:
        """Return GPUs for the job, or fewer, which it then has reserved."""
        reserved = self._reserved.get(job.name, ())
        available = [
            tuple(gpu for gpu in cluster.gpus_of(node) if gpu not in used_gpus)
            for node in range(len(cluster.nodes))
        ]
        if job.gpus > max(node.gpus for node in cluster.nodes):
            whole = [
                gpus
                for gpus, node in zip(available, cluster.nodes, strict=True)
                if len(gpus) == node.gpus
            ]
            selected = reserved + tuple(gpu for gpus in whole for gpu in gpus)
        elif reserved:
            selected = reserved + available[cluster.node_of[reserved[0]]]
        else:
            fitting = (gpus for gpus in available if len(gpus) >= job.gpus)
            selected = next(fitting, max(available, key=len))
        self._reserved[job.name] = selected[: job.gpus]
        return selected[: job.gpus]
