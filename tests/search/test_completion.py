"""A completion is real and consistent with the plan."""

from collections.abc import Sequence
from dataclasses import replace
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Completion, Prices
from scheduler.search.completion import complete
from scheduler.search.planner import Planner, PlanRequest, Rules
from tests.examples import examples
from tests.search.factories import (
    CHAIN,
    FORKS,
    N_OF_MODULES,
    N_SHAPE,
    catalogue,
    catalogues,
    noisy_catalogue,
)
from workbench.profiles.builders import profile

RELATIVE = 1e-9
quick = examples(80)


def _assert_real(known: Catalogue, request: PlanRequest, completion: Completion) -> None:
    """Check that every remaining stage runs once, as profiled, after its predecessors."""
    stages = {s.name: s for s in known.workflow("default", "w").spec.stages}
    ends_ms = {run.stage: run.end_ms for run in completion.runs}
    assert completion.runs[0].stage == request.stage
    assert len(ends_ms) == len(completion.runs)
    for run in completion.runs:
        gpu = known.profile(run.function).gpu(run.gpu_model)
        assert gpu is not None
        c = run.configuration
        assert any(
            (p.batch, p.cpu, p.gpu_percent, p.latency_ms)
            == (c.batch, c.cpu, c.gpu_percent, c.latency_ms)
            for p in gpu.configurations
        )
        before = [ends_ms[p] for p in stages[run.stage].after if p in ends_ms]
        assert run.start_ms == max(before, default=0.0)
        assert isclose(run.end_ms - run.start_ms, c.latency_ms, rel_tol=1e-6, abs_tol=1e-6)
        assert isclose(
            run.cost_dollars,
            Prices().request_cost_dollars(
                c.latency_ms, c.cpu, c.gpu_percent, c.batch, run.gpu_model
            ),
        )


@quick
@given(
    st.one_of(
        catalogues(configurations_max=4, models=("one", "two")),
        catalogues(after=CHAIN, configurations_max=4),
        catalogues(after=FORKS, configurations_max=4),
        catalogues(after=N_SHAPE, configurations_max=4),
        catalogues(after=N_OF_MODULES, configurations_max=3),
    ),
    st.floats(0.5, 3.0),
)
def test_the_service_keeps_its_plan(known: Catalogue, slack_factor: float) -> None:
    """All stages, planned one after the other, cost what the plan of the first one states.

    Each is planned again with the time that is left. A plan that is not exact may be improved.
    """
    planner = Planner(known)
    slack_ms = slack_factor * planner.fastest_ms("default", "w")
    request = PlanRequest(namespace="default", workflow="w", stage="s0", slack_ms=slack_ms)
    plan = planner.plan(request)
    completion = complete(planner, request)
    _assert_real(known, request, completion)
    assert completion.epsilon == plan.epsilon
    if plan.feasible:
        planned_dollars = plan.candidates[0].path_cost_dollars
        assert completion.path_ms <= slack_ms * (1 + RELATIVE)
        assert completion.cost_dollars <= planned_dollars * (1 + RELATIVE)
        assert completion.cost_dollars >= planned_dollars / (1 + plan.epsilon) * (1 - RELATIVE)


@pytest.mark.parametrize("slack_factor", [1.05, 1.2, 1.5])
@pytest.mark.parametrize("after", [CHAIN, FORKS, N_SHAPE, N_OF_MODULES])
def test_later_stages_have_the_margin_that_the_plan_keeps(
    after: Sequence[Sequence[int]], slack_factor: float
) -> None:
    """A completion without time for the whole margin is in time with the part that fits."""
    planner = Planner(noisy_catalogue(after, 40))
    slack_ms = slack_factor * planner.fastest_ms("default", "w")
    request = PlanRequest(
        namespace="default", workflow="w", stage="s0", slack_ms=slack_ms, margin_ratio=0.6
    )
    plan = planner.plan(request)
    assert plan.feasible
    assert plan.margin_ratio < 0.6
    stretch = 1.0 + plan.margin_ratio
    assert complete(planner, request).path_ms * stretch <= slack_ms * (1 + RELATIVE)


