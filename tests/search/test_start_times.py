"""Plans over idle, busy and cold places with their own shares."""

from math import inf, isclose, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Candidate, Prices, RunningContainer
from scheduler.search.planner import Planner, PlanningError, PlanRequest, Rules
from tests.search.factories import CHAIN, catalogue, catalogues
from tests.search.harness import RELATIVE, plan_request, point
from tests.search.naive import NaiveCompletion, best_by_first, completions

ROWS = [(1, 1, 10, 100.0), (2, 1, 10, 150.0), (1, 2, 20, 60.0), (1, 4, 50, 40.0)]
COLD_MS = 3_000.0


def _container(
    cpu: int, gpu_percent: int, free_in_ms: float, memory_mib: int = 10**6, **fields: str
):  # type: ignore[no-untyped-def]
    return RunningContainer(
        gpu_model=fields.get("gpu_model", "gpu"),
        cpu=cpu,
        gpu_percent=gpu_percent,
        memory_mib=memory_mib,
        free_in_ms=free_in_ms,
    )


def _starts(candidates: tuple[Candidate, ...]) -> list[tuple[tuple[int, int, int], float]]:
    return [(point(candidate), candidate.start_ms) for candidate in candidates]


def test_each_share_starts_in_its_soonest_container() -> None:
    """An idle, a busy and an unsuitable container, and a cold start that is too late."""
    planner = Planner(catalogue([[]], [ROWS], slo_ms=200.0))
    containers = (_container(1, 10, 70.0), _container(1, 10, 30.0), _container(2, 20, 0.0))
    request = plan_request(starts_ms=(COLD_MS,), containers=containers)
    plan = planner.plan(request)
    assert plan.feasible
    assert sorted(_starts(plan.candidates)) == [
        ((1, 1, 10), 30.0),
        ((1, 2, 20), 0.0),
        ((2, 1, 10), 30.0),
    ]
    assert all(c.path_ms == c.start_ms + c.stage_ms <= 200.0 for c in plan.candidates)


def test_a_busy_container_that_is_too_late_is_no_place() -> None:
    """The wait and the run exceed the slack."""
    planner = Planner(catalogue([[]], [ROWS], slo_ms=200.0))
    request = plan_request(
        starts_ms=(COLD_MS,), containers=(_container(1, 10, 120.0), _container(4, 50, 120.0))
    )
    assert _starts(planner.plan(request).candidates) == [((1, 4, 50), 120.0)]


def test_a_container_serves_the_batches_that_fit_its_memory() -> None:
    """Its GPU model, vCPUs and share must be those of the configuration."""
    planner = Planner(catalogue([[]], [ROWS], slo_ms=200.0))
    memory_mib = {
        c.batch: c.memory_mib
        for c in planner.stage(plan_request()).tables[0].configurations
        if c.gpu_percent == 10
    }
    small = _container(1, 10, 0.0, min(memory_mib.values()))
    for containers, expected in (
        ((small,), {b for b, mib in memory_mib.items() if mib <= small.memory_mib}),
        ((_container(1, 10, 0.0, gpu_model="other"), _container(1, 11, 0.0)), set()),
    ):
        plan = planner.plan(plan_request(starts_ms=(COLD_MS,), containers=containers))
        assert {c.configuration.batch for c in plan.candidates if plan.feasible} == expected


def test_places_have_k_candidates_each() -> None:
    """One for idle nodes, one for cold nodes, one for containers; all in one order by cost."""
    planner = Planner(catalogue([[]], [ROWS], slo_ms=10_000.0))
    containers = tuple(_container(cpu, percent, 50.0) for cpu, percent in ((1, 10), (2, 20)))
    plan = planner.plan(plan_request(starts_ms=(0.0, COLD_MS), containers=containers, k=2))
    assert sorted(c.start_ms for c in plan.candidates) == [0.0, 0.0, 50.0, 50.0, COLD_MS, COLD_MS]
    order = [(c.path_cost_dollars, c.path_ms) for c in plan.candidates]
    assert order == sorted(order)


