"""Control: a random configuration."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from scheduler.model.plan import Candidate
from workbench.simulation.containers.configurations import (
    anywhere,
    batches_filled,
    configurations_of,
    warm_first,
)
from workbench.simulation.policy import Policy, PolicyContext, QueueKey, SchedulingRequest

AnswerKey = tuple[QueueKey, int, tuple[float, ...]]

_BLOCK = 4_096  # random numbers per draw


class RandomPolicy(Policy):
    """Chooses uniformly among the configurations whose batch the queue fills."""

    name: ClassVar[str] = "random"

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._numbers = self._uniform()
        self._batches: dict[QueueKey, tuple[int, ...]] = {}
        self._candidates: dict[AnswerKey, list[tuple[Candidate, ...]]] = {}

    def candidates(self, request: SchedulingRequest) -> Sequence[Candidate]:
        """Return a single configuration, drawn again at every call."""
        batches = self._batches.get(request.key)
        if batches is None:
            profile = self.context.profile(request.key)
            batches = self._batches[request.key] = batches_filled(profile)
        batch = batches[min(request.queued, len(batches) - 1)]
        key = request.key, batch, request.starts_ms
        options = self._candidates.get(key)
        if options is None:
            options = self._candidates[key] = self._filled(request, batch)
        return options[int(next(self._numbers) * len(options))]

    def _filled(self, request: SchedulingRequest, batch: int) -> list[tuple[Candidate, ...]]:
        return [
            warm_first([anywhere(c, gpu.model)], request.starts_ms)
            for gpu in self.context.profile(request.key).spec.gpus
            for c in configurations_of(gpu)
            if c.batch <= batch
        ]

    def _uniform(self) -> Iterator[float]:
        while True:
            yield from self.context.random.random(_BLOCK).tolist()
