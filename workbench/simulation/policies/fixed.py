"""Policies that choose one configuration per stage before the first request."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.model.plan import Candidate
from workbench.simulation.containers.configurations import warm_first
from workbench.simulation.policies import batch_timeout
from workbench.simulation.policies.end_to_end import Choice, EndToEnd
from workbench.simulation.policy import Policy, PolicyContext, QueueKey, SchedulingRequest


@dataclass(frozen=True, slots=True)
class Fixed:
    """The configuration of a stage, and the time in which its batch may fill."""

    candidate: Candidate
    filling_ms: float


class FixedPolicy(Policy):
    """Runs every stage under its one configuration; a subclass chooses the configurations.

    A queue with less than a batch waits for the planned filling time and then runs the jobs that
    it has.

    Attributes:
        fixed: configuration of each stage.
    """

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self.fixed: dict[QueueKey, Fixed] = {}
        self._answers: dict[tuple[QueueKey, tuple[float, ...]], tuple[Candidate, ...]] = {}
        for key in sorted(context.rate_rps):
            whole = EndToEnd(context, context.catalogue.workflow(*key))
            for queue, candidate in whole.planned(self._choose(whole)).items():
                self.fixed[queue] = Fixed(candidate, whole.filling_ms(candidate))

    @abstractmethod
    def _choose(self, whole: EndToEnd) -> Choice:
        """Choose the configurations of one workflow."""

    def candidates(self, request: SchedulingRequest) -> Sequence[Candidate]:
        """Return the stage's candidate once its batch is full or has waited long enough."""
        fixed = self.fixed[request.key]
        full = request.queued >= fixed.candidate.configuration.batch
        if not full and not batch_timeout.is_over(request, fixed.filling_ms):
            return ()
        key = request.key, request.starts_ms
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = warm_first([fixed.candidate], request.starts_ms)
        return answer

    def retry_at_ms(self, request: SchedulingRequest) -> float:
        """Return the time at which the oldest job has waited for the filling time."""
        return batch_timeout.end_ms(request, self.fixed[request.key].filling_ms)
