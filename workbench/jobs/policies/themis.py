"""Themis: the worst finish-time fairness is as small as it can be.

Source: Mahajan et al., NSDI 2020, in Gavel's form without an auction. A job's fairness is its whole
time under the shares over the time that it would take on its equal part of the cluster. For a given
limit each job needs a certain share, so a bisection finds the smallest limit that the GPUs allow.
"""

from collections.abc import Mapping, Sequence

from workbench.jobs.cluster import TrainingCluster
from workbench.jobs.job import ThroughputJob
from workbench.jobs.time_shares import TimeShareParameters, TimeSharePolicy

_BISECTIONS = 60
_FAIRNESS_MAX = 1e9


class Themis(TimeSharePolicy):
    """Shares of the smallest worst fairness."""

    def __init__(self, parameters: TimeShareParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._isolated_s: dict[str, float] = {}  # time of the steps so far on an equal part
        self._remaining_s: dict[str, float] = {}
        self._parts_ratio: dict[str, float] = {}

    def time_shares(
        self, now_s: float, jobs: Sequence[ThroughputJob], cluster: TrainingCluster
    ) -> Mapping[str, float]:
        """Bisect the worst fairness."""
        whole_s = {}
        for job in jobs:
            name, remaining_s = job.name, job.remaining_s
            part_ratio = min(1.0, cluster.gpus / (len(jobs) * job.gpus))
            done_s = self._remaining_s.get(name, remaining_s) - remaining_s
            before_s = done_s / self._parts_ratio.get(name, part_ratio)
            self._isolated_s[name] = self._isolated_s.get(name, 0.0) + before_s
            self._remaining_s[name] = remaining_s
            self._parts_ratio[name] = part_ratio
            whole_s[name] = self._isolated_s[name] + remaining_s / part_ratio

        def needed_ratio(job: ThroughputJob, fairness_ratio: float) -> float:
            left_s = fairness_ratio * whole_s[job.name] - (now_s - job.submit_s)
            return job.remaining_s / left_s if left_s > 0 else float("inf")

        low_ratio, high_ratio = 0.0, _FAIRNESS_MAX
        for _ in range(_BISECTIONS):
            middle_ratio = (low_ratio * high_ratio) ** 0.5 if low_ratio else high_ratio / 2
            needs = [needed_ratio(job, middle_ratio) for job in jobs]
            gpus = sum(need * job.gpus for need, job in zip(needs, jobs, strict=True))
            if max(needs) <= 1.0 and gpus <= cluster.gpus:
                high_ratio = middle_ratio
            else:
                low_ratio = middle_ratio
        return {job.name: needed_ratio(job, high_ratio) for job in jobs}
