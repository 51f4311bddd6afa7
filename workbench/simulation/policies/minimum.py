"""Control: every job runs under the minimum configuration."""

from collections.abc import Sequence
from typing import ClassVar

from scheduler.model.plan import Candidate
from workbench.simulation.containers.configurations import minimum_candidates, warm_first
from workbench.simulation.policy import Policy, PolicyContext, QueueKey, SchedulingRequest


class Minimum(Policy):
    """Chooses the smallest share, then the fewest vCPUs, then the smallest batch."""

    name: ClassVar[str] = "minimum"

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._candidates: dict[tuple[QueueKey, tuple[float, ...]], tuple[Candidate, ...]] = {}

    def candidates(self, request: SchedulingRequest) -> Sequence[Candidate]:
        """Return the same candidates for every job of a queue."""
        key = request.key, request.starts_ms
        answer = self._candidates.get(key)
        if answer is None:
            minimum = minimum_candidates(
                self.context.profile(request.key), self.context.rules.prices
            )
            answer = self._candidates[key] = warm_first(minimum, request.starts_ms)
        return answer
