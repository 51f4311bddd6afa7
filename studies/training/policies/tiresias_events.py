"""Tiresias for a clock of events: three queues by attained service, and waiting jobs rotate.

The form of the public simulator (NSDI 2019): a job leaves a queue when its service reaches the
queue's limit, the policy decides again at that time, and a job that waits goes to the end of its
queue. A waiting job may be promoted to the first queue. Jobs are chosen by the number of free GPUs;
where placement on one node needs it, running jobs move.
"""

from math import ceil, inf

from pydantic import Field

from studies.training.job import TrainingJob
from studies.training.ordered import OrderParameters, place_in_order
from studies.training.policy import JobsState, Placements, TrainingPolicy

_ROUNDING_S = 1e-6  # of sums of seconds


class TiresiasEventsParameters(OrderParameters):
    """Limits of the queues, promotion and placement."""

    first_limit_s: float = Field(default=3250.0, gt=0, description="service that ends queue 1")
    second_limit_s: float = Field(default=7200.0, gt=0, description="service that ends queue 2")
    promotion_factor: float = Field(
        default=inf, gt=0, description="a job that waits so many times its run time starts again"
    )


class TiresiasEvents(TrainingPolicy[TrainingJob]):
    """Two-dimensional: the service is GPUs times seconds."""

    parameters_type = TiresiasEventsParameters

    def __init__(self, parameters: TiresiasEventsParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._limits_s = (parameters.first_limit_s, parameters.second_limit_s)
        self._queues: list[dict[str, TrainingJob]] = [{}, {}, {}]
        self._waiting_since_s: dict[str, float] = {}
        self._begins_s: dict[str, float] = {}  # service at the last promotion
        self._running: list[TrainingJob] = []

    def decide(self, state: JobsState[TrainingJob]) -> Placements:
        """Move jobs between queues, place them queue by queue, rotate those that wait."""
        now_s, jobs, cluster = state.now_s, state.jobs, state.cluster
        self._update_queues(now_s, {job.name: job for job in jobs})
        ordered = [job for queue in self._queues for job in queue.values()]
        decided = place_in_order(
            ordered, cluster, consolidated=self.parameters.consolidated, moves=True
        )
        for queue in self._queues:
            for name in [name for name in queue if name not in decided]:
                queue[name] = queue.pop(name)
                self._waiting_since_s.setdefault(name, now_s)
        for name in decided:
            self._waiting_since_s.pop(name, None)
        self._running = [job for job in ordered if job.name in decided]
        return decided

    def wake_s(self, now_s: float) -> float:
        """Return the time of the next demotion."""
        return min((now_s + self._until_limit_s(job) for job in self._running), default=inf)

    def _update_queues(self, now_s: float, active: dict[str, TrainingJob]) -> None:
        queue_numbers = {name: n for n, queue in enumerate(self._queues) for name in queue}
        for name, number in queue_numbers.items():
            if name not in active:
                del self._queues[number][name]
                continue
            job = active[name]
            target = max(number, self._queue_of(job))
            waited_s = now_s - self._waiting_since_s.get(name, now_s)
            if waited_s > 0 and waited_s >= job.executed_s * self.parameters.promotion_factor:
                target = 0
                self._begins_s[name] = self._attained_s(job) + self._begins_s.get(name, 0.0)
            if target != number:
                self._queues[target][name] = self._queues[number].pop(name)
        for name, job in active.items():
            if name not in queue_numbers:
                self._queues[0][name] = job

    def _queue_of(self, job: TrainingJob) -> int:
        return sum(self._attained_s(job) >= limit_s - _ROUNDING_S for limit_s in self._limits_s)

    def _attained_s(self, job: TrainingJob) -> float:
        return job.service_gpu_s - self._begins_s.get(job.name, 0.0)

    def _speed_gpus(self, job: TrainingJob) -> int:
        """Return the service of a second."""
        return job.gpus

    def _until_limit_s(self, job: TrainingJob) -> float:
        number = self._queue_of(job)
        if number == len(self._limits_s):
            return inf
        gpus = self._speed_gpus(job)
        return ceil(self._limits_s[number] / gpus) - self._attained_s(job) / gpus


class Las(TiresiasEvents):
    """Least attained service in one dimension: seconds, whatever the number of GPUs."""

    def _attained_s(self, job: TrainingJob) -> float:
        return job.executed_s - self._begins_s.get(job.name, 0.0)

    def _speed_gpus(self, job: TrainingJob) -> int:
        return 1
