"""Earliest deadline first, preemptive; jobs without a deadline come last, in order of arrival.

A job that does not fit does not block others, and one that is late stays first.
"""

from collections.abc import Sequence

from pydantic import Field

from workbench.jobs.cluster import TrainingCluster
from workbench.jobs.job import DeadlineJob
from workbench.jobs.ordered import place_in_order
from workbench.jobs.policy import Placements, RunParameters, TrainingPolicy


class EdfParameters(RunParameters):
    """Form of the placement."""

    consolidated: bool = Field(default=False, description="a job is on one node, or on whole nodes")


class Edf(TrainingPolicy[DeadlineJob]):
    """Order by deadline."""

    parameters_type = EdfParameters
    needs = (DeadlineJob,)

    def decide(
        self,
        now_s: float,  # noqa: ARG002
        jobs: Sequence[DeadlineJob],
        cluster: TrainingCluster,
        placements: Placements,  # noqa: ARG002
    ) -> Placements:
        """Order the jobs, and place those that fit."""
        ordered = sorted(jobs, key=lambda job: (job.deadline_s, job.submit_s))
        return place_in_order(ordered, cluster, consolidated=self.parameters.consolidated)
