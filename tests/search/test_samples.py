"""The sample documents are generated, marked as such, and plannable."""

from itertools import product
from pathlib import Path

import pytest

from scheduler.model.catalogue import Catalogue, missing_profiles
from scheduler.model.document_reader import read_documents
from scheduler.model.documents import Workflow
from scheduler.search.planner import Planner, PlanRequest
from workbench.profiles.generated import (
    ANNOTATION_GENERATED,
    BATCHES,
    CPUS,
    FUNCTIONS,
    GPU_MODEL,
    GPU_PERCENTS,
    WORKFLOWS,
    FunctionModel,
    generated_profile,
    generated_workflow,
    sample_documents,
)

SAMPLES = Path(__file__).parents[2] / "deploy" / "samples"
SLO_MS = {
    "image-classification": 526,
    "depth-recognition": 1233,
    "background-elimination": 1452,
    "expanded-image-classification": 1892,
}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    documents = []
    for name, text in sample_documents().items():
        parsed, problems = read_documents(text, name)
        assert problems == []
        documents.extend(parsed)
    return Catalogue.of(documents)


@pytest.mark.parametrize("name", sorted(sample_documents()))
def test_files_are_output_of_the_generator(name: str) -> None:
    """The files in deploy/samples are exactly the generator's output."""
    assert (SAMPLES / name).read_text(encoding="utf-8") == sample_documents()[name]


def test_text_and_documents_are_the_same(catalogue: Catalogue) -> None:
    """The YAML is parsed as the documents of the generator."""
    for function in FUNCTIONS:
        parsed, generated = catalogue.profile(function.name), generated_profile(function)
        assert parsed.spec == generated.spec
        assert parsed.metadata == generated.metadata
    for name in WORKFLOWS:
        assert catalogue.workflow("default", name).spec == generated_workflow(name).spec
    assert missing_profiles(catalogue, {}) == []


def test_all_are_marked_as_generated(catalogue: Catalogue) -> None:
    """An annotation distinguishes generated numbers from measured ones."""
    documents = [*catalogue.workflows.values(), *catalogue.profiles.values()]
    for document in documents:
        annotations = (document.metadata.model_extra or {})["annotations"]
        assert annotations == {ANNOTATION_GENERATED: "true"}
    assert len(documents) == len(WORKFLOWS) + len(FUNCTIONS)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_the_minimum_configuration_takes_the_measured_time(function: FunctionModel) -> None:
    """At batch 1, 1 vCPU and 14 % the time is exactly t0, and the grid has no hole."""
    gpu = generated_profile(function).gpu(GPU_MODEL)
    assert gpu is not None
    points = {(c.batch, c.cpu, c.gpu_percent): c for c in gpu.configurations}
    assert points[1, 1, 14].latency_ms == function.t0_ms
    assert set(points) == set(product(BATCHES, CPUS, GPU_PERCENTS))
    assert points[16, 1, 14].memory_mib > points[1, 1, 14].memory_mib > function.memory_mib


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_the_samples_can_be_planned(catalogue: Catalogue, name: str) -> None:
    """Each workflow has plans within 0.8, 1.0 and 1.2 of its SLO; less time costs more."""
    planner = Planner(catalogue)
    workflow = catalogue.workflow("default", name)
    assert isinstance(workflow, Workflow)
    slo_ms = workflow.spec.slo.latency_ms
    assert slo_ms == SLO_MS[name]
    assert planner.fastest_ms("default", name) < 0.5 * slo_ms
    entry = workflow.spec.stages[0].name
    costs = []
    for factor in (0.8, 1.0, 1.2):
        plan = planner.plan(
            PlanRequest(namespace="default", workflow=name, stage=entry, slack_ms=factor * slo_ms)
        )
        assert plan.feasible
        assert plan.exact
        assert len(plan.candidates) == 5
        assert all(c.path_ms <= factor * slo_ms for c in plan.candidates)
        costs.append(plan.candidates[0].path_cost_dollars)
    assert costs == sorted(costs, reverse=True)
    assert len(set(costs)) == 3
    own = planner.plan(PlanRequest(namespace="default", workflow=name, stage=entry))
    assert own.budget_ms == slo_ms
