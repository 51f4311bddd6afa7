"""Loop of a run: advance to the next round or event, let the policy decide, apply the decision."""

from collections.abc import Callable
from math import inf
from typing import Any

from studies.training.environment import JobEnvironment
from studies.training.errors import JobsError
from studies.training.job import WAITING, DeadlineJob, JobPlacement, TrainingJob
from studies.training.policy import JobsState, Placements, TrainingPolicy
from studies.training.result import GpuSpan, JobRecord, JobsResult
from studies.training.validation import check_placements

IDLE_DECISIONS_MAX = 10_000  # in a row without any placement, after the last arrival

JobsProgress = Callable[[int], None]
"""Takes the number of jobs that have ended."""


def simulate_jobs(
    environment: JobEnvironment[Any],
    policy: TrainingPolicy[Any],
    name: str,
    *,
    progress: JobsProgress = lambda _: None,
) -> JobsResult:
    """Run a workload until its last job ends.

    Args:
        environment: environment that was just loaded.
        policy: policy that was just constructed.
        name: name of the policy, for messages.
        progress: function that is called when jobs have ended.

    Raises:
        JobsError: the policy cannot be used, or no job can ever start.
    """
    return _Run(environment, policy, name).run(progress)


class _Run:
    def __init__(
        self, environment: JobEnvironment[Any], policy: TrainingPolicy[Any], name: str
    ) -> None:
        missing = [c.__name__ for c in policy.needs if not issubclass(environment.job_type, c)]
        if missing:
            raise JobsError(
                f"policy {name} needs jobs with {', '.join(missing)}; "
                f"{type(environment).__name__} does not supply that; choose another environment"
            )
        self._environment = environment
        self._policy = policy
        self._name = name
        self._pending = list(environment.jobs)  # not ended
        self._indices = {job.name: i for i, job in enumerate(environment.jobs)}
        self._placements: dict[str, JobPlacement] = {}
        self._begun_s: dict[str, float] = {}
        self._spans: list[GpuSpan] = []
        self._decisions = 0
        self._idle = 0
        environment.begin(adapts_batch=policy.adapts_batch)

    def run(self, progress: JobsProgress) -> JobsResult:
        now_s = 0.0
        environment = self._environment
        while self._pending:
            next_s = environment.next_s(now_s, self._policy.wake_s(now_s))
            environment.advance(now_s, next_s)
            now_s = next_s
            if any(job.end_s is not None for job in self._pending):
                self._collect_ended()
                progress(len(self._indices) - len(self._pending))
            active = [job for job in self._pending if job.submit_s <= now_s]
            self._evict(now_s, active)
            if active and environment.cluster.gpus:
                self._decide(now_s, active)
        return JobsResult(
            jobs=tuple(map(_record, environment.jobs)),
            spans=tuple(self._spans),
            nodes=tuple(node.gpus for node in environment.cluster.nodes),
            decisions=self._decisions,
            gpus_shared=environment.jobs_per_gpu > 1,
        )

    def _collect_ended(self) -> None:
        for job in self._pending:
            if job.end_s is not None:
                self._placements.pop(job.name, None)
                self._close_span(job, job.end_s)
                job.placement = WAITING
        self._pending = [job for job in self._pending if job.end_s is None]

    def _evict(self, now_s: float, active: list[TrainingJob]) -> None:
        """Take the GPUs from jobs on nodes that have left."""
        cluster = self._environment.cluster
        if cluster.absent:
            present = {
                name: placement
                for name, placement in self._placements.items()
                if not any(cluster.node_of[gpu] in cluster.absent for gpu in placement.gpus)
            }
            self._apply(now_s, active, present)

    def _decide(self, now_s: float, active: list[TrainingJob]) -> None:
        cluster = self._environment.cluster
        decided = self._policy.decide(JobsState(now_s, active, cluster, self._placements))
        self._decisions += 1
        if decided != self._placements:
            check_placements(
                self._name,
                now_s,
                decided,
                jobs={job.name for job in active},
                cluster=cluster,
                jobs_per_gpu=self._environment.jobs_per_gpu,
            )
            self._apply(now_s, active, decided)
        self._check_idle(now_s, active)

    def _apply(self, now_s: float, active: list[TrainingJob], decided: Placements) -> None:
        for job in active:
            placement = decided.get(job.name, WAITING)
            if placement == job.placement:
                continue
            self._close_span(job, now_s)
            self._environment.place(job, placement, now_s)
            job.placement = placement
            if placement.gpus:
                self._begun_s[job.name] = now_s
                if job.start_s is None:
                    job.start_s = now_s
        self._placements = {name: p for name, p in decided.items() if p.gpus}

    def _check_idle(self, now_s: float, active: list[TrainingJob]) -> None:
        self._idle = 0 if self._placements else self._idle + 1
        if self._idle > IDLE_DECISIONS_MAX and len(active) == len(self._pending):
            names = ", ".join(job.name for job in active[:3])
            raise JobsError(
                f"policy {self._name} at {now_s:,.6g} s: no job runs and none arrives; {names} "
                "may need more GPUs than there are; use a larger cluster"
            )

    def _close_span(self, job: TrainingJob, end_s: float) -> None:
        begin_s = self._begun_s.pop(job.name, None)
        if begin_s is not None and end_s > begin_s:
            gpus = job.placement.gpus
            self._spans.append(GpuSpan(self._indices[job.name], gpus, begin_s, end_s))


def _record(job: TrainingJob) -> JobRecord:
    if job.end_s is None:
        raise AssertionError(f"job {job.name} has not ended")
    return JobRecord(
        job.name,
        job.model,
        job.submit_s,
        job.gpus,
        job.end_s if job.start_s is None else job.start_s,
        job.end_s,
        job.service_gpu_s,
        job.restarts,
        job.deadline_s if isinstance(job, DeadlineJob) else inf,
    )
