"""Plans for nodes of limited size: what they hold, and what is shared between fleets."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import GridPoint
from scheduler.model.fleet_capacity import FleetCapacity, NodeSize
from scheduler.model.plan import Configuration
from scheduler.model.progress import InstanceProgress
from scheduler.search.completion import complete
from scheduler.search.planner import NoNodeError, Planner, PlanningError
from scheduler.search.workflows import FLEETS_MAX
from tests.examples import examples
from tests.search.factories import CHAIN, N_SHAPE, catalogue, catalogues
from tests.search.harness import assert_agrees, plan_request
from workbench.profiles.builders import profile

# (batch, cpu, gpu_percent, latency_ms); memory is 100 MiB per unit of batch.
ROWS = [(1, 1, 10, 400.0), (2, 2, 20, 300.0), (4, 8, 50, 200.0), (8, 32, 100, 100.0)]
MODELS = ("one", "two")


def nodes(*sizes: tuple[int, int], model: str = "gpu") -> FleetCapacity:
    """Create a fleet of nodes with one GPU model: vCPU and MiB of each."""
    return FleetCapacity.of((model, NodeSize(1000 * cpu, mib)) for cpu, mib in sizes)


def planner_for(shape: tuple[tuple[int, ...], ...] = CHAIN[:3]) -> Planner:
    return Planner(catalogue(shape, [ROWS] * len(shape)))


SIZES = st.lists(
    st.tuples(
        st.sampled_from(MODELS),
        st.builds(NodeSize, st.integers(0, 5_000), st.integers(0, 900)),
    ),
    max_size=8,
)


@given(SIZES, st.integers(0, 2_000), st.data())
def test_a_fleet_holds_what_any_of_its_nodes_holds(
    sizes: list[tuple[str, NodeSize]], other_cpu_milli: int, data: st.DataObject
) -> None:
    """The largest nodes decide like all nodes do, in any order."""
    fleet = FleetCapacity.of(sizes, 60)
    assert fleet == FleetCapacity.of(data.draw(st.permutations(sizes)), 60)
    assert set(fleet.models) == {model for model, _ in sizes}
    model = data.draw(st.sampled_from(MODELS))
    row = Configuration(
        1,
        data.draw(st.integers(1, 5)),
        data.draw(st.sampled_from((60, 61))),
        data.draw(st.integers(1, 900)),
        1.0,
    )
    fits = row.gpu_percent == 60 and any(
        name == model
        and 1000 * row.cpu + other_cpu_milli <= size.cpu_milli
        and row.memory_mib <= size.memory_mib
        for name, size in sizes
    )
    assert fleet.beside(other_cpu_milli).holds(model, row) == fits


@examples(60)
@given(catalogues(models=MODELS), SIZES, st.sampled_from((0, 300)))
def test_no_stage_of_a_plan_exceeds_every_node(
    documents: Catalogue, sizes: list[tuple[str, NodeSize]], other_cpu_milli: int
) -> None:
    """Some node holds each configuration, and every row that some node holds is a candidate."""
    fleet = FleetCapacity.of(sizes)
    request = plan_request(fleet=fleet, other_cpu_milli=other_cpu_milli, slack_ms=1e9, k=1_000)
    own = fleet.beside(other_cpu_milli)
    profiled = documents.profiles["f0"].spec.gpus
    expected = {
        (gpu.model, c.batch, c.cpu, c.gpu_percent)
        for gpu in profiled
        for c in gpu.configurations
        if own.holds(gpu.model, c)
    }
    try:
        plan = Planner(documents).plan(request)
        completion = complete(Planner(documents), request)
    except ValueError:
        later = [
            any(
                fleet.holds(gpu.model, c)
                for gpu in documents.profiles[stage.function].spec.gpus
                for c in gpu.configurations
            )
            for stage in documents.workflow("default", "w").spec.stages
        ]
        assert not (expected and all(later))
        return
    candidates = [(c.gpu_model, c.configuration) for c in plan.candidates]
    assert {(m, c.batch, c.cpu, c.gpu_percent) for m, c in candidates} == expected
    assert all(own.holds(model, c) for model, c in candidates)
    assert all(fleet.holds(run.gpu_model, run.configuration) for run in completion.runs)


@pytest.mark.parametrize("shape", [CHAIN[:3], N_SHAPE], ids=["a chain", "an N"])
def test_fleets_of_equal_effect_share_everything(shape: tuple[tuple[int, ...], ...]) -> None:
    """A node that changes no maximum, or a maximum that holds no other row, rebuilds nothing."""
    planner = planner_for(shape)
    first = planner.stage(plan_request(fleet=nodes((16, 500))))
    for fleet in (nodes((16, 500), (8, 500)), nodes((17, 700)), nodes((31, 800), (8, 8_000))):
        assert planner.stage(plan_request(fleet=fleet)) is first
    everything = planner.stage(plan_request(fleet=nodes((64, 8_000))))
    assert everything is planner.stage(plan_request())
    assert everything.other_stages is not first.other_stages


def test_fleets_share_tables_between_workflows_and_functions() -> None:
    """The same rows of a function are one table."""
    planner = planner_for()
    (of_stage,) = planner.stage(plan_request(fleet=nodes((16, 500)))).tables
    (alone,) = planner.stage(plan_request(workflow=None, stage="f0", fleet=nodes((12, 600)))).tables
    assert of_stage is alone
    assert {c.cpu for c in alone.configurations} == {1, 2, 8}


def test_other_containers_change_the_current_stage_alone() -> None:
    """The stages after it, and what is prepared for them, stay."""
    planner = planner_for()
    fleet = nodes((32, 800))
    alone = planner.stage(plan_request(fleet=fleet))
    beside = planner.stage(plan_request(fleet=fleet, other_cpu_milli=1))
    assert beside.other_stages is alone.other_stages
    assert {c.cpu for c in beside.tables[0].configurations} == {1, 2, 8}
    assert {c.cpu for c in alone.tables[0].configurations} == {1, 2, 8, 32}


def test_old_fleets_are_forgotten() -> None:
    """A fleet that grows node by node does not fill the memory."""
    planner = planner_for()
    workflow = planner.workflow("default", "w")
    for cpu in range(1, 5 * FLEETS_MAX):
        planner.plan(plan_request(fleet=nodes((cpu, 800))))
    assert len(workflow._fleets) == FLEETS_MAX


def test_old_fleets_of_a_function_are_forgotten() -> None:
    """The same for a function alone, and for the other containers of its pods."""
    planner = planner_for()
    function = planner.prepared("default", None, "f0")
    for cpu in range(1, 100):
        function.prepare(nodes((cpu, 800)))
        planner.plan(plan_request(workflow=None, stage="f0", fleet=nodes((cpu, 800))))
    for other_cpu_milli in range(1, 100):
        request = plan_request(workflow=None, stage="f0", fleet=nodes((32, 800)))
        plan = planner.plan(replace(request, other_cpu_milli=other_cpu_milli))
        assert {c.configuration.cpu for c in plan.candidates} == {1, 2, 8}
    assert max(len(function._fleets), len(function._complete)) <= FLEETS_MAX
    assert len(function._tables._of_profile("f0")._by_fleet) < 100


def test_an_expensive_node_of_another_model_holds_what_the_first_does_not() -> None:
    """Each model has nodes of its own."""
    planner = Planner(Catalogue.of([profile("f0", {"one": ROWS, "two": ROWS})]))
    sizes = [("one", NodeSize(4_000, 8_000)), ("two", NodeSize(64_000, 100))]
    request = plan_request(workflow=None, stage="f0", fleet=FleetCapacity.of(sizes))
    plan = planner.plan(request)
    assert {(c.gpu_model, c.configuration.cpu) for c in plan.candidates} == {
        ("one", 1),
        ("one", 2),
        ("two", 1),
    }


def test_the_refusal_names_function_configuration_and_nodes() -> None:
    """It says what the smallest configuration takes, and what the largest nodes have."""
    planner = Planner(catalogue(CHAIN[:2], [ROWS, [(8, 32, 50, 9.0)]]))
    expected = (
        "stage s1: no node can hold function f1: its smallest configuration takes 32 vCPU, "
        "50 % GPU and 800 MiB on gpu, and the largest node with that GPU has 64 vCPU and 500 MiB "
        "or 15.9 vCPU and 900 MiB"
    )
    fleet = FleetCapacity.of(
        [("gpu", NodeSize(64_000, 500)), ("gpu", NodeSize(15_900, 900)), ("gpu", NodeSize(9, 9))]
    )
    for stage in ("s0", "s1"):
        with pytest.raises(NoNodeError) as error:
            planner.plan(plan_request(stage=stage, fleet=fleet))
        assert str(error.value) == expected
    with pytest.raises(NoNodeError, match=", 3 vCPU of it for the pod's other containers"):
        planner.plan(plan_request(stage="s1", fleet=nodes((32, 800)), other_cpu_milli=3_000))
    half = FleetCapacity.of([("gpu", NodeSize(64_000, 900))], 49)
    with pytest.raises(NoNodeError, match="64 vCPU and 900 MiB, and grants 49 % GPU"):
        planner.plan(plan_request(stage="s1", fleet=half))


def test_a_requested_configuration_that_no_node_holds() -> None:
    """The error says so, and not that the profile lacks it."""
    planner, fleet = planner_for(), nodes((16, 800))
    large = plan_request(fleet=fleet, configuration=GridPoint(batch=8, cpu=32, gpu_percent=100))
    with pytest.raises(NoNodeError) as error:
        planner.plan(large)
    assert str(error.value) == (
        "no node can hold the configuration (batch 8, 32 vCPU, 100 % GPU) of function f0: it takes "
        "32 vCPU, 100 % GPU and 800 MiB on gpu, and the largest node with that GPU has 16 vCPU "
        "and 800 MiB"
    )
    absent = plan_request(fleet=fleet, configuration=GridPoint(batch=9, cpu=32, gpu_percent=100))
    with pytest.raises(PlanningError, match=r"has no configuration \(batch 9"):
        planner.plan(absent)
    small = plan_request(fleet=fleet, configuration=GridPoint(batch=4, cpu=8, gpu_percent=50))
    assert planner.plan(small).candidates[0].configuration.cpu == 8


def test_ceilings_below_what_a_node_holds() -> None:
    """The error names the smallest configuration among those that some node holds."""
    with pytest.raises(ValueError, match="the smallest that a node can hold is 1 vCPU, 10 % GPU"):
        planner_for().plan(plan_request(fleet=nodes((2, 800)), gpu_percent_max=9))


def test_preparation_follows_the_fleet() -> None:
    """A later stage that only large nodes run fast is slow without them."""
    planner = planner_for(N_SHAPE)
    request = plan_request(fleet=nodes((2, 8_000)))
    assert planner.plan(request).candidates[0].path_ms >= 3 * 300.0


@pytest.mark.parametrize("after", [(*N_SHAPE[:2], (0,)), N_SHAPE, (*N_SHAPE, (3, 4))])
def test_a_sibling_that_runs_needs_no_node(after: tuple[tuple[int, ...], ...]) -> None:
    """A stage is planned although no node of a fleet that shrank can hold its sibling again."""
    large = [(1, 32, 100, 100.0)]
    known = catalogue(after, [large if v == 1 else ROWS for v in range(len(after))])
    planner = Planner(known)
    request = plan_request(stage="s2", slack_ms=2_000.0, fleet=nodes((8, 1_000)))
    with pytest.raises(NoNodeError, match="no node can hold function f1"):
        planner.plan(request)
    running = InstanceProgress(running_ms={"s1": 50.0})
    for progress in (running, InstanceProgress(frozenset({"s1"}))):
        begun = replace(request, progress=progress)
        assert_agrees(known, begun, planner.plan(begun))
