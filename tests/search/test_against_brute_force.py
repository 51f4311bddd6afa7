"""Plans are equal to those of brute force, on workflows small enough for it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import GridPoint
from scheduler.model.plan import Prices
from scheduler.search.planner import Planner, PlanningError, PlanRequest
from scheduler.search.rules import Rules
from tests.search.factories import CHAIN, N_OF_MODULES, N_SHAPE, catalogues
from tests.search.harness import assert_agrees, plan_request, prepared
from tests.search.naive import completions

TWO_N = ((), (0,), (0,), (1, 2), (2,), (3, 4), (4,))

thorough = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _slack_ms(draw: st.DrawFn, catalogue: Catalogue, request: PlanRequest) -> float | None:
    """Draw no slack, any slack, or the exact time of a completion: the edge of feasibility."""
    kind = draw(st.sampled_from(("none", "any", "exact", "exact", "exact")))
    if kind == "none":
        return None
    if kind == "any":
        return draw(st.floats(-1.0, 4e6))
    candidates = completions(catalogue, Prices(), request)
    return draw(st.sampled_from(candidates)).path_ms if candidates else None


def _check(draw: st.DrawFn, catalogue: Catalogue, **limits: Any) -> None:
    workflow = catalogue.workflow("default", "w")
    stage = draw(st.sampled_from([s.name for s in workflow.spec.stages]))
    request = plan_request(stage=stage, k=draw(st.sampled_from((1, 2, 5, 50))), **limits)
    request = replace(request, slack_ms=_slack_ms(draw, catalogue, request))
    on_lost_slo = draw(st.sampled_from(("fastest", "cheapest")))
    planner = Planner(catalogue, Rules(on_lost_slo=on_lost_slo))
    if completions(catalogue, Prices(), request):
        if draw(st.booleans()):
            assert prepared(planner, request).prepared
        assert_agrees(catalogue, request, planner.plan(request), on_lost_slo=on_lost_slo)
    else:
        with pytest.raises(PlanningError, match="no configuration"):
            planner.plan(request)


@thorough
@given(catalogues(after=CHAIN, configurations_max=4), st.data())
def test_chains(catalogue: Catalogue, data: st.DataObject) -> None:
    """On a chain, feasibility, the K costs and every candidate are those of brute force."""
    _check(data.draw, catalogue)


@thorough
@given(catalogues(), st.data())
def test_dags(catalogue: Catalogue, data: st.DataObject) -> None:
    """On any DAG of up to four stages, every plan is that of brute force."""
    _check(data.draw, catalogue)


@thorough
@given(catalogues(after=N_SHAPE, configurations_max=4), st.data())
def test_orders_that_are_not_series_parallel(catalogue: Catalogue, data: st.DataObject) -> None:
    """Plans by A* and by a refined frontier are those of brute force."""
    _check(data.draw, catalogue)


@settings(thorough, max_examples=40)
@given(catalogues(after=TWO_N, configurations_max=2), st.data())
def test_larger_orders_that_are_not_series_parallel(
    catalogue: Catalogue, data: st.DataObject
) -> None:
    """A* is also correct over several depths."""
    _check(data.draw, catalogue)


@settings(thorough, max_examples=40)
@given(catalogues(after=N_OF_MODULES, configurations_max=2), st.data())
def test_modules_within_other_orders(catalogue: Catalogue, data: st.DataObject) -> None:
    """A chain or a fork inside such an order acts as one stage, and so does an enclosing module."""
    _check(data.draw, catalogue)


@thorough
@given(catalogues(after=CHAIN[:3]), st.data())
def test_ceilings_queue_and_rate(catalogue: Catalogue, data: st.DataObject) -> None:
    """Ceilings, a queue and a rate limit only the current stage."""
    _check_limits(data, catalogue)


@settings(thorough, max_examples=80)
@given(catalogues(after=N_SHAPE, configurations_max=3), st.data())
def test_ceilings_queue_and_rate_under_astar(catalogue: Catalogue, data: st.DataObject) -> None:
    """The same holds for plans by A* and by a refined frontier."""
    _check_limits(data, catalogue)


@thorough
@given(catalogues(after=CHAIN[:3], models=("one", "two"), configurations_max=3), st.data())
def test_several_gpu_models(catalogue: Catalogue, data: st.DataObject) -> None:
    """Candidates of all permitted GPU models are in one order."""
    models = data.draw(st.sampled_from((None, {"one"}, {"two", "three"}, {"one", "two"})))
    _check(data.draw, catalogue, gpu_models=models and frozenset(models))


@thorough
@given(catalogues(after=CHAIN[:3], models=("one", "two"), configurations_max=3), st.data())
def test_nodes_that_start_late(catalogue: Catalogue, data: st.DataObject) -> None:
    """Each start time has its own K candidates within the remaining time."""
    starts_ms = data.draw(st.sets(st.floats(0.0, 1e5), min_size=1, max_size=3))
    _check(data.draw, catalogue, starts_ms=tuple(starts_ms))


@thorough
@given(catalogues(after=CHAIN[:2], models=("one", "two"), configurations_max=3), st.data())
def test_one_configuration(catalogue: Catalogue, data: st.DataObject) -> None:
    """The current stage has one configuration, on each GPU model that is profiled with it."""
    profile = catalogue.profiles[catalogue.workflows["default", "w"].spec.stages[0].function]
    rows = [c for gpu in profile.spec.gpus for c in gpu.configurations]
    row = data.draw(st.sampled_from(rows))
    point = GridPoint(batch=row.batch, cpu=row.cpu, gpu_percent=row.gpu_percent)
    queued = data.draw(st.sampled_from((None, 1)))
    _check(data.draw, catalogue, configuration=point, queued=queued)


def _check_limits(data: st.DataObject, catalogue: Catalogue) -> None:
    limits = {
        "cpu_max": data.draw(st.sampled_from((None, 4, 2, 1))),
        "gpu_percent_max": data.draw(st.sampled_from((None, 100, 50, 20))),
        "memory_mib_max": data.draw(st.sampled_from((None, 800, 300))),
        "queued": data.draw(st.sampled_from((None, 0, 1, 2, 3, 1000))),
        "rate": data.draw(st.one_of(st.none(), st.floats(1e-4, 1e4))),
    }
    _check(data.draw, catalogue, **limits)
