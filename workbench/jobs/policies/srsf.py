"""Shortest remaining service first: remaining time times GPUs, preemptive.

Of equal jobs the newest is first, as in the public simulator of Tiresias. A job that does not fit
does not block others.
"""

from collections.abc import Sequence

from pydantic import Field

from workbench.jobs.cluster import TrainingCluster
from workbench.jobs.job import PredictableJob
from workbench.jobs.ordered import place_in_order
from workbench.jobs.policy import Placements, RunParameters, TrainingPolicy


class SrsfParameters(RunParameters):
    """Form of the placement."""

    consolidated: bool = Field(default=False, description="a job is on one node, or on whole nodes")


class Srsf(TrainingPolicy[PredictableJob]):
    """Order by remaining GPU-seconds."""

    parameters_type = SrsfParameters
    needs = (PredictableJob,)

    def decide(
        self,
        now_s: float,  # noqa: ARG002
        jobs: Sequence[PredictableJob],
        cluster: TrainingCluster,
        placements: Placements,  # noqa: ARG002
    ) -> Placements:
        """Order the jobs, and place those that fit."""
        ordered = sorted(jobs[::-1], key=lambda job: job.remaining_s * job.gpus)  # noqa: C415 - of equal jobs the last
        consolidated = self.parameters.consolidated
        return place_in_order(ordered, cluster, consolidated=consolidated)
