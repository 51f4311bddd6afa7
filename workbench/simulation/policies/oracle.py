"""Control: `exact` with foreknowledge of the next run time, which no real scheduler has."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import ClassVar

import numpy as np

from scheduler.model.plan import Candidate
from scheduler.search.frontiers.arrays import Floats
from scheduler.search.frontiers.frontier_arrays import StageQuery
from scheduler.search.planner import Planner, PlanRequest
from scheduler.search.ranking import Ranking, search, with_rounding_ms
from scheduler.search.tables import FunctionTable
from workbench.simulation.policy import Policy, PolicyContext, SchedulingRequest
from workbench.simulation.rng import z_score_of


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
        plan_request = PlanRequest(
            namespace=namespace,
            workflow=workflow,
            stage=name,
            fleet=context.fleet,
            margin_ratio=context.margin_ratio,
        )
        stage = self._planner.stage(plan_request)
        query = StageQuery(
            k=context.candidates,
            batch=max(request.queued, min(int(table.batch.min()) for table in stage.tables)),
        )
        tables = [
            replace(t, time_ms=t.time_ms * self._factors(t, request.noise_factor))
            for t in stage.tables
        ]
        is_last = stage.window.ahead == 0
        limit_ms = with_rounding_ms(
            request.slack_ms / (1.0 if is_last else 1.0 + self._planner.margin_ratio(plan_request))
        )
        others = stage.other_stages(request.progress, limit_ms)
        starts_ms = np.array(request.starts_ms, dtype=np.float64)
        rankings = [search(table, others, query, limit_ms, starts_ms) for table in tables]
        if any(ranking.candidates for ranking in rankings):
            return _in_order(rankings, fastest=False)
        fastest = context.rules.on_lost_slo == "fastest"
        others = stage.other_stages(request.progress, inf)
        anywhere_ms = starts_ms.max(keepdims=True)
        late = [search(t, others, query, inf, anywhere_ms, fastest=fastest) for t in tables]
        return _in_order(late, fastest=fastest)

    def _factors(self, table: FunctionTable, common_factor: float) -> Floats:
        """Return the factor on the next run time under each configuration, (n,)."""
        context = self.context
        if not (context.profiled_noise and context.noise_ratio):
            return np.full(len(table.time_ms), common_factor)
        sigmas = np.sqrt(np.log1p(table.deviation_ratio**2))
        z_score = z_score_of(common_factor, context.noise_ratio)
        return np.asarray(np.exp(sigmas * z_score - sigmas**2 / 2), np.float64)


def _in_order(rankings: list[Ranking], *, fastest: bool) -> tuple[Candidate, ...]:
    candidates = [candidate for ranking in rankings for candidate in ranking.candidates]
    if fastest:
        candidates.sort(key=lambda c: (c.path_ms, c.path_cost_dollars))
    else:
        candidates.sort(key=lambda c: (c.path_cost_dollars, c.path_ms))
    return tuple(candidates)
