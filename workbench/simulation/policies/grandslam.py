"""Control: GrandSLAm's split (EuroSys 2019), in which each stage has a constant part of the SLO.

The part is proportional to the stage's time: ``SLO * t / (longest path through the stage)``, where
t is the mean over its configurations and the SLO is reduced by the margin that the objective needs,
as for all policies. The cheapest configuration within the part runs; time lost before the stage is
ignored.
"""

from collections.abc import Sequence
from typing import ClassVar

from scheduler.model.plan import Candidate
from scheduler.search.dag import numbered
from workbench.simulation.containers.configurations import (
    anywhere,
    batches_filled,
    configurations_of,
    warm_first,
)
from workbench.simulation.policies.choices import nearly_fastest
from workbench.simulation.policy import Policy, PolicyContext, QueueKey, SchedulingRequest

AnswerKey = tuple[QueueKey, int, tuple[float, ...]]


class GrandSlam(Policy):
    """Chooses the cheapest configurations within the stage's constant part of the SLO."""

    name: ClassVar[str] = "grandslam"

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._parts_ms: dict[QueueKey, float] = {}
        self._batches: dict[QueueKey, tuple[int, ...]] = {}
        for namespace, workflow in context.catalogue.workflows:
            self._split(namespace, workflow)
        self._answers: dict[AnswerKey, tuple[Candidate, ...]] = {}

    def candidates(self, request: SchedulingRequest) -> Sequence[Candidate]:
        """Return candidates by cost per request; the nearly fastest ones if none meets it."""
        batches = self._batches[request.key]
        batch_max = batches[min(request.queued, len(batches) - 1)]
        key = request.key, batch_max, request.starts_ms
        answer = self._answers.get(key)
        if answer is None:
            candidates = self._choose(request.key, batch_max)
            answer = self._answers[key] = warm_first(candidates, request.starts_ms)
        return answer

    def _choose(self, key: QueueKey, batch_max: int) -> list[Candidate]:
        prices = self.context.rules.prices
        listed = [
            anywhere(
                c,
                gpu.model,
                prices.request_cost_dollars(c.latency_ms, c.cpu, c.gpu_percent, c.batch, gpu.model),
            )
            for gpu in self.context.profile(key).spec.gpus
            for c in configurations_of(gpu)
        ]
        listed = [c for c in listed if c.configuration.batch <= batch_max]
        within = [c for c in listed if c.stage_ms <= self._parts_ms[key]]
        if within:
            listed = sorted(within, key=lambda c: (c.path_cost_dollars, c.stage_ms))
        else:
            listed = nearly_fastest(listed)
        return listed[: self.context.candidates]

    def _split(self, namespace: str, workflow: str) -> None:
        documents = self.context.catalogue.workflow(namespace, workflow)
        names, dag = numbered(documents)
        mean_ms = [self._mean_ms((namespace, workflow, name)) for name in names]
        margin_ratio = self.context.whole_margin_ratio((namespace, workflow))
        slo_ms = documents.spec.slo.latency_ms / (1.0 + margin_ratio)
        for name, own_ms, before_ms, rest_ms in zip(
            names, mean_ms, dag.longest_before(mean_ms), dag.longest_after(mean_ms), strict=True
        ):
            key = namespace, workflow, name
            self._parts_ms[key] = slo_ms * own_ms / (before_ms + rest_ms)
            self._batches[key] = batches_filled(self.context.profile(key))

    def _mean_ms(self, key: QueueKey) -> float:
        times_ms = [
            c.latency_ms
            for gpu in self.context.profile(key).spec.gpus
            for c in configurations_of(gpu)
        ]
        return sum(times_ms) / len(times_ms)
