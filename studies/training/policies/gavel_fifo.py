"""First in, first out in rounds of time shares, as in the public simulator of Gavel.

Admitted jobs keep a full share until they end. For each ended job the next waiting one is admitted
if it fits with those admitted jobs that arrived before the ended one; later ones do not count.
Then waiting jobs are admitted in order until one does not fit. So more GPUs may be allocated than
there are, and jobs take turns.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from studies.training.cluster import TrainingCluster
from studies.training.job import ThroughputJob
from studies.training.time_shares import TimeShareParameters, TimeSharePolicy


class GavelFifo(TimeSharePolicy):
    """Full shares by arrival."""

    fills_gpus: ClassVar[bool] = False

    def __init__(self, parameters: TimeShareParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._arrived: dict[str, None] = {}
        self._admitted: set[str] = set()

    def time_shares(
        self, now_s: float, jobs: Sequence[ThroughputJob], cluster: TrainingCluster
    ) -> Mapping[str, float]:
        """Return full shares for the admitted jobs."""
        active = {job.name: job for job in jobs}
        self._arrived.update(dict.fromkeys(active))
        waiting = [job for job in jobs if job.name not in self._admitted]
        free_gpus = cluster.gpus
        for name in [name for name in self._arrived if name in self._admitted]:
            if name in active:
                free_gpus -= active[name].gpus
                continue
            self._admitted.discard(name)
            if waiting and waiting[0].gpus <= free_gpus:
                free_gpus -= waiting[0].gpus
                self._admitted.add(waiting.pop(0).name)
        for job in waiting:
            if job.gpus > free_gpus:
                break
            self._admitted.add(job.name)
            free_gpus -= job.gpus
        return dict.fromkeys(self._admitted, 1.0)
