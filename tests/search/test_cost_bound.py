"""The lower bound of the cost: brute force, HiGHS, and the sample documents."""

import random
from itertools import product
from math import inf, lcm

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config

from scheduler.model.catalogue import Catalogue
from scheduler.model.fleet_capacity import FleetCapacity, NodeSize
from scheduler.model.plan import Prices
from scheduler.search.cost_bound import (
    StageLimit,
    mean_bound_dollars,
    request_bounds_dollars,
    stage_limits,
)
from scheduler.search.planner import PlanRequest
from tests.examples import examples
from tests.search.factories import (
    BATCHES,
    FORKS,
    N_OF_MODULES,
    N_SHAPE,
    catalogue,
    catalogues,
    fork_join,
    noisy_catalogue,
)
from tests.search.solvers import Highs, Problem
from workbench.profiles.builders import chain
from workbench.profiles.generated import samples
from workbench.simulation.scenario import Scenario
from workbench.simulation.scenario_catalogue import shaped
from workbench.simulation.workloads.paper import SLO_FACTORS

KEY = ("default", "w")
WHOLE = Prices(vcpu_hour_dollars=3.6e7, gpu_hour_dollars=3.6e8)  # of whole numbers of dollars
UNITS_PER_DOLLAR = lcm(*BATCHES)
ROUNDING = 1e-11
TWO_ENTRIES = ((), (), (0,), (0, 1))
SHAPES = st.one_of(
    st.builds(chain, st.integers(1, 6)),
    st.builds(fork_join, st.integers(3, 7)),
    st.sampled_from((FORKS, N_SHAPE, N_OF_MODULES)),
)


def least_dollars(documents: Catalogue) -> float:
    """Try every configuration of every stage of workflow "w"; its longest path must fit."""
    spec = documents.workflow(*KEY).spec
    rows = [
        [(gpu.model, c) for gpu in profile.spec.gpus for c in gpu.configurations]
        for profile in (documents.profile(stage.function) for stage in spec.stages)
    ]
    minimum_dollars = inf
    for choice in product(*rows):
        ends_ms: dict[str, float] = {}
        for stage, (_, c) in zip(spec.stages, choice, strict=True):  # listed in their order
            ends_ms[stage.name] = c.latency_ms + max(map(ends_ms.get, stage.after), default=0.0)
        if max(ends_ms.values()) <= spec.slo.latency_ms * (1 + ROUNDING):
            dollars = sum(
                Prices().request_cost_dollars(c.latency_ms, c.cpu, c.gpu_percent, c.batch, model)
                for model, c in choice
            )
            minimum_dollars = min(minimum_dollars, dollars)
    return minimum_dollars


@examples(2 if config.DISABLE_JIT else 60)
@given(catalogues(models=("gpu", "other"), configurations_max=3))
def test_is_the_cheapest_of_all_completions(documents: Catalogue) -> None:
    """Brute force over workflows with several entries, forks, joins; inf where none fits."""
    (bound,) = request_bounds_dollars(documents, Prices()).values()
    assert bound == pytest.approx(least_dollars(documents), rel=ROUNDING)
    (stages,) = stage_limits(documents, Prices()).values()
    assert sum(limit.dollars for limit in stages.values()) == pytest.approx(
        0.0 if bound == inf else bound
    )
    if stages:
        check_parts(documents, stages)


def test_resources_without_a_price() -> None:
    """Each part of a cost of 0 is 0."""
    documents = catalogue([[], [0]], [[(1, 1, 50, 10.0), (1, 1, 100, 5.0)]] * 2)
    free = Prices(vcpu_hour_dollars=0.0, gpu_hour_dollars=0.0)
    nothing = StageLimit(dollars=0.0, dollars_per_ms=0.0)
    assert stage_limits(documents, free)[KEY] == {"s0": nothing, "s1": nothing}


@pytest.mark.parametrize("seed", range(4))
def test_of_two_entries_before_a_join(seed: int) -> None:
    """In an order that is not series-parallel the bound is as exact as the recorded completions."""
    rng = random.Random(seed)
    for slo_ms in range(20, 60, 4):
        rows = [
            [(1, 1, percent, rng.choice((1.0, 3.0, 10.0, 30.0))) for percent in (10, 20, 100)]
            for _ in TWO_ENTRIES
        ]
        documents = catalogue(TWO_ENTRIES, rows, slo_ms=slo_ms)
        (bound,) = request_bounds_dollars(documents, Prices()).values()
        assert bound == pytest.approx(least_dollars(documents), rel=ROUNDING)


