"""Policies that fix one configuration for each stage before the first request comes."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.model.plan import Candidate
from workbench.simulation.configurations import warm_first
from workbench.simulation.policies import waiting
from workbench.simulation.policies.end_to_end import Choice, EndToEnd
from workbench.simulation.policy import Policy, PolicyContext, QueueKey, SchedulingRequest


@dataclass(frozen=True, slots=True)
class Fixed:
    """What a stage always runs under, and how long its batch may take to fill."""

    candidate: Candidate
    filling_ms: float


class FixedPolicy(Policy):
    """Runs every stage under its one configuration, whatever happens; a subclass chooses them.

    A queue that holds less than a batch waits as long as was planned for the batch to fill, and
    then runs what is there.

    Attributes:
        fixed: by stage.
    """

    def __init__(self, world: PolicyContext) -> None:
        super().__init__(world)
        self.fixed: dict[QueueKey, Fixed] = {}
        self._answers: dict[tuple[QueueKey, tuple[float, ...]], tuple[Candidate, ...]] = {}
        for key in sorted(world.rate_rps):
            whole = EndToEnd(world, world.catalogue.workflow(*key))
            for queue, candidate in whole.planned(self._chosen(whole)).items():
                self.fixed[queue] = Fixed(candidate, whole.filling_ms(candidate))

    @abstractmethod
    def _chosen(self, whole: EndToEnd) -> Choice:
        """The configurations of one workflow."""

    def candidates(self, question: SchedulingRequest) -> Sequence[Candidate]:
        """The stage's own, once its batch is full or has waited long enough."""
        fixed = self.fixed[question.key]
        full = question.queued >= fixed.candidate.configuration.batch
        if not full and not waiting.is_over(question, fixed.filling_ms):
            return ()
        key = question.key, question.starts_ms
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = warm_first([fixed.candidate], question.starts_ms)
        return answer

    def ask_again_ms(self, question: SchedulingRequest) -> float:
        """When the oldest job has waited as long as the batch may take to fill."""
        return waiting.end_ms(question, self.fixed[question.key].filling_ms)
