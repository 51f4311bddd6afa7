"""GrandSLAm's split (EuroSys 2019), as a control: each stage has its part of the SLO, once for all.

The part is proportional to the stage's time: ``SLO * t / (longest path through the stage)``, t
being the mean over its configurations, and the SLO being less the scenario's margin, as ours is.
The cheapest configuration that keeps to it runs; what happened before the stage is not looked at.
"""

from collections.abc import Sequence
from typing import ClassVar

from scheduler.model.plan import Candidate
from scheduler.search.dag import numbered
from workbench.simulation.configurations import (
    anywhere,
    batches_filled,
    configurations_of,
    warm_first,
)
from workbench.simulation.policy import Policy, PolicyContext, QueueKey, SchedulingRequest

Asked = tuple[QueueKey, int, tuple[float, ...]]


class GrandSlam(Policy):
    """The cheapest configurations within the stage's fixed part of the SLO."""

    name: ClassVar[str] = "grandslam"

    def __init__(self, world: PolicyContext) -> None:
        super().__init__(world)
        self._parts_ms: dict[QueueKey, float] = {}
        self._batches: dict[QueueKey, tuple[int, ...]] = {}
        for namespace, workflow in world.catalogue.workflows:
            self._split(namespace, workflow)
        self._answers: dict[Asked, tuple[Candidate, ...]] = {}

    def candidates(self, question: SchedulingRequest) -> Sequence[Candidate]:
        """By cost a request; where none keeps to the part, the fastest."""
        batch = self._batches[question.key]
        most = batch[min(question.queued, len(batch) - 1)]
        key = question.key, most, question.starts_ms
        found = self._answers.get(key)
        if found is None:
            chosen = self._chosen(question.key, most)
            found = self._answers[key] = warm_first(chosen, question.starts_ms)
        return found

    def _chosen(self, key: QueueKey, batch_max: int) -> list[Candidate]:
        prices = self.world.rules.prices
        listed = [
            anywhere(
                c,
                gpu.model,
                prices.per_request(c.latency_ms, c.cpu, c.gpu_percent, c.batch, gpu.model),
            )
            for gpu in self.world.profile(key).spec.gpus
            for c in configurations_of(gpu)
        ]
        listed = [each for each in listed if each.configuration.batch <= batch_max]
        within = [each for each in listed if each.stage_ms <= self._parts_ms[key]]
        if within:
            listed = sorted(within, key=lambda each: (each.path_cost, each.stage_ms))
        else:
            listed.sort(key=lambda each: (each.stage_ms, each.path_cost))
        return listed[: self.world.candidates]

    def _split(self, namespace: str, workflow: str) -> None:
        documents = self.world.catalogue.workflow(namespace, workflow)
        names, dag = numbered(documents)
        mean_ms = [self._mean_ms((namespace, workflow, name)) for name in names]
        slo_ms = documents.spec.slo.latency_ms / (1.0 + self.world.margin_ratio)
        for name, own_ms, before_ms, rest_ms in zip(
            names, mean_ms, dag.longest_before(mean_ms), dag.longest_after(mean_ms), strict=True
        ):
            key = namespace, workflow, name
            self._parts_ms[key] = slo_ms * own_ms / (before_ms + rest_ms)
            self._batches[key] = batches_filled(self.world.profile(key))

    def _mean_ms(self, key: QueueKey) -> float:
        times_ms = [
            c.latency_ms
            for gpu in self.world.profile(key).spec.gpus
            for c in configurations_of(gpu)
        ]
        return sum(times_ms) / len(times_ms)