def check_parts(documents: Catalogue, stages: dict[str, StageLimit]) -> None:
    """Check that each part is the cost of a configuration, and that time costs no less than 0."""
    for stage in documents.workflow(*KEY).spec.stages:
        limit = stages[stage.name]
        assert limit.dollars_per_ms >= 0.0
        assert any(
            Prices().request_cost_dollars(c.latency_ms, c.cpu, c.gpu_percent, c.batch, gpu.model)
            == pytest.approx(limit.dollars)
            for gpu in documents.profile(stage.function).spec.gpus
            for c in gpu.configurations
        )


def test_a_millisecond_is_worth_what_it_saves() -> None:
    """With a tenth less time the workflow needs the faster configuration, or has no other."""
    rows = [(1, 1, 10, 95.0), (1, 1, 100, 50.0)]
    slow, fast = (Prices().request_cost_dollars(ms, 1, gpu, 1) for _, _, gpu, ms in rows)

    def limit_of(configurations: list[tuple[int, int, int, float]], slo_ms: float) -> StageLimit:
        documents = catalogue([[]], [configurations], slo_ms=slo_ms)
        return stage_limits(documents, Prices())[KEY]["s0"]

    limit = limit_of(rows, 100.0)
    assert limit.dollars == slow
    assert limit.dollars_per_ms == pytest.approx((fast - slow) / 10.0)
    assert limit_of(rows[1:], 52.0).dollars_per_ms == 0.0


@examples(2 if config.DISABLE_JIT else 20)
@given(shape=SHAPES, seed=st.integers(0, 2**32), tightness=st.floats(1.0, 3.0))
def test_is_the_optimum_of_the_mixed_integer_program(shape, seed, tightness) -> None:
    """HiGHS proves the same minimum on workflows too large for brute force."""
    documents = noisy_catalogue(shape, 12, seed, digits=0)
    workflow = documents.workflow(*KEY)
    fastest_ms = sum(
        min(c.latency_ms for c in documents.profile(stage.function).spec.gpus[0].configurations)
        for stage in workflow.spec.stages
    )
    limit_ms = round(tightness * fastest_ms)
    slo = workflow.spec.slo.model_copy(update={"latency_ms": float(limit_ms)})
    spec = workflow.spec.model_copy(update={"slo": slo})
    documents = Catalogue.of(
        [workflow.model_copy(update={"spec": spec}), *documents.profiles.values()]
    )
    request = PlanRequest(namespace=KEY[0], workflow=KEY[1], stage=workflow.spec.stages[0].name)
    problem = Problem.of(
        documents, request, limit_ms, WHOLE, units_per_ms=1, units_per_dollar=UNITS_PER_DOLLAR
    )
    solved = Highs(problem).minimum()
    assert solved is not None
    bound = request_bounds_dollars(documents, WHOLE)[KEY]
    assert bound * UNITS_PER_DOLLAR == pytest.approx(solved[0], rel=ROUNDING)


@pytest.mark.parametrize(
    ("setting", "dollars_per_thousand"),
    [("strict", 0.2510), ("moderate", 0.2275), ("relaxed", 0.2095)],
)
def test_of_the_sample_documents(setting: str, dollars_per_thousand: float) -> None:
    """Four workflows of equal rates under the three SLOs of the ESG paper."""
    documents = Catalogue.of(samples())
    scenario = Scenario(slo_factor=SLO_FACTORS[setting])
    scaled = shaped(documents, scenario, tuple(documents.workflows))
    bounds = request_bounds_dollars(scaled, scenario.rules.prices, scenario.fleet)
    assert round(1000 * mean_bound_dollars(bounds), 4) == dollars_per_thousand


def test_workflows_count_by_their_requests() -> None:
    """One without requests does not count, even where it cannot be in time."""
    bounds = {("a", "a"): 1.0, ("a", "b"): 4.0, ("a", "c"): inf}
    assert mean_bound_dollars(bounds, {("a", "a"): 2.0, ("a", "b"): 1.0}) == 2.0
    assert mean_bound_dollars(bounds) == inf


def test_a_fleet_that_holds_less_costs_more() -> None:
    """Configurations that no node can hold do not count."""
    documents = catalogue([[]], [[(1, 1, 100, 10.0), (8, 8, 50, 10.0)]])
    small = FleetCapacity.of([("gpu", NodeSize(4_000, 81_920))], 100)
    assert request_bounds_dollars(documents, Prices(), small)[KEY] > (
        2 * request_bounds_dollars(documents, Prices())[KEY]
    )
