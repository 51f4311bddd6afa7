"""Documents by name, and plans: their numbers, and their form as JSON."""

import pytest

from scheduler.model.catalogue import Catalogue, UnknownDocumentError, missing_profiles
from scheduler.model.document_reader import stage_limit_problems
from scheduler.model.documents import StageSource
from scheduler.model.plan import (
    Candidate,
    Completion,
    Configuration,
    Plan,
    Prices,
    SearchEffort,
    StageRun,
)
from workbench.profiles.builders import graph, profile, workflow

CONFIGURATION = Configuration(batch=4, cpu=2, gpu_percent=57, memory_mib=1_234, latency_ms=100.0)


def test_a_catalogue_has_the_last_document_of_a_name():
    slow, fast = (profile("f0", [(1, 1, 10, ms)]) for ms in (20.0, 10.0))
    of_team = graph({"s9": ("f0",)}, namespace="team")
    catalogue = Catalogue.of([slow, workflow([[]]), of_team, fast])
    assert catalogue.profile("f0") is fast
    assert catalogue.workflow("team", "w") is of_team
    assert [stage.name for stage in catalogue.workflow("default", "w").spec.stages] == ["s0"]


def test_an_unknown_document_is_named_with_those_that_there_are():
    catalogue = Catalogue.of([workflow([[]], name=name) for name in ("b", "a")])
    with pytest.raises(
        UnknownDocumentError,
        match=r"workflow default/c is not known \(namespace default has: a, b\); create",
    ):
        catalogue.workflow("default", "c")
    with pytest.raises(UnknownDocumentError, match="team has: none"):
        catalogue.workflow("team", "a")
    with pytest.raises(
        UnknownDocumentError, match="function f0 has no FunctionProfile; create one"
    ):
        catalogue.profile("f0")


def test_stages_without_a_profile_are_listed_with_their_file():
    document = workflow([[], [0]])
    catalogue = Catalogue.of([document, profile("f0", [(1, 1, 10, 5.0)])])
    for sources, source in (({document.key: "w.yaml"}, "w.yaml"), ({}, "?")):
        (problem,) = missing_profiles(catalogue, sources)
        assert str(problem) == (
            f"{source}: Workflow default/w: spec.stages[1].function: stage 's1' runs 'f1', which "
            "has no FunctionProfile"
        )


@pytest.mark.parametrize(("stages_max", "count"), [(2, 0), (1, 1)])
def test_a_workflow_with_too_many_stages_is_one_problem(stages_max, count):
    """The operator's limit counts; it says what the user can do, and what the operator can."""
    problems = stage_limit_problems(workflow([[], [0]]), stages_max, "w.yaml")
    text = (
        "w.yaml: Workflow default/w: spec.stages: 2 stages are more than the limit of 1; merge or "
        "remove stages, or raise ESG_STAGES_MAX"
    )
    assert [str(problem) for problem in problems] == [text] * count


def test_a_stage_s_input_names_a_stage_and_its_output():
    """A name of an output may have dots, one of a stage has none."""
    link = StageSource.model_validate({"name": "x", "from": "crop.image.0"})
    assert (link.stage, link.output) == ("crop", "image.0")


def test_a_stage_and_a_gpu_are_found_by_name():
    """None where there is none."""
    document, measured = workflow([[]]), profile("f0", {"A": [(1, 1, 10, 5.0)]})
    assert document.stage("s0") is document.spec.stages[0]
    assert measured.gpu("A") is measured.spec.gpus[0]
    assert (document.stage("s9"), measured.gpu("B")) == (None, None)
    assert str(measured.spec.gpus[0].configurations[0]) == "(batch 1, 1 vCPU, 10 % GPU)"


def test_a_request_costs_its_part_of_the_pod():
    """A model of its own price replaces the general one."""
    prices = Prices(3.6, 36.0, {"T4": 0.0})
    assert prices.request_cost_dollars(1_000.0, 2, 50, 4) == pytest.approx(
        (2 * 3.6 + 18.0) / 3_600 / 4
    )
    assert prices.request_cost_dollars(1_000.0, 1, 50, 1, "T4") == pytest.approx(0.001)


def test_a_plan_is_json_with_units():
    candidate = Candidate(CONFIGURATION, "A100", 100.0, 175.0, 3.5e-5, start_ms=20.0)
    plan = Plan(True, 200.0, (candidate,), margin_ratio=0.1, later_waits_ms=5.0)
    assert plan.exact
    assert plan.as_json() == {
        "feasible": True, "budget_ms": 200.0, "margin_ratio": 0.1, "later_waits_ms": 5.0,
        "epsilon": 0.0, "message": "",
        "candidates": [{
            "batch": 4, "cpu": 2, "gpu_percent": 57, "memory_mib": 1_234, "gpu_model": "A100",
            "start_ms": 20.0, "stage_ms": 100.0, "path_ms": 175.0, "path_cost": 3.5e-5,
        }],
    }  # fmt: skip


def test_a_completion_ends_with_its_last_stage_and_costs_all():
    runs = tuple(
        StageRun(f"s{i}", "f", CONFIGURATION, "A100", 0.0, end_ms, cost_dollars)
        for i, (end_ms, cost_dollars) in enumerate([(30.0, 0.25), (50.0, 0.5), (40.0, 1.0)])
    )
    assert (Completion(runs).path_ms, Completion(runs).cost_dollars) == (50.0, 1.75)


def test_effort_is_summed_by_kind():
    assert SearchEffort(1, 2, 3) + SearchEffort(10, 20, 30) == SearchEffort(11, 22, 33)
