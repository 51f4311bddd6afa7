"""Chronus: leases, admission of jobs with deadlines, and best effort in what is left.

At the start of each lease, jobs with deadlines are admitted if enough whole leases before the
deadline can be reserved for them (SoCC 2021, in the form of its public simulator). Between, GPUs go
to admitted jobs, then to jobs that may still be admitted, best effort, and jobs that are too late.
"""

from math import ceil, floor

from pydantic import Field

from studies.training.job import DeadlineJob, SpreadJob
from studies.training.policies.chronus_admission import LeasePlan, LeaseRequest, rounded_gpus
from studies.training.policies.chronus_placement import place_by_speed
from studies.training.policy import JobsState, Placements, RunParameters, TrainingPolicy

_ROUNDING = 1e-9  # of a lease: remainders that are errors of floats


class ChronusJob(DeadlineJob, SpreadJob):
    """Capabilities that the policy reads, in one class."""

    __slots__ = ()


class ChronusParameters(RunParameters):
    """Length of leases, and effort of the admission."""

    lease_s: float = Field(default=1200.0, gt=0, description="time for which GPUs are reserved")
    milp_variables: int = Field(
        default=4000, ge=0, description="size up to which the integer program is solved"
    )
    milp_nodes: int = Field(default=1000, ge=1, description="branches of the integer program")


class Chronus(TrainingPolicy[ChronusJob]):
    """Admission by reservation; an admitted job keeps its guarantee."""

    parameters_type = ChronusParameters
    needs = (DeadlineJob, SpreadJob)

    def __init__(self, parameters: ChronusParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._lease_s = parameters.lease_s
        self._plan = LeasePlan(parameters.milp_variables, parameters.milp_nodes)
        self._planned_lease = -1

    @property
    def accepted(self) -> frozenset[str]:
        """Names of all jobs that have been admitted so far."""
        return frozenset(self._plan.accepted)

    def decide(self, state: JobsState[ChronusJob]) -> Placements:
        """Admit at the start of a lease; order the jobs, and place them where they are fast."""
        now_s, jobs, cluster, placements = state
        lease = floor(now_s / self._lease_s + _ROUNDING)
        if lease > self._planned_lease:
            self._planned_lease = lease
            # In the middle of a lease, only the next one is whole.
            first = ceil(now_s / self._lease_s - _ROUNDING)
            requests = [self._request(job, first) for job in jobs if job.deadlines]
            self._plan.update(first, requests, cluster.gpus)
        reserved = self._plan.reserved(lease)
        ordered = sorted(jobs, key=lambda job: self._rank(job, now_s, reserved))
        return place_by_speed(ordered, reserved, cluster, placements)

    def wake_s(self, now_s: float) -> float:
        """Return the start of the next lease."""
        return (floor(now_s / self._lease_s + _ROUNDING) + 1) * self._lease_s

    def _request(self, job: ChronusJob, first: int) -> LeaseRequest:
        return LeaseRequest(
            name=job.name,
            gpus=rounded_gpus(job.gpus),
            needed=max(ceil(job.remaining_s / self._lease_s - _ROUNDING), 1),
            options=tuple(
                (floor(deadline.time_s / self._lease_s + _ROUNDING) - first, deadline.value)
                for deadline in job.deadlines
            ),
        )

    def _rank(
        self, job: ChronusJob, now_s: float, reserved: frozenset[str]
    ) -> tuple[int, float, float]:
        if job.deadlines:
            slack_s = max(d.time_s for d in job.deadlines) - now_s - job.remaining_s
            if job.name in reserved:
                category = 0
            elif job.name in self._plan.accepted:
                category = 1
            else:
                category = 2 if slack_s >= 0 else 4
            return category, slack_s * job.gpus, job.submit_s
        return 3, job.remaining_s * job.gpus, job.submit_s
