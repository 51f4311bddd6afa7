"""A control: everything runs under the minimum configuration."""

from collections.abc import Sequence
from typing import ClassVar

from scheduler.model.plan import Candidate
from workbench.simulation.configurations import minimum_candidates, warm_first
from workbench.simulation.policy import Policy, PolicyContext, QueueKey, SchedulingRequest


class Minimum(Policy):
    """The least share, then the fewest vCPUs, then the smallest batch."""

    name: ClassVar[str] = "minimum"

    def __init__(self, world: PolicyContext) -> None:
        super().__init__(world)
        self._candidates: dict[tuple[QueueKey, tuple[float, ...]], tuple[Candidate, ...]] = {}

    def candidates(self, question: SchedulingRequest) -> Sequence[Candidate]:
        """The same for every job of a queue."""
        key = question.key, question.starts_ms
        found = self._candidates.get(key)
        if found is None:
            minimum = minimum_candidates(self.world.profile(question.key), self.world.rules.prices)
            found = self._candidates[key] = warm_first(minimum, question.starts_ms)
        return found
