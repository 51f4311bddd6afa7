"""The margin: stages may run over their profile, and the workflow still keeps its SLO."""

import pytest

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.reading import read_documents
from scheduler.search.planner import Planner, PlanRequest
from workbench.profiles.generated import sample_documents


@pytest.fixture(scope="module")
def planner() -> Planner:
    documents: list[Workflow | FunctionProfile] = []
    for name, text in sample_documents().items():
        documents += read_documents(text, name)[0]
    return Planner(Catalogue.of(documents))


@pytest.mark.parametrize("slack_ms", [None, 400.0])
@pytest.mark.parametrize("margin", [0.0, 0.09, 0.2])
def test_every_path_stretched_by_the_margin_fits(planner, slack_ms, margin):
    """Were every stage to take as much longer as the margin says, the time left would suffice."""
    plan = planner.plan(
        PlanRequest(
            namespace="default",
            workflow="image-classification",
            stage="super-resolution",
            slack_ms=slack_ms,
            margin_ratio=margin,
        )
    )
    left_ms = 526.0 if slack_ms is None else slack_ms
    assert plan.budget_ms == pytest.approx(left_ms / (1 + margin))
    assert plan.feasible
    assert all(c.path_ms * (1 + margin) <= left_ms * (1 + 1e-9) for c in plan.candidates)
