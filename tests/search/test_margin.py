"""With the margin, a workflow meets its objective although run times vary."""

import math
from collections.abc import Sequence
from dataclasses import replace
from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.model.document_reader import read_documents
from scheduler.model.documents import Document, FunctionProfile
from scheduler.search.margin import (
    P95_Z,
    Margin,
    PathStage,
    log_normal_spread_ratio,
    quantile_ratio,
)
from scheduler.search.planner import Planner, PlanningError, PlanRequest
from scheduler.search.rules import SPREAD_RATIO, Rules
from tests.search.factories import FORKS, N_SHAPE, catalogue, fork_join
from tests.search.harness import plan_request
from workbench.profiles.builders import chain
from workbench.profiles.generated import sample_documents

OBJECTIVES = st.floats(0.6, 0.9999)
SPREADS = st.floats(0.0, 0.5)
ROWS = [(1, 1, 50, 20.0), (1, 1, 100, 10.0)]


@pytest.fixture(scope="module")
def planner() -> Planner:
    documents: list[Document] = []
    for name, text in sample_documents().items():
        documents += read_documents(text, name)[0]
    return Planner(Catalogue.of(documents))


def equal_stages(count: int, spread_ratio: float) -> list[PathStage]:
    """Create a path of equal stages of function "f"."""
    return [PathStage(1.0 / count, spread_ratio)] * count


def with_p95(ratios: dict[int, float | None], rules: Rules | None = None) -> Planner:
    """Create a planner of a single stage whose configurations have these p95 / mean, by row."""
    documents = catalogue([[]], [ROWS], slo_ms=100.0)
    profile = documents.profile("f0").model_dump(by_alias=True)
    for row, ratio in ratios.items():
        configuration = profile["spec"]["gpus"][0]["configurations"][row]
        configuration["p95Ms"] = None if ratio is None else ratio * configuration["latencyMs"]
    measured = FunctionProfile.model_validate(profile)
    return Planner(Catalogue.of([*documents.workflows.values(), measured]), rules or Rules())


@pytest.mark.parametrize(("objective_ratio", "least_ratio"), [(0.95, 0.934), (0.99, 0.988)])
@pytest.mark.parametrize("p95_ratio", [1.3, 2.0])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_median_that_is_read_as_the_mean(
    count: int, p95_ratio: float, objective_ratio: float, least_ratio: float
) -> None:
    """The margin makes up for the lower times: docs/algorithm.md has the figures."""
    path = equal_stages(count, log_normal_spread_ratio(p95_ratio))
    planned = 1.0 + Margin(path, objective_ratio).ratio
    sigma = log(p95_ratio) / P95_Z  # of times with a median of 1
    times = np.exp(sigma * np.random.default_rng(1).standard_normal((400_000, count))).mean(axis=1)
    assert np.mean(times <= planned) >= least_ratio


def margin_ratio(planner: Planner, **fields: object) -> float:
    """Return the derived margin of the first stage."""
    return planner.margin_ratio(plan_request(margin_ratio=None, **fields))


# -- the rule


@given(OBJECTIVES, OBJECTIVES, SPREADS, st.integers(1, 8))
def test_a_higher_objective_needs_more(
    low_ratio: float, high_ratio: float, spread_ratio: float, count: int
) -> None:
    """The margin grows with the objective."""
    path = equal_stages(count, spread_ratio)
    assert (
        Margin(path, min(low_ratio, high_ratio)).ratio
        <= Margin(path, max(low_ratio, high_ratio)).ratio
    )


@given(OBJECTIVES, st.floats(0.0, 0.2), st.floats(0.0, 0.2), st.integers(1, 8))
def test_a_larger_spread_needs_more(
    objective_ratio: float, low_ratio: float, high_ratio: float, count: int
) -> None:
    """The margin grows with the spread."""
    low, high = (
        equal_stages(count, spread_ratio) for spread_ratio in sorted((low_ratio, high_ratio))
    )
    assert Margin(low, objective_ratio).ratio <= Margin(high, objective_ratio).ratio + 1e-12


@given(OBJECTIVES, st.floats(0.01, 0.2), st.integers(1, 16))
def test_more_stages_need_less(objective_ratio: float, spread_ratio: float, count: int) -> None:
    """Independent times average out over the stages of a path."""
    few, many = (
        Margin(equal_stages(n, spread_ratio), objective_ratio).ratio for n in (count, count + 1)
    )
    assert many <= few