@quick
@given(catalogues(configurations_max=4, models=("one", "two")))
def test_a_lost_slo_is_served_fastest_on_request(known: Catalogue) -> None:
    """With ``fastest``, every stage of a late instance runs at its fastest."""
    planner = Planner(known, Rules(on_lost_slo="fastest"))
    slack_ms = 0.5 * planner.fastest_ms("default", "w")
    request = PlanRequest(namespace="default", workflow="w", stage="s0", slack_ms=slack_ms)
    completion = complete(planner, request)
    _assert_real(known, request, completion)
    fastest_ms = planner.fastest_ms("default", "w")
    assert isclose(completion.path_ms, fastest_ms, rel_tol=RELATIVE)


@quick
@given(
    st.one_of(catalogues(configurations_max=4), catalogues(after=CHAIN, configurations_max=4)),
    st.floats(1.0, 3.0),
    st.integers(1, 3),
)
def test_group_after_group(known: Catalogue, slack_factor: float, group_size: int) -> None:
    """The paper's method costs at least as much as the exact plan, if it is in time."""
    exact, grouped = Planner(known), Planner(known, Rules(policy="esg", group_size=group_size))
    slack_ms = slack_factor * exact.fastest_ms("default", "w")
    request = PlanRequest(namespace="default", workflow="w", stage="s0", slack_ms=slack_ms)
    completion = complete(grouped, request)
    _assert_real(known, request, completion)
    if completion.path_ms <= slack_ms:
        assert completion.cost_dollars >= complete(exact, request).cost_dollars * (1 - RELATIVE)


@pytest.mark.parametrize("later_ms", [100.1, 100.2, 100.3, 100.4, 100.6, 100.7])
def test_a_long_stage_leaves_the_time_of_a_short_one(later_ms: float) -> None:
    """The cheapest completion fits its own time, although a sum of times was rounded down."""
    rows = [(1, 1, 10, later_ms), (1, 1, 20, later_ms / 1.5)]
    planner = Planner(catalogue(CHAIN[:2], [[(1, 1, 10, 3_600_000.0)], rows]))
    request = PlanRequest(namespace="default", workflow="w", stage="s0", slack_ms=1e9)
    cheapest = complete(planner, request)
    assert complete(planner, replace(request, slack_ms=cheapest.path_ms)) == cheapest


def test_a_function_alone() -> None:
    """The completion of a function is its best candidate."""
    known = Catalogue.of([profile("f0", [(1, 1, 10, 5.0), (1, 2, 20, 3.0)])])
    request = PlanRequest(namespace="default", workflow=None, stage="f0", slack_ms=4.0)
    (run,) = complete(Planner(known), request).runs
    assert (run.stage, run.function, run.start_ms, run.end_ms) == ("f0", "f0", 0.0, 3.0)


def test_a_cold_start_comes_first() -> None:
    """The current stage runs after its cold start, and the others after it."""
    known = catalogue(CHAIN[:2], [[(1, 1, 10, 5.0)], [(1, 1, 10, 7.0)]])
    request = PlanRequest(
        namespace="default", workflow="w", stage="s0", slack_ms=50.0, starts_ms=(20.0,)
    )
    runs = complete(Planner(known), request).runs
    assert [(run.start_ms, run.end_ms) for run in runs] == [(20.0, 25.0), (25.0, 32.0)]


def test_without_a_slack() -> None:
    """The completion without a slack equals that with the workflow's own budget as the slack."""
    planner = Planner(noisy_catalogue(CHAIN, 40))
    without = PlanRequest(namespace="default", workflow="w", stage="s1")
    within = replace(without, slack_ms=planner.stage(without).slack_ms(None))
    completion = complete(planner, without)
    assert [run.stage for run in completion.runs] == ["s1", "s2", "s3"]
    assert completion == complete(planner, within)
