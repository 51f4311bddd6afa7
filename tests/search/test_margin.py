"""With the margin, a workflow keeps its SLO although stages take longer than profiled."""

import pytest

from scheduler.model.catalogue import Catalogue
from scheduler.model.document_reader import read_documents
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.search.planner import Planner, PlanRequest
from workbench.profiles.generated import sample_documents


@pytest.fixture(scope="module")
def planner() -> Planner:
    documents: list[Workflow | FunctionProfile] = []
    for name, text in sample_documents().items():
        documents += read_documents(text, name)[0]
    return Planner(Catalogue.of(documents))


@pytest.mark.parametrize("slack_ms", [None, 400.0])
@pytest.mark.parametrize("margin_ratio", [0.0, 0.09, 0.2])
def test_every_path_stretched_by_the_margin_fits(
    planner: Planner, slack_ms: float | None, margin_ratio: float
) -> None:
    """If every stage takes longer by the margin, the remaining time suffices."""
    plan = planner.plan(
        PlanRequest(
            namespace="default",
            workflow="image-classification",
            stage="super-resolution",
            slack_ms=slack_ms,
            margin_ratio=margin_ratio,
        )
    )
    remaining_ms = 526.0 if slack_ms is None else slack_ms
    assert plan.budget_ms == pytest.approx(remaining_ms / (1 + margin_ratio))
    assert plan.feasible
    assert all(c.path_ms * (1 + margin_ratio) <= remaining_ms * (1 + 1e-9) for c in plan.candidates)