@given(OBJECTIVES, SPREADS, st.integers(1, 16))
def test_every_path_must_be_in_time(
    objective_ratio: float, spread_ratio: float, paths: int
) -> None:
    """With several paths each is in time more often than the objective says."""
    path = equal_stages(2, spread_ratio)
    one, several = (Margin(path, objective_ratio, n).ratio for n in (1, paths))
    assert several >= one
    expected = Margin(path, objective_ratio ** (1 / paths)).ratio
    assert several == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_more_paths_than_any_ratio_can_tell_apart() -> None:
    """The margin stays finite where the objective of each path rounds to 1."""
    path = equal_stages(8, 0.1)
    assert Margin(path, 0.999, 10**6).ratio < Margin(path, 0.999, 10**18).ratio < 1.0


@given(OBJECTIVES, st.integers(1, 16), st.integers(1, 16))
def test_times_that_never_vary_need_nothing(objective_ratio: float, count: int, paths: int) -> None:
    """Without a spread there is no margin."""
    assert Margin(equal_stages(count, 0.0), objective_ratio, paths).ratio == 0.0


@pytest.mark.parametrize("objective_ratio", [0.9, 0.99, 0.999])
@pytest.mark.parametrize("weights", [(1.0,), (0.5, 0.5), (0.7, 0.2, 0.1)])
@pytest.mark.parametrize("spread_ratio", [0.05, 0.1, 0.2])
def test_the_margin_is_the_quantile_of_the_sum(
    objective_ratio: float, weights: tuple[float, ...], spread_ratio: float
) -> None:
    """Sums of random log-normal times are within the margin as often as the objective says."""
    sigma = sqrt(log(1.0 + spread_ratio**2))
    noise = np.random.default_rng(0).normal(-(sigma**2) / 2, sigma, (400_000, len(weights)))
    times = np.exp(noise) @ np.array(weights)
    path = [PathStage(weight, spread_ratio) for weight in weights]
    in_time = np.mean(times <= 1.0 + Margin(path, objective_ratio).ratio)
    assert in_time == pytest.approx(objective_ratio, abs=0.5 * (1.0 - objective_ratio))


@given(st.floats(0.0, P95_Z))
def test_the_spread_gives_the_percentile(sigma: float) -> None:
    """A p95 yields the log-normal distribution that has it."""
    expected = sqrt(exp(sigma**2) - 1.0)
    assert log_normal_spread_ratio(quantile_ratio(P95_Z, sigma)) == pytest.approx(
        expected, abs=1e-6, rel=1e-6
    )


def test_ratios_that_no_log_normal_time_has() -> None:
    """They count as the nearest one."""
    assert (
        log_normal_spread_ratio(100.0)
        == log_normal_spread_ratio(4.0)
        == pytest.approx(sqrt(exp(P95_Z**2) - 1.0))
    )
    assert log_normal_spread_ratio(0.5) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("objective_ratio", [0.9, 0.99, 0.999])
@pytest.mark.parametrize(
    "after",
    [fork_join(10), FORKS, N_SHAPE, ((), (0,), (0,), (0,), (0,)), ((), (), (0, 1), (0, 1), (2, 3))],
    ids=["fork and join", "forks", "N", "several ends", "layers"],
)
def test_requests_are_in_time_on_all_paths(
    after: Sequence[Sequence[int]], objective_ratio: float
) -> None:
    """Stages that cannot make up for one another are in time as often as the objective says."""
    spread_ratio, count = 0.2, 400_000
    documents = catalogue(after, [[(1, 1, 50, 10.0)]] * len(after))
    (workflow,) = documents.workflows.values()
    slo = workflow.spec.slo.model_copy(update={"objective": objective_ratio})
    spec = workflow.spec.model_copy(update={"slo": slo})
    documents = Catalogue.of(
        [workflow.model_copy(update={"spec": spec}), *documents.profiles.values()]
    )
    planner = Planner(documents, Rules(spread_ratio=spread_ratio))
    sigma = sqrt(log(1.0 + spread_ratio**2))
    noise = np.random.default_rng(0).normal(-(sigma**2) / 2, sigma, (count, len(after)))
    ends_ms: list[np.ndarray] = []
    for before, factors in zip(after, np.exp(noise).T, strict=True):
        ends_ms.append(10.0 * factors + np.max([ends_ms[p] for p in before], axis=0, initial=0.0))
    limit_ms = planner.fastest_ms("default", "w") * (1.0 + margin_ratio(planner))
    in_time = np.mean(np.max(ends_ms, axis=0) <= limit_ms)
    assert in_time >= objective_ratio - 2.0 * sqrt(objective_ratio * (1 - objective_ratio) / count)


# -- from documents


