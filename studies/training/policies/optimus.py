"""Optimus with an oracle: GPUs go where they shorten the remaining time most.

Each job has one GPU while there are enough; then the job with the largest gain gets one more, until
no gain is positive (EuroSys 2018, in the form of the Pollux evaluation: remaining iterations and
times of an iteration are known instead of fitted).
"""

from collections.abc import Sequence

from studies.training.job import ElasticJob
from studies.training.ordered import place_counts
from studies.training.policy import JobsState, Placements, TrainingPolicy


class Optimus(TrainingPolicy[ElasticJob]):
    """Greedy by marginal gain, again from one GPU each at every decision."""

    needs = (ElasticJob,)

    def decide(self, state: JobsState[ElasticJob]) -> Placements:
        """Choose the number of GPUs of each job, then place those whose number changed."""
        return place_counts(_gpu_counts(state.jobs, state.cluster.gpus), state)


def _gpu_counts(jobs: Sequence[ElasticJob], gpus: int) -> dict[str, int]:
    served = jobs[:gpus]
    counts = {job.name: 1 for job in served}
    free = gpus - len(counts)
    gains_s = {job.name: _gain_s(job, 1) for job in served}
    by_name = {job.name: job for job in served}
    while free and gains_s:
        name = max(gains_s, key=gains_s.__getitem__)
        if gains_s[name] <= 0:
            break
        counts[name] += 1
        free -= 1
        gains_s[name] = _gain_s(by_name[name], counts[name])
    return counts


def _gain_s(job: ElasticJob, gpus: int) -> float:
    """Return the remaining time that one GPU more saves; 0 at the job's limit."""
    if gpus + 1 > job.gpus_max:
        return 0.0
    return (job.iteration_s(gpus) - job.iteration_s(gpus + 1)) * job.remaining_iterations
