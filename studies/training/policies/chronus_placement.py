"""Placement by speed: a job is split over nodes in the way that loses least.

Four orders of the jobs are tried: running jobs first, where they are; large jobs first; those that
lose most first; the order of urgency. The one with the largest sum of relative speeds is taken.
"""

from collections.abc import Collection, Sequence

from studies.training.cluster import TrainingCluster
from studies.training.free_gpus import FreeGpus
from studies.training.job import JobPlacement, SpreadJob
from studies.training.ordered import fitting_jobs
from studies.training.policy import Placements

_ATTEMPTS = 4


def place_by_speed(
    ordered: Sequence[SpreadJob],
    reserved: Collection[str],
    cluster: TrainingCluster,
    placements: Placements,
) -> Placements:
    """Choose the jobs that fit, and place them.

    Args:
        ordered: jobs, the most urgent one first.
        reserved: names of jobs that may not be slowed for others; they come first.
        cluster: nodes and GPUs.
        placements: current placements.
    """
    fitting = fitting_jobs(ordered, cluster.gpus)
    urgent = [job for job in fitting if job.name in reserved]
    others = [job for job in fitting if job.name not in reserved]
    best: Placements = {}
    best_score = (-1.0, -1.0)
    limit_score = tuple(
        sum(max(j.spread_speeds.values()) for j in part) for part in (urgent, others)
    )
    for attempt in range(_ATTEMPTS):
        stay = attempt == 0
        decided = {job.name: placements[job.name] for job in fitting if stay and job.running}
        free = FreeGpus(cluster, decided.values())
        scores = []
        for part in (urgent, others):
            score = 0.0
            for job in _attempt_order(part, attempt):
                if job.name not in decided:
                    gpus = _fastest(job, free, len(cluster.nodes))
                    if not gpus:
                        continue
                    decided[job.name] = JobPlacement(gpus)
                score += _speed_ratio(job, decided[job.name], cluster)
            scores.append(score)
        if (scores[0], scores[1]) > best_score:
            best, best_score = decided, (scores[0], scores[1])
        if best_score >= limit_score:
            break
    return best


def _speed_ratio(job: SpreadJob, placement: JobPlacement, cluster: TrainingCluster) -> float:
    return job.speed_ratio(len({cluster.node_of[gpu] for gpu in placement.gpus}))


def _attempt_order(jobs: Sequence[SpreadJob], attempt: int) -> Sequence[SpreadJob]:
    if attempt == 1:
        return sorted(jobs, key=lambda job: -job.gpus)
    if attempt == 2:  # noqa: PLR2004 - the third order
        return sorted(jobs, key=lambda job: (min(job.spread_speeds.values()), -job.gpus))
    return jobs


def _fastest(job: SpreadJob, free: FreeGpus, nodes: int) -> tuple[int, ...]:
    """Take as equal parts as can be on the number of nodes with the best speed; empty: none fit."""
    by_speed = sorted(job.spread_speeds, key=lambda count: (-job.spread_speeds[count], count))
    for count in by_speed:
        parts = _parts(job.gpus, count, free, nodes)
        if parts:
            return tuple(gpu for node, part in parts.items() for gpu in free.take(node, part))
    return ()


def _parts(gpus: int, count: int, free: FreeGpus, nodes: int) -> dict[int, int]:
    """Return the GPUs by node, on nodes that fit best; empty: there are too few such nodes."""
    size, larger = divmod(gpus, count)
    parts: dict[int, int] = {}
    for part in [size + 1] * larger + [size] * (count - larger):
        room = (node for node in range(nodes) if node not in parts and free.of_node(node) >= part)
        node = min(room, key=free.of_node, default=None)
        if node is None or not part:
            return {}
        parts[node] = part
    return parts
