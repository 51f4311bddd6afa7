"""Environment ``chronus``: jobs with deadlines that lose speed when they are spread over nodes.

Decisions happen when a job arrives or ends, and when the policy requests it. The cluster is 4 nodes
of 8 GPUs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pydantic import Field

from studies.training.environment import WorkloadSource
from studies.training.environments.chronus_files import (
    DeadlineRow,
    SpreadTable,
    generated_deadline_rows,
    generated_spread,
    read_deadline_rows,
    read_spread,
    speeds_of,
)
from studies.training.environments.paced import PacedEnvironment, PacedJob, PacedParameters
from studies.training.job import Deadline, DeadlineJob, SpreadJob, TrainingJob
from studies.training.policy import RunParameters

NODES, GPUS = 4, 8


class ChronusEnvironmentParameters(PacedParameters):
    """A move costs nothing unless it is set, as in the public simulator."""

    restart_s: float = Field(default=0.0, ge=0, description="without progress after a move")


@dataclass(slots=True, kw_only=True, eq=False)
class LeasedJob(PacedJob, DeadlineJob, SpreadJob):
    """A job of known duration, perhaps with deadlines.

    Attributes:
        spread_speeds: relative speeds of the model at the requested GPUs, by number of nodes.
    """

    deadlines: tuple[Deadline, ...] = field()
    spread_speeds: Mapping[int, float] = field()

    @property
    def remaining_s(self) -> float:
        """Remaining duration on the fewest nodes."""
        return self.remaining_count


class ChronusEnvironment(PacedEnvironment[LeasedJob]):
    """Jobs of a trace with deadlines."""

    job_type: ClassVar[type[TrainingJob]] = LeasedJob
    parameters_type: ClassVar[type[RunParameters]] = ChronusEnvironmentParameters

    @classmethod
    def load(cls, parameters: Any, source: WorkloadSource) -> Self:
        """Read a trace and the speeds of its models; see `JobEnvironment.load`."""
        cluster = source.uniform_cluster(NODES, GPUS)
        spread = generated_spread() if source.data is None else read_spread(source.data)
        if source.workload is None:
            rows = generated_deadline_rows(
                source.seed,
                models=sorted(spread),
                jobs=parameters.job_count,
                gpus=cluster.gpus,
                load_ratio=parameters.load_ratio,
            )
        else:
            rows = read_deadline_rows(source.workload, spread)
        node_gpus = max(node.gpus for node in cluster.nodes)
        return cls(parameters, [_job(row, spread, node_gpus) for row in rows], cluster)

    def set_paces(self, running: Sequence[LeasedJob]) -> None:
        """Take the speed of the number of nodes; parts of unequal size count as more nodes."""
        for job in running:
            nodes = len({self.cluster.node_of[gpu] for gpu in job.placement.gpus})
            job.unit_s = 1.0 / job.speed_ratio(nodes)


def _job(row: DeadlineRow, spread: SpreadTable, node_gpus: int) -> LeasedJob:
    return LeasedJob(
        name=row.job.name,
        model=row.job.model,
        submit_s=row.job.submit_s,
        gpus=row.job.gpus,
        work_count=row.job.duration_s,
        deadlines=row.deadlines,
        spread_speeds=speeds_of(spread[row.job.model], row.job.gpus, node_gpus),
    )