def test_a_profile_without_p95() -> None:
    """Its run times have the spread of the rules."""
    expected = Margin([PathStage(1.0, SPREAD_RATIO)], 0.99).ratio
    assert margin_ratio(with_p95({})) == pytest.approx(expected)
    assert margin_ratio(with_p95({}, Rules(spread_ratio=0.0))) == 0.0


def test_a_measured_p95_counts() -> None:
    """The margin of a single stage is the quantile of its time."""
    sigma = 0.1
    planner = with_p95(dict.fromkeys((0, 1), quantile_ratio(P95_Z, sigma)))
    expected = exp(2.3263 * sigma - sigma**2 / 2) - 1
    assert margin_ratio(planner) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("measured_row", [0, 1])
def test_unmeasured_configurations_are_not_better(measured_row: int) -> None:
    """They vary as much as the measured ones, and are as slow under percentiles."""
    some, whole = with_p95({measured_row: 1.3}), with_p95({0: 1.3, 1: 1.3})
    assert margin_ratio(some) == pytest.approx(margin_ratio(whole))
    some, whole = (
        with_p95(ratios, Rules(latency="p95")) for ratios in ({measured_row: 1.3}, {0: 1.3, 1: 1.3})
    )
    times_ms = [[c.stage_ms for c in p.plan(plan_request()).candidates] for p in (some, whole)]
    assert times_ms[0] == pytest.approx(times_ms[1])


def test_planned_percentiles_contain_most_of_the_margin() -> None:
    """Under ESG_LATENCY=p95 the same requests are in time."""
    ratios: dict[int, float | None] = dict.fromkeys((0, 1), 1.3)
    mean, p95 = (with_p95(ratios, Rules(latency=latency)) for latency in ("mean", "p95"))
    assert (1 + margin_ratio(p95)) * 1.3 == pytest.approx(1 + margin_ratio(mean))
    assert margin_ratio(p95) > 0.0


def test_later_stages_have_a_larger_margin() -> None:
    """It grows from stage to stage, up to that of a single stage."""
    planner = Planner(catalogue(chain(4), [ROWS] * 4, slo_ms=200.0))
    ratios = [margin_ratio(planner, stage=f"s{v}") for v in range(4)]
    assert ratios == sorted(ratios)
    assert ratios[-1] == pytest.approx(margin_ratio(with_p95({})))
    whole = planner.workflow("default", "w").whole_margin().ratio
    assert whole == pytest.approx(ratios[0])


def test_a_function_without_a_workflow_has_the_default_objective() -> None:
    """A pod with a deadline alone is planned with a margin too."""
    planner = Planner(catalogue([[]], [ROWS]))
    alone = margin_ratio(planner, workflow=None, stage="f0", slack_ms=100.0)
    assert alone == pytest.approx(margin_ratio(planner))


# -- plans


@pytest.mark.parametrize("slack_ms", [None, 400.0])
@pytest.mark.parametrize("margin_ratio", [0.0, 0.09, 0.2, None])
def test_every_path_stretched_by_the_margin_fits(
    planner: Planner, slack_ms: float | None, margin_ratio: float | None
) -> None:
    """If every stage takes longer by the margin, the remaining time suffices."""
    request = PlanRequest(
        namespace="default",
        workflow="image-classification",
        stage="super-resolution",
        slack_ms=slack_ms,
        margin_ratio=margin_ratio,
    )
    plan = planner.plan(request)
    remaining_ms = 526.0 if slack_ms is None else slack_ms
    stretch = 1 + planner.margin_ratio(request)
    assert plan.margin_ratio == planner.margin_ratio(request)
    assert stretch == 1 + margin_ratio if margin_ratio is not None else stretch > 1.0
    assert plan.budget_ms == pytest.approx(remaining_ms / stretch)
    assert plan.feasible
    assert all(c.path_ms * stretch <= remaining_ms * (1 + 1e-9) for c in plan.candidates)


@pytest.mark.parametrize(
    ("slack_ms", "parts", "paths_ms"),
    [
        (34.0, 4, [20.0]),  # 34 / 1.7
        (33.9, 3, [20.0]),
        (30.6, 3, [20.0]),  # 20 * 1.525
        (30.4, 2, [20.0]),
        (27.0, 2, [20.0]),
        (23.6, 1, [20.0]),
        (23.4, 0, [20.0]),
        (20.0, 0, [20.0]),
    ],
)
def test_no_slo_is_given_up_for_a_margin(
    slack_ms: float, parts: int, paths_ms: list[float]
) -> None:
    """Without time for the whole margin the plan keeps the largest quarter of it that fits."""
    planner = Planner(catalogue(chain(2), [ROWS, ROWS], slo_ms=100.0))
    plan = planner.plan(plan_request(slack_ms=slack_ms, margin_ratio=0.7))
    assert (plan.feasible, plan.message) == (True, "")
    assert plan.margin_ratio == pytest.approx(0.7 * parts / 4)
    assert plan.budget_ms == pytest.approx(slack_ms / (1 + 0.7 * parts / 4))
    assert [c.path_ms for c in plan.candidates] == paths_ms


