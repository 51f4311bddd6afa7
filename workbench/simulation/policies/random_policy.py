"""A control: any configuration, by chance."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from scheduler.model.plan import Candidate
from workbench.simulation.configurations import (
    anywhere,
    batches_filled,
    configurations_of,
    warm_first,
)
from workbench.simulation.policy import Policy, PolicyContext, QueueKey, SchedulingRequest

Asked = tuple[QueueKey, int, tuple[float, ...]]

_BLOCK = 4_096  # chances drawn at a time


class Chance(Policy):
    """One of the configurations whose batch the queue fills, each as likely as the others."""

    name: ClassVar[str] = "random"

    def __init__(self, world: PolicyContext) -> None:
        super().__init__(world)
        self._chances = self._drawn()
        self._batches: dict[QueueKey, tuple[int, ...]] = {}
        self._candidates: dict[Asked, list[tuple[Candidate, ...]]] = {}

    def candidates(self, question: SchedulingRequest) -> Sequence[Candidate]:
        """A single one; another one the next time."""
        batches = self._batches.get(question.key)
        if batches is None:
            profile = self.world.profile(question.key)
            batches = self._batches[question.key] = batches_filled(profile)
        batch = batches[min(question.queued, len(batches) - 1)]
        key = question.key, batch, question.starts_ms
        found = self._candidates.get(key)
        if found is None:
            found = self._candidates[key] = self._filled(question, batch)
        return found[int(next(self._chances) * len(found))]

    def _filled(self, question: SchedulingRequest, batch: int) -> list[tuple[Candidate, ...]]:
        return [
            warm_first([anywhere(c, gpu.model)], question.starts_ms)
            for gpu in self.world.profile(question.key).spec.gpus
            for c in configurations_of(gpu)
            if c.batch <= batch
        ]

    def _drawn(self) -> Iterator[float]:
        while True:
            yield from self.world.random.random(_BLOCK).tolist()
