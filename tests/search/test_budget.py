"""Budget of a stage and all its successors as a part of the SLO."""

from math import isclose

import pytest
from hypothesis import given

from scheduler.model.catalogue import Catalogue
from scheduler.search.planner import Planner, PlanRequest
from tests.examples import examples
from tests.search.factories import CHAIN, catalogue, catalogues

quick = examples(100)


def _budgets(documents: Catalogue) -> dict[str, float]:
    planner = Planner(documents)
    budgets = {}
    for stage in documents.workflow("default", "w").spec.stages:
        request = PlanRequest(namespace="default", workflow="w", stage=stage.name)
        budget_ms = planner.plan(request).budget_ms
        assert budget_ms is not None
        budgets[stage.name] = budget_ms
    return budgets


@quick
@given(catalogues())
def test_budgets_fall_along_every_path(documents: Catalogue) -> None:
    """One entry has the whole SLO, and a stage has at most the budget of each predecessor."""
    workflow = documents.workflow("default", "w")
    budgets = _budgets(documents)
    assert max(budgets.values()) == workflow.spec.slo.latency_ms
    for stage in workflow.spec.stages:
        assert budgets[stage.name] > 0.0
        for before in stage.after:
            assert budgets[stage.name] <= budgets[before] * (1 + 1e-12)


@quick
@given(catalogues())
def test_an_entry_has_the_whole_slo(documents: Catalogue) -> None:
    """The budget of an entry is the SLO."""
    workflow = documents.workflow("default", "w")
    budgets = _budgets(documents)
    for stage in workflow.spec.stages:
        if not stage.after:
            assert budgets[stage.name] == workflow.spec.slo.latency_ms


def test_shares_are_the_mean_over_common_configurations() -> None:
    """ANL is the mean over configurations of a stage's part of the total time."""
    documents = catalogue(
        CHAIN[:2],
        [
            [(1, 1, 10, 30.0), (2, 1, 10, 50.0)],
            [(1, 1, 10, 10.0), (2, 1, 10, 50.0), (4, 1, 10, 1e6)],
        ],
        slo_ms=800.0,
    )
    assert isclose(_budgets(documents)["s1"], 800.0 * (10 / 40 + 50 / 100) / 2)


def test_shares_without_common_configurations() -> None:
    """For stages without a common configuration the mean times are compared."""
    documents = catalogue(
        CHAIN[:2], [[(1, 1, 10, 20.0), (2, 1, 10, 40.0)], [(8, 1, 10, 10.0)]], slo_ms=800.0
    )
    assert isclose(_budgets(documents)["s1"], 200.0)


@pytest.mark.parametrize("models", [("a",), ("a", "b")])
def test_shares_are_averaged_over_models(models: tuple[str, ...]) -> None:
    """GPU models that all stages are profiled on have equal weight; others do not count."""
    first = {"a": [(1, 1, 10, 10.0)], "b": [(1, 1, 10, 30.0)], "c": [(1, 1, 10, 1e6)]}
    second = {model: [(1, 1, 10, 10.0)] for model in models}
    expected = {("a",): 400.0, ("a", "b"): 800.0 * (1 / 2 + 1 / 4) / 2}
    documents = catalogue(CHAIN[:2], [first, second], slo_ms=800.0)
    assert isclose(_budgets(documents)["s1"], expected[models])
