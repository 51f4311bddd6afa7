"""Least cost of a request of each workflow, computed again where documents have changed."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

from scheduler.dispatch.requests import WorkflowKey
from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.plan import Prices
from scheduler.search.cost_bound import request_bounds_dollars
from scheduler.search.planner import PlanningError


class CostLimits:
    """Limits of the workflows of one catalogue.

    Attributes:
        dollars: least cost of a request in time, by workflow. One that cannot be in time, or has a
            stage without a profile, has none.

    Args:
        catalogue: workflows and profiles, which change meanwhile.
        prices: prices of vCPUs and GPUs.
    """

    def __init__(self, catalogue: Catalogue, prices: Prices) -> None:
        self._catalogue = catalogue
        self._prices = prices
        self._documents: tuple[list[Workflow], list[FunctionProfile]] = ([], [])
        self.dollars: Mapping[WorkflowKey, float] = {}

    async def update(self) -> None:
        """Compute the limits, beside the event loop, if a document has changed."""
        workflows = list(self._catalogue.workflows.values())
        profiles = list(self._catalogue.profiles.values())
        before = self._documents
        if _differ(workflows, before[0]) or _differ(profiles, before[1]):
            self._documents = workflows, profiles
            self.dollars = await asyncio.to_thread(self._compute, workflows, profiles)

    def _compute(
        self, workflows: Iterable[Workflow], profiles: Iterable[FunctionProfile]
    ) -> dict[WorkflowKey, float]:
        by_name = {profile.metadata.name: profile for profile in profiles}
        bounds: dict[WorkflowKey, float] = {}
        for workflow in workflows:
            if all(stage.function in by_name for stage in workflow.spec.stages):
                catalogue = Catalogue({workflow.key: workflow}, by_name)
                try:
                    bounds |= request_bounds_dollars(catalogue, self._prices)
                except PlanningError:
                    continue
        return {key: dollars for key, dollars in bounds.items() if isfinite(dollars)}


def _differ(documents: Sequence[object], before: Sequence[object]) -> bool:
    return len(documents) != len(before) or any(
        a is not b for a, b in zip(documents, before, strict=True)
    )
