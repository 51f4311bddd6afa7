"""Control: `exact` with foreknowledge of the next run time, which no real scheduler has."""

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
    """Plans the current stage with its true run time and later stages with their profiled times."""

    name: ClassVar[str] = "oracle"

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._planner = Planner(context.catalogue, replace(context.rules, policy="exact"))

    def candidates(self, request: SchedulingRequest) -> Sequence[Candidate]:
        """Return the cheapest candidates whose true time and best completion fit the slack."""
        context = self.context
        namespace, workflow, name = request.key
        stage = self._planner.stage(
            PlanRequest(
                namespace=namespace, workflow=workflow, stage=name, gpu_models=context.gpu_models
            )
        )
        smallest = min(int(option.table.batch.min()) for option in stage.options)
        ceilings = Ceilings(batch=max(request.queued, smallest))
        options = [_with_noise(option, request.noise) for option in stage.options]
        is_last = stage.horizon is None or stage.horizon.ahead == 0
        limit_ms = with_rounding(
            request.slack_ms / (1.0 if is_last else 1.0 + context.margin_ratio)
        )
        k, expansions_max = context.candidates, context.rules.expansions_max
        rankings = [
            (search(option, ceilings, limit_ms - start_ms, k, expansions_max), start_ms)
            for option in options
            for start_ms in request.starts_ms
        ]
        if any(len(ranking.index) for ranking, _ in rankings):
            return _in_order(rankings, ceilings, fastest=False)
        fastest = context.rules.on_lost_slo == "fastest"
        late = [(rank(option, ceilings, inf, k, fastest=fastest), inf) for option in options]
        return _in_order(late, ceilings, fastest=fastest)


def _with_noise(option: Option, noise_factor: float) -> Option:
    table = option.table
    return Option(replace(table, time_ms=table.time_ms * noise_factor), option.tail)


def _in_order(
    rankings: list[tuple[Ranking, float]], ceilings: Ceilings, *, fastest: bool
) -> tuple[Candidate, ...]:
    candidates = [
        c for ranking, start_ms in rankings for c in ranking.candidates(ceilings, start_ms)
    ]
    if fastest:
        candidates.sort(key=lambda c: (c.path_ms, c.path_cost_dollars))
    else:
        candidates.sort(key=lambda c: (c.path_cost_dollars, c.path_ms))
    return tuple(candidates)
