"""Tiresias: two queues by attained service; a job keeps its requested number of GPUs.

Discretised two-dimensional least attained service (NSDI 2019): a job moves to the second queue when
its GPUs times its run time reach a threshold. Queues are served in order, and within a queue in
order of arrival in it. A job that does not fit does not block smaller ones behind it.
"""

from pydantic import Field

from studies.training.job import TrainingJob
from studies.training.ordered import place_in_order
from studies.training.policy import JobsState, Placements, RunParameters, TrainingPolicy


class TiresiasParameters(RunParameters):
    """Threshold of the second queue."""

    threshold_gpu_s: float = Field(
        default=3600.0 * 16, gt=0, description="attained service that ends the first queue"
    )


class Tiresias(TrainingPolicy[TrainingJob]):
    """The form of the Pollux evaluation: no promotion back, running jobs do not move."""

    parameters_type = TiresiasParameters

    def __init__(self, parameters: TiresiasParameters, seed: int) -> None:
        super().__init__(parameters, seed)
        self._threshold_gpu_s = parameters.threshold_gpu_s
        self._queues: tuple[dict[str, None], dict[str, None]] = ({}, {})

    def decide(self, state: JobsState[TrainingJob]) -> Placements:
        """Choose jobs queue by queue; keep the GPUs of those that run on."""
        active = {job.name: job for job in state.jobs}
        self._update_queues(active)
        ordered = [active[name] for queue in self._queues for name in queue]
        return place_in_order(ordered, state.cluster)

    def _update_queues(self, active: dict[str, TrainingJob]) -> None:
        first, second = self._queues
        for queue in self._queues:
            for name in [name for name in queue if name not in active]:
                del queue[name]
        for name, job in active.items():
            if name in second:
                continue
            if job.service_gpu_s >= self._threshold_gpu_s:
                first.pop(name, None)
                second[name] = None
            else:
                first[name] = None
