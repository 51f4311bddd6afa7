"""Plans are equal to those of brute force, on workflows small enough for it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import GridPoint, ProfiledConfiguration
from scheduler.model.fleet_capacity import FleetCapacity, NodeSize
from scheduler.model.plan import Prices
from scheduler.model.progress import InstanceProgress
from scheduler.search.planner import Planner, PlanningError, PlanRequest
from scheduler.search.rules import Rules
from tests.examples import examples
from tests.search.factories import CHAIN, FORKS, N_OF_MODULES, N_SHAPE, catalogues
from tests.search.harness import assert_agrees, plan_request
from tests.search.naive import completions

PART = st.sampled_from((0.0, 0.5, 1.0))  # of a run
TWO_N = ((), (0,), (0,), (1, 2), (2,), (3, 4), (4,))

thorough = examples(150)


def _small(after: Sequence[Sequence[int]]) -> st.SearchStrategy[Catalogue]:
    return catalogues(after=after, configurations_max=3)


def _slack_ms(draw: st.DrawFn, catalogue: Catalogue, request: PlanRequest) -> float | None:
    """Draw no slack, any slack, or the exact time of a completion: the edge of feasibility."""
    kind = draw(st.sampled_from(("none", "any", "exact", "exact", "exact")))
    if kind == "none":
        return None
    if kind == "any":
        return draw(st.floats(-1.0, 4e6))
    candidates = completions(catalogue, Prices(), request)
    if not candidates:
        return None
    candidate = draw(st.sampled_from(candidates))
    return max(candidate.path_ms, candidate.others_ms)


def _progress(draw: st.DrawFn, catalogue: Catalogue, stage: str) -> InstanceProgress:
    """Draw stages in parallel with a stage that have ended or run."""
    after = {s.name: set(s.after) for s in catalogue.workflow("default", "w").spec.stages}
    behind = {stage}
    before = set(after[stage])
    for name, predecessors in after.items():  # in topological order
        if predecessors & behind:
            behind.add(name)
    for name, predecessors in reversed(after.items()):
        if name in before:
            before |= predecessors
    ended, running_ms = set(before), {}
    for name, predecessors in after.items():
        if name not in before | behind and predecessors <= ended:
            match draw(st.sampled_from(("open", "runs", "ended"))):
                case "ended":
                    ended.add(name)
                case "runs":
                    times_ms = [c.latency_ms for c in _rows(catalogue, name)]
                    running_ms[name] = draw(st.sampled_from(times_ms)) * draw(PART)
    return InstanceProgress(frozenset(ended), running_ms)


def _rows(catalogue: Catalogue, stage: str) -> list[ProfiledConfiguration]:
    """Return the profiled configurations of a stage on all GPU models."""
    document = catalogue.workflow("default", "w").stage(stage)
    assert document is not None
    return [c for gpu in catalogue.profile(document.function).spec.gpus for c in gpu.configurations]


def _check(draw: st.DrawFn, catalogue: Catalogue, *, exact: bool = True, **limits: Any) -> None:
    workflow = catalogue.workflow("default", "w")
    stage = draw(st.sampled_from([s.name for s in workflow.spec.stages]))
    request = plan_request(stage=stage, k=draw(st.sampled_from((1, 2, 5, 50))), **limits)
    request = replace(request, progress=_progress(draw, catalogue, stage))
    request = replace(request, slack_ms=_slack_ms(draw, catalogue, request))
    on_lost_slo = draw(st.sampled_from(("fastest", "cheapest")))
    planner = Planner(catalogue, Rules(on_lost_slo=on_lost_slo))
    if completions(catalogue, Prices(), request):
        plan = planner.plan(request)
        assert plan.exact or not exact
        if not _running_stage_is_late(catalogue, request):
            assert_agrees(catalogue, request, plan, on_lost_slo=on_lost_slo)
    else:
        with pytest.raises(PlanningError, match=r"no configuration|no node can hold"):
            planner.plan(request)


def _running_stage_is_late(catalogue: Catalogue, request: PlanRequest) -> bool:
    """Return true if no completion is in time because of stages that run already."""
    planned = completions(catalogue, Prices(), request)
    others_ms = min(c.others_ms for c in planned)
    slack_ms = Planner(catalogue).stage(request).budget_ms(request.slack_ms)
    return bool(request.progress.running_ms) and slack_ms is not None and others_ms > slack_ms


@thorough
@given(catalogues(after=CHAIN, configurations_max=4), st.data())
def test_chains(catalogue: Catalogue, data: st.DataObject) -> None:
    """On a chain, feasibility, the K costs and every candidate are those of brute force."""
    _check(data.draw, catalogue)


@thorough
@given(catalogues(), st.data())
def test_dags(catalogue: Catalogue, data: st.DataObject) -> None:
    """On any DAG of up to four stages, every plan is that of brute force."""
    _check(data.draw, catalogue, exact=False)


@thorough
@given(catalogues(after=N_SHAPE, configurations_max=4), st.data())
def test_orders_that_are_not_series_parallel(catalogue: Catalogue, data: st.DataObject) -> None:
    """Plans by recorded completions are within their epsilon of those of brute force."""
    _check(data.draw, catalogue, exact=False)


@thorough
@given(catalogues(after=FORKS, configurations_max=3), st.data())
def test_forks(catalogue: Catalogue, data: st.DataObject) -> None:
    """Parallel branches of several stages and several entries are planned together."""
    _check(data.draw, catalogue)


@examples(40)
@given(catalogues(after=TWO_N, configurations_max=2), st.data())
def test_larger_orders_that_are_not_series_parallel(
    catalogue: Catalogue, data: st.DataObject
) -> None:
    """The same holds over several depths."""
    _check(data.draw, catalogue, exact=False)


@examples(40)
@given(catalogues(after=N_OF_MODULES, configurations_max=2), st.data())
def test_modules_within_other_orders(catalogue: Catalogue, data: st.DataObject) -> None:
    """A chain or a fork inside such an order acts as one stage, and so does an enclosing module."""
    _check(data.draw, catalogue, exact=False)


@thorough
@given(catalogues(after=CHAIN[:3]), st.data())
def test_ceilings_queue_and_rate(catalogue: Catalogue, data: st.DataObject) -> None:
    """Ceilings, a queue and a rate limit only the current stage."""
    _check_limits(data, catalogue)


@examples(80)
@given(catalogues(after=N_SHAPE, configurations_max=3), st.data())
def test_ceilings_queue_and_rate_in_any_order(catalogue: Catalogue, data: st.DataObject) -> None:
    """The same holds for plans by recorded completions."""
    _check_limits(data, catalogue, exact=False)


@thorough
@given(catalogues(after=CHAIN[:3], models=("one", "two"), configurations_max=3), st.data())
def test_several_gpu_models(catalogue: Catalogue, data: st.DataObject) -> None:
    """Candidates of all permitted GPU models are in one order."""
    models = data.draw(st.sampled_from((None, {"one"}, {"two", "three"}, {"one", "two"})))
    _check(data.draw, catalogue, fleet=models and FleetCapacity.of_models(models))


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


@st.composite
def fleets(draw: st.DrawFn) -> FleetCapacity:
    """Draw nodes with one or two GPU models; some hold everything, some nothing."""
    sizes = st.builds(
        NodeSize,
        st.sampled_from((900, 1_000, 1_900, 2_100, 4_000, 5_000)),
        st.sampled_from((99, 100, 250, 399, 800)),
    )
    nodes = st.tuples(st.sampled_from(("one", "two")), sizes)
    return FleetCapacity.of(
        draw(st.lists(nodes, min_size=1, max_size=5)), draw(st.sampled_from((100, 50)))
    )


@thorough
@given(
    catalogues(after=CHAIN[:3], models=("one", "two"), configurations_max=3), fleets(), st.data()
)
def test_nodes_of_any_size(catalogue: Catalogue, fleet: FleetCapacity, data: st.DataObject) -> None:
    """A configuration counts if some node can hold it, and else for no stage."""
    other_cpu_milli = data.draw(st.sampled_from((0, 0, 100, 1_000)))
    _check(data.draw, catalogue, fleet=fleet, other_cpu_milli=other_cpu_milli)


def _check_limits(data: st.DataObject, catalogue: Catalogue, *, exact: bool = True) -> None:
    limits = {
        "cpu_max": data.draw(st.sampled_from((None, 4, 2, 1))),
        "gpu_percent_max": data.draw(st.sampled_from((None, 100, 50, 20))),
        "memory_mib_max": data.draw(st.sampled_from((None, 800, 300))),
        "queued": data.draw(st.sampled_from((None, 0, 1, 2, 3, 1000))),
        "rate_rps": data.draw(st.one_of(st.none(), st.floats(1e-4, 1e4))),
    }
    _check(data.draw, catalogue, exact=exact, **limits)