def test_a_lost_slo_permits_any_place() -> None:
    """Containers are no part of the plan, as no start is in time."""
    planner = Planner(catalogue([[]], [ROWS], slo_ms=10.0))
    plan = planner.plan(
        plan_request(starts_ms=(0.0, COLD_MS), containers=(_container(1, 10, 0.0),))
    )
    assert not plan.feasible
    assert {c.start_ms for c in plan.candidates} == {COLD_MS}


@pytest.mark.parametrize("free_in_ms", [-1.0, inf, nan])
def test_a_container_is_free_at_some_time(free_in_ms: float) -> None:
    """A container that is never free is left out of the request."""
    planner = Planner(catalogue([[]], [ROWS]))
    with pytest.raises(PlanningError, match="free_in_ms of a container is"):
        planner.plan(plan_request(containers=(_container(1, 10, free_in_ms),)))


def _in_containers(
    catalogue: Catalogue, request: PlanRequest, budget_ms: float, model: str
) -> list[NaiveCompletion]:
    """Return the best completion of each configuration in its soonest container, best first."""
    workflow = catalogue.workflow("default", "w")
    stage = workflow.stage(request.stage)
    assert stage is not None
    gpu = catalogue.profile(stage.function).gpu(model)
    assert gpu is not None
    best = []
    for c in gpu.configurations:
        free_in_ms = [
            container.free_in_ms
            for container in request.containers
            if (container.gpu_model, container.cpu, container.gpu_percent)
            == (model, c.cpu, c.gpu_percent)
            and c.memory_mib <= container.memory_mib
        ]
        own = [
            completion
            for completion in completions(catalogue, Prices(), request)
            if completion.key == (model, (c.batch, c.cpu, c.gpu_percent))
        ]
        if free_in_ms:
            best += best_by_first(own, budget_ms, min(free_in_ms))
    return sorted(best, key=lambda c: c.path_cost_dollars)


@settings(max_examples=100, deadline=None)
@given(
    catalogues(after=CHAIN[:3], models=("one", "two"), configurations_max=4),
    st.sampled_from(("exact", "esg")),
    st.data(),
)
def test_containers_agree_with_brute_force(
    catalogue: Catalogue, policy: str, data: st.DataObject
) -> None:
    """Per GPU model, the K cheapest configurations that some container runs in time."""
    function = catalogue.workflow("default", "w").spec.stages[0].function
    rows = [
        (gpu.model, c) for gpu in catalogue.profile(function).spec.gpus for c in gpu.configurations
    ]
    containers = tuple(
        RunningContainer(
            gpu_model=model,
            cpu=c.cpu,
            gpu_percent=c.gpu_percent,
            memory_mib=c.memory_mib,
            free_in_ms=data.draw(st.sampled_from((0.0, 0.5, 1.0))) * c.latency_ms,
        )
        for model, c in data.draw(st.lists(st.sampled_from(rows), min_size=1, max_size=4))
    )
    rules = Rules(policy=policy, group_size=3)  # type: ignore[arg-type]
    request = plan_request(
        k=data.draw(st.sampled_from((1, 2, 50))), starts_ms=(1e12,), containers=containers
    )
    plan = Planner(catalogue, rules).plan(request)
    assert plan.budget_ms is not None
    expected = {
        model: _in_containers(catalogue, request, plan.budget_ms, model) for model in ("one", "two")
    }
    assert plan.feasible == any(expected.values())
    for model, of_model in expected.items():
        candidates = [c for c in plan.candidates if c.gpu_model == model and plan.feasible]
        assert len(candidates) == min(request.k, len(of_model))
        for candidate, completion in zip(candidates, of_model, strict=False):
            minimum = completion.path_cost_dollars
            limit = minimum * (1 + plan.epsilon) * (1 + RELATIVE)
            assert minimum * (1 - RELATIVE) <= candidate.path_cost_dollars <= limit
            assert isclose(minimum, candidate.path_cost_dollars, rel_tol=RELATIVE) or not plan.exact
            assert candidate.path_ms <= plan.budget_ms * (1 + RELATIVE)
