"""A control that no scheduler can be: `exact`, knowing how long the next run will really take."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import ClassVar

from scheduler.model.plan import Candidate
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.ranking import Ceilings, Ranking, rank, search, with_rounding
from scheduler.search.workflows import Option
from workbench.simulation.policy import Policy, PolicyContext, SchedulingRequest


class Oracle(Policy):
    """The stage at hand is planned with its true time, those after it with their profiles'."""

    name: ClassVar[str] = "oracle"

    def __init__(self, world: PolicyContext) -> None:
        super().__init__(world)
        self._planner = Planner(world.catalogue, replace(world.rules, policy="exact"))

    def candidates(self, question: SchedulingRequest) -> Sequence[Candidate]:
        """The cheapest whose true time and best completion are within the slack."""
        world = self.world
        namespace, workflow, name = question.key
        stage = self._planner.stage(
            PlanRequest(
                namespace=namespace, workflow=workflow, stage=name, gpu_models=world.gpu_models
            )
        )
        smallest = min(int(option.table.batch.min()) for option in stage.options)
        ceilings = Ceilings(batch=max(question.queued, smallest))
        options = [_with_noise(option, question.noise) for option in stage.options]
        is_last = stage.horizon is None or stage.horizon.ahead == 0
        limit_ms = with_rounding(question.slack_ms / (1.0 if is_last else 1.0 + world.margin_ratio))
        k, most = world.candidates, world.rules.expansions_max
        found = [
            (search(option, ceilings, limit_ms - start_ms, k, most), start_ms)
            for option in options
            for start_ms in question.starts_ms
        ]
        if any(len(ranking.index) for ranking, _ in found):
            return _in_order(found, ceilings, fastest=False)
        fastest = world.rules.on_lost_slo == "fastest"
        late = [(rank(option, ceilings, inf, k, fastest=fastest), inf) for option in options]
        return _in_order(late, ceilings, fastest=fastest)


def _with_noise(option: Option, noise: float) -> Option:
    table = option.table
    return Option(replace(table, time_ms=table.time_ms * noise), option.tail)


def _in_order(
    found: list[tuple[Ranking, float]], ceilings: Ceilings, *, fastest: bool
) -> tuple[Candidate, ...]:
    candidates = [c for ranking, start_ms in found for c in ranking.candidates(ceilings, start_ms)]
    if fastest:
        candidates.sort(key=lambda c: (c.path_ms, c.path_cost))
    else:
        candidates.sort(key=lambda c: (c.path_cost, c.path_ms))
    return tuple(candidates)