def test_a_lost_slo_has_no_margin() -> None:
    """The message has all the time that remains."""
    planner = Planner(catalogue(chain(2), [ROWS, ROWS], slo_ms=100.0))
    plan = planner.plan(plan_request(slack_ms=19.9, margin_ratio=0.7))
    assert (plan.feasible, plan.budget_ms, plan.margin_ratio) == (False, 19.9, 0.0)
    assert plan.message.startswith("the SLO is lost: 19.9 ms left, and the fastest completion")


def test_siblings_outweigh_the_margin_too() -> None:
    """A sibling without time for the margin reduces it, and one that is too late loses the SLO."""
    slow = [(1, 1, 50, 30.0)]
    planner = Planner(catalogue([[], []], [ROWS, slow], slo_ms=100.0))
    plan = planner.plan(plan_request(slack_ms=36.1, margin_ratio=0.4))
    assert plan.feasible
    assert plan.margin_ratio == pytest.approx(0.2)
    assert not planner.plan(plan_request(slack_ms=29.0, margin_ratio=0.4)).feasible


def test_the_slo_outweighs_the_margin_for_each_start() -> None:
    """A start that leaves too little for any completion has no candidate."""
    planner = Planner(catalogue(chain(2), [ROWS, ROWS], slo_ms=100.0))
    plan = planner.plan(plan_request(slack_ms=32.0, margin_ratio=0.7, starts_ms=(0.0, 0.9, 15.0)))
    assert plan.feasible
    assert {c.start_ms for c in plan.candidates} == {0.0, 0.9}
    assert all(c.path_ms <= 32.0 for c in plan.candidates)


# -- waits at later stages


@pytest.mark.parametrize(
    ("slack_ms", "parts", "margin_parts"),
    [
        (74.0, 4, 4),  # 34 + 40
        (73.9, 3, 4),
        (64.0, 3, 4),
        (63.9, 2, 4),
        (44.0, 1, 4),
        (43.9, 0, 4),
        (34.0, 0, 4),
        (33.9, 0, 3),
        (20.0, 0, 0),
    ],
)
def test_no_slo_is_given_up_for_later_waits(slack_ms: float, parts: int, margin_parts: int) -> None:
    """Without time for all of it, less is reserved for waits, then less as a margin."""
    planner = Planner(catalogue(chain(2), [ROWS, ROWS], slo_ms=100.0))
    plan = planner.plan(plan_request(slack_ms=slack_ms, margin_ratio=0.7, later_waits_ms=40.0))
    assert plan.feasible
    assert plan.later_waits_ms == pytest.approx(40.0 * parts / 4)
    assert plan.margin_ratio == pytest.approx(0.7 * margin_parts / 4)
    assert plan.budget_ms is not None
    held_ms = plan.later_waits_ms + (1.0 + plan.margin_ratio) * plan.budget_ms
    assert held_ms == pytest.approx(slack_ms)


@pytest.mark.parametrize("waits_ms", [5.0, 50.0, 400.0])
@pytest.mark.parametrize("margin_ratio", [0.0, None])
def test_a_plan_with_later_waits_is_that_of_less_time(
    planner: Planner, waits_ms: float, margin_ratio: float | None
) -> None:
    """Waits are time that no configuration may use."""
    request = plan_request(
        workflow="image-classification",
        stage="super-resolution",
        slack_ms=800.0,
        margin_ratio=margin_ratio,
        later_waits_ms=waits_ms,
    )
    plan = planner.plan(request)
    less = planner.plan(replace(request, slack_ms=800.0 - waits_ms, later_waits_ms=0.0))
    assert plan.later_waits_ms == waits_ms
    assert plan == less._replace(later_waits_ms=waits_ms)


@pytest.mark.parametrize("waits_ms", [-1.0, math.nan, math.inf])
def test_later_waits_are_times(waits_ms: float) -> None:
    """Anything else is refused, with the value."""
    planner = Planner(catalogue(chain(2), [ROWS, ROWS], slo_ms=100.0))
    with pytest.raises(PlanningError, match=f"later_waits_ms is {waits_ms}; give a time"):
        planner.plan(plan_request(slack_ms=50.0, later_waits_ms=waits_ms))
