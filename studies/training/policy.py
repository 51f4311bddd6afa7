"""Interface of policies: one decision over all jobs that have arrived and not ended."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, ClassVar, Generic, NamedTuple

from pydantic import BaseModel, ConfigDict

from studies.training.cluster import TrainingCluster
from studies.training.job import JobPlacement, TrainingJob, TrainingJobT

Placements = Mapping[str, JobPlacement]
"""Placement of each job that holds GPUs, by the job's name."""


class RunParameters(BaseModel):
    """Parameters of a policy or an environment, with defaults; subclasses add fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class JobsState(NamedTuple, Generic[TrainingJobT]):
    """The jobs and the cluster at a decision.

    Attributes:
        now_s: time of the decision.
        jobs: jobs that have arrived and not ended, in the order of the workload.
    """

    now_s: float
    jobs: Sequence[TrainingJobT]
    cluster: TrainingCluster
    placements: Placements


class TrainingPolicy(ABC, Generic[TrainingJobT]):
    """Policy of one run. It may store earlier states, and reads nothing but its arguments.

    Attributes:
        needs: capabilities of jobs that the policy reads.
        adapts_batch: true if jobs choose their batch for the placement, where the environment can.
    """

    parameters_type: ClassVar[type[RunParameters]] = RunParameters
    needs: ClassVar[tuple[type[TrainingJob], ...]] = ()
    adapts_batch: ClassVar[bool] = False

    def __init__(self, parameters: Any, seed: int) -> None:
        self.parameters = parameters
        self.seed = seed

    @abstractmethod
    def decide(self, state: JobsState[TrainingJobT]) -> Placements:
        """Return the placements from now on; a job without one holds no GPU."""

    def wake_s(self, now_s: float) -> float:
        """Return when to decide again although no job arrives or ends; inf: never."""
        return inf
