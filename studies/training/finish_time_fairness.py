"""Shares of time by which the worst finish-time fairness is as small as it can be.

A job's fairness is its whole time under the shares over the time that it would take on its equal
part of the cluster. For a given limit each job needs a certain share, so a bisection finds the
smallest limit that the GPUs allow. Where a job that always runs sets the limit, GPUs are left over:
the other jobs get part of them, in proportion to what they lack.
"""

from collections.abc import Mapping, Sequence

from studies.training.cluster import TrainingCluster
from studies.training.job import PredictableJob

_BISECTIONS = 60
_FAIRNESS_MAX = 1e9


class FairShares:
    """Time of each job on its equal part of the cluster, whose size changes."""

    def __init__(self) -> None:
        self._isolated_s: dict[str, float] = {}  # time of the steps so far on an equal part
        self._remaining_s: dict[str, float] = {}
        self._parts_ratio: dict[str, float] = {}

    def shares(
        self,
        now_s: float,
        jobs: Sequence[PredictableJob],
        cluster: TrainingCluster,
        parts_ratio: Mapping[str, float],
    ) -> Mapping[str, float]:
        """Bisect the worst fairness.

        Args:
            now_s: time of the decision.
            jobs: active jobs.
            cluster: nodes and GPUs.
            parts_ratio: share of time that a job has on its equal part from now on.
        """
        whole_s = {}
        for job in jobs:
            name, remaining_s = job.name, job.remaining_s
            part_ratio = parts_ratio[name]
            done_s = self._remaining_s.get(name, remaining_s) - remaining_s
            before_s = done_s / self._parts_ratio.get(name, part_ratio)
            self._isolated_s[name] = self._isolated_s.get(name, 0.0) + before_s
            self._remaining_s[name] = remaining_s
            self._parts_ratio[name] = part_ratio
            whole_s[name] = self._isolated_s[name] + remaining_s / part_ratio

        def needed_ratio(job: PredictableJob, fairness_ratio: float) -> float:
            budget_s = fairness_ratio * whole_s[job.name] - (now_s - job.submit_s)
            return job.remaining_s / budget_s if budget_s > 0 else float("inf")

        low_ratio, high_ratio = 0.0, _FAIRNESS_MAX
        for _ in range(_BISECTIONS):
            middle_ratio = (low_ratio * high_ratio) ** 0.5 if low_ratio else high_ratio / 2
            needs = [needed_ratio(job, middle_ratio) for job in jobs]
            if max(needs) <= 1.0 and _gpus(jobs, needs) <= cluster.gpus:
                high_ratio = middle_ratio
            else:
                low_ratio = middle_ratio
        needs = [needed_ratio(job, high_ratio) for job in jobs]
        free_gpus = cluster.gpus - _gpus(jobs, needs)
        lacking_gpus = _gpus(jobs, [1.0 - need for need in needs])
        part_ratio = min(1.0, free_gpus / lacking_gpus) if lacking_gpus > 0 else 0.0
        return {
            job.name: need + part_ratio * (1.0 - need)
            for job, need in zip(jobs, needs, strict=True)
        }


def _gpus(jobs: Sequence[PredictableJob], shares_ratio: Sequence[float]) -> float:
    return sum(job.gpus * ratio for job, ratio in zip(jobs, shares_ratio, strict=True))
