"""First in, first out: jobs run in order of arrival, and nothing passes one that does not fit."""

from collections.abc import Sequence

from pydantic import Field

from workbench.jobs.cluster import TrainingCluster
from workbench.jobs.job import TrainingJob
from workbench.jobs.ordered import place_in_order
from workbench.jobs.policy import Placements, RunParameters, TrainingPolicy


class FifoParameters(RunParameters):
    """Form of the placement."""

    consolidated: bool = Field(default=False, description="a job is on one node, or on whole nodes")


class Fifo(TrainingPolicy[TrainingJob]):
    """Order by arrival."""

    parameters_type = FifoParameters

    def decide(
        self,
        now_s: float,  # noqa: ARG002
        jobs: Sequence[TrainingJob],
        cluster: TrainingCluster,
        placements: Placements,  # noqa: ARG002
    ) -> Placements:
        """Order the jobs, and place those that fit."""
        ordered = sorted(jobs, key=lambda job: job.submit_s)
        consolidated = self.parameters.consolidated
        return place_in_order(ordered, cluster, consolidated=consolidated, strict=True)
