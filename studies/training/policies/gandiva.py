"""Gandiva: time slices, and pairs of jobs on the same GPUs where the cluster is too small.

Source: Xiao et al., OSDI 2018, in Gavel's form. While all jobs fit, each runs alone. Otherwise jobs
of equal numbers of GPUs are paired at random, and all pairs and single jobs get equal GPU time. A
pair that is slower than its jobs one after the other is dissolved and not tried again.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from studies.training.cluster import TrainingCluster
from studies.training.job import ThroughputJob
from studies.training.time_shares import TimeShareParameters, TimeSharePolicy


class Gandiva(TimeSharePolicy):
    """Equal GPU time, random pairs."""

    def __init__(self, parameters: TimeShareParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        self._partners: dict[str, str] = {}
        self._slow: set[frozenset[str]] = set()

    def time_shares(
        self, now_s: float, jobs: Sequence[ThroughputJob], cluster: TrainingCluster
    ) -> Mapping[str, float]:
        """Pair jobs if there are too many, and give all the same share."""
        names = {job.name for job in jobs}
        if sum(job.gpus for job in jobs) <= cluster.gpus:
            self._partners = {}
        else:
            self._partners = {a: b for a, b in self._partners.items() if {a, b} <= names}
            self._pair_at_random(jobs)
        slots = len(jobs) - len(self._partners) // 2
        return {job.name: min(1.0, cluster.gpus / (slots * job.gpus)) for job in jobs}

    def partner_of(self, name: str) -> str | None:
        """Return the other job of a pair."""
        return self._partners.get(name)

    def _pair_at_random(self, jobs: Sequence[ThroughputJob]) -> None:
        waiting: dict[int, list[ThroughputJob]] = defaultdict(list)
        for job in jobs:
            if job.name not in self._partners:
                waiting[job.gpus].append(job)
        for group in waiting.values():
            order = [group[index] for index in self._random.permutation(len(group))]
            for first, second in zip(order[::2], order[1::2], strict=False):
                pair = frozenset((first.name, second.name))
                if pair not in self._slow and _packed_ratio(first, second) >= 1.0:
                    self._partners[first.name] = second.name
                    self._partners[second.name] = first.name
                else:
                    self._slow.add(pair)


def _packed_ratio(first: ThroughputJob, second: ThroughputJob) -> float:
    """Return the sum of throughputs together over those alone."""
    return (
        first.throughput_rps(second) / first.throughput_rps()
        + second.throughput_rps(first) / second.throughput_rps()
    )
