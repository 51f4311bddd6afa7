"""Least cost of requests by workflow: of the documents that there are now."""

from scheduler.gateway.cost_limits import CostLimits
from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Prices
from scheduler.search.cost_bound import request_bounds_dollars
from workbench.profiles.builders import profile, workflow

KEY = ("default", "w")
ROWS = [(1, 1, 50, 60.0), (4, 1, 50, 90.0)]


async def test_each_workflow_that_can_be_in_time_has_a_limit():
    """One with too short an SLO has none, and neither has one without a profile."""
    documents = Catalogue.of(
        [
            workflow([[]], slo_ms=100.0),
            workflow([[]], name="late", slo_ms=10.0),
            workflow([[]], name="unknown", functions=["missing"]),
            profile("f0", ROWS),
        ]
    )
    limits = CostLimits(documents, Prices())
    await limits.update()
    alone = Catalogue.of([workflow([[]], slo_ms=100.0), profile("f0", ROWS)])
    assert limits.dollars == request_bounds_dollars(alone, Prices())


async def test_limits_follow_the_documents():
    """They are computed again where a document has changed, and only there."""
    workflows, profiles = {KEY: workflow([[]], slo_ms=100.0)}, {"f0": profile("f0", ROWS)}
    limits = CostLimits(Catalogue(workflows, profiles), Prices())
    await limits.update()
    before = limits.dollars
    await limits.update()
    assert limits.dollars is before
    profiles["f0"] = profile("f0", ROWS[:1])
    await limits.update()
    assert limits.dollars[KEY] > before[KEY]
    del workflows[KEY]
    await limits.update()
    assert limits.dollars == {}
