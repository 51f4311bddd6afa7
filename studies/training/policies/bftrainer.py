"""BFTrainer: GPUs go where they speed training up most, less what the change itself costs.

Whenever jobs or nodes come or go, numbers of GPUs are chosen for the largest sum, over jobs, of
speed-up times a look-ahead, minus the speed-up that is lost while the job changes its size. It is
exact, by dynamic programming over GPUs; the published one is an integer program.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from studies.training.job import ElasticJob
from studies.training.ordered import place_counts
from studies.training.policy import JobsState, Placements, RunParameters, TrainingPolicy


class BfTrainerParameters(RunParameters):
    """Look-ahead, and durations of changes."""

    ahead_s: float = Field(default=600.0, gt=0, description="time in which a change must pay")
    up_s: float = Field(default=30.0, ge=0, description="without progress when GPUs are added")
    down_s: float = Field(default=30.0, ge=0, description="without progress when GPUs are taken")


class BfTrainer(TrainingPolicy[ElasticJob]):
    """Largest gain within the look-ahead."""

    parameters_type = BfTrainerParameters
    needs = (ElasticJob,)

    def __init__(self, parameters: BfTrainerParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._decided_for: tuple[set[str], frozenset[int]] | None = None
        self._decided: Placements = {}

    def decide(self, state: JobsState[ElasticJob]) -> Placements:
        """Choose numbers of GPUs if jobs or nodes came or went; unchanged jobs stay in place."""
        present = {job.name for job in state.jobs}, state.cluster.absent
        if present == self._decided_for and state.placements == self._decided:
            return state.placements
        self._decided_for = present
        self._decided = place_counts(self.gpu_counts(state.jobs, state.cluster.gpus), state)
        return self._decided

    def gain_s(self, job: ElasticJob, gpus: int) -> float:
        """Return the seconds of training on one GPU that a number of GPUs gains."""
        current = len(job.placement.gpus)
        if gpus == current:
            change_s = 0.0
        else:
            change_s = self.parameters.up_s if gpus > current else self.parameters.down_s
        ahead_s: float = self.parameters.ahead_s
        return ahead_s * _speedup_ratio(job, gpus) - change_s * _speedup_ratio(job, current)

    def gpu_counts(self, jobs: Sequence[ElasticJob], gpus: int) -> dict[str, int]:
        """Return the numbers of GPUs with the largest sum of gains; of equal ones the smaller."""
        sums_s = np.zeros(gpus + 1)  # by number of GPUs in use, at most
        choices = np.zeros((len(jobs), gpus + 1), np.int64)
        for row, job in enumerate(jobs):
            best_s = np.full(gpus + 1, -np.inf)
            for count in range(min(job.gpus_max, gpus) + 1):
                candidate_s = sums_s[: gpus + 1 - count] + self.gain_s(job, count)
                better = candidate_s > best_s[count:]
                best_s[count:][better] = candidate_s[better]
                choices[row, count:][better] = count
            sums_s = best_s
        counts = {}
        for row in range(len(jobs) - 1, -1, -1):
            counts[jobs[row].name] = count = int(choices[row, gpus])
            gpus -= count
        return counts


def _speedup_ratio(job: ElasticJob, gpus: int) -> float:
    return job.iteration_s(1) / job.iteration_s(gpus) if gpus else 0.0
