"""Studies of pools under loads that change: their arrivals, clusters and measured tables."""

import numpy as np
import pytest

from scheduler.model.catalogue import Catalogue
from studies.plans.counted_day import row, served
from studies.plans.steps import (
    END_S,
    PODS,
    STEADY_S,
    STEP_S,
    Step,
    StepCase,
    generated,
    hit_ratio_in,
    measured,
    outcomes,
)
from studies.plans.steps import row as step_row
from studies.plans.steps import served as served_step
from tests.data_of_others import DATA, needs_data
from workbench.profiles.vision_workflows import (
    Assumptions,
    gpulet_table,
    parvagpu_table,
    vision_documents,
)
from workbench.simulation.workloads.azure import Azure


@pytest.mark.parametrize("half", [False, True])
def test_a_step_multiplies_the_load_of_all_workflows_or_of_half_of_them(half):
    workflows = tuple(generated().catalogue.workflows)
    case = StepCase(10, half, "reserved")
    ((times_ms, numbers),) = Step(case, workflows, 40.0, seed=1).chunks()
    assert np.all(np.diff(times_ms) >= 0.0)
    before = np.bincount(numbers[times_ms < 1000.0 * STEP_S], minlength=4) / STEP_S
    after = np.bincount(numbers[times_ms >= 1000.0 * STEP_S], minlength=4) / (END_S - STEP_S)
    assert after[:2] / before[:2] == pytest.approx(10.0, rel=0.2)
    assert after[2:] / before[2:] == pytest.approx(1.0 if half else 10.0, rel=0.3)


def test_the_cluster_has_room_for_the_largest_load():
    """Twice the nodes whose price is the least cost, of what all workflows together have."""
    profiles = generated()
    nodes = [profiles.nodes(StepCase(*case, "reserved").mean_factor) for case in ((10, 0), (10, 1))]
    assert nodes == [12, 7]
    assert PODS["pooled, all GPUs held"][1](12)["pool_gpus"] == 12


def test_rows_of_gpulet_are_read_as_the_other_table():
    """Times are in seconds there, and names stand between the numbers."""
    rows = [
        f"m{i},{batch},{percent},throughput,1,latency,{0.001 * (i + 1)},1"
        for i in range(7)
        for batch in (1, 4)
        for percent in (20, 100)
    ]
    text = gpulet_table("\n".join(rows))
    assumptions = Assumptions(gpu_model="gpu", percent_min=20)
    catalogue = Catalogue.of(vision_documents(text, "a table", assumptions))
    latencies_ms = {
        row.latency_ms
        for profile in catalogue.profiles.values()
        for row in profile.spec.gpus[0].configurations
    }
    assert sorted(latencies_ms) == pytest.approx([2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    assert len(catalogue.workflows) == 4


def test_files_of_parvagpu_are_read_as_the_other_table():
    """One process counts; a point where a model had no memory is no point of any."""
    header = "Mig instance,Batch size,Workload Number,Throughput,Latency"
    rows = [
        (slices, batch, processes, 100 * slices * batch / processes)
        for slices in (1, 7)
        for batch in (1, 4)
        for processes in (1, 2)
    ]
    text = "\n".join([header, *(f"{s},{b},{n},{throughput},0" for s, b, n, throughput in rows)])
    short = text.replace("1,4,1,400.0,0", "1,4,1,0,0")
    lines = parvagpu_table({"a": text, "b": short}).splitlines()[1:]
    points = [(1, 14, 10.0), (1, 100, 1000 / 700), (4, 100, 1000 / 700)]
    expected = [("a", *point) for point in points] + [("b", *point) for point in points]
    for line, (model, batch, percent, latency_ms) in zip(lines, expected, strict=True):
        cells = line.split(",")
        assert cells[:4] == [model, str(batch), str(percent), "100"]
        assert float(cells[4]) == pytest.approx(latency_ms)


@needs_data
def test_the_grids_of_others_have_workflows():
    """Six models of each grid take the places of the paper's functions."""
    grounds = measured(DATA)
    assert len(grounds) == 4
    for profiles in grounds.values():
        assert len(profiles.catalogue.profiles) == 6
        assert len(profiles.catalogue.workflows) == 4
    largest = {14: 0, 100: 0}
    for profile in grounds["ParvaGPU, A100 by MIG, 80 GiB"].catalogue.profiles.values():
        for point in profile.spec.gpus[0].configurations:
            if point.gpu_percent in largest:
                largest[point.gpu_percent] = max(largest[point.gpu_percent], point.batch)
    assert largest == {14: 16, 100: 128}  # that all its models have


@pytest.mark.slow
def test_a_day_of_counts_is_served(tmp_path):
    """With the counts of a file, whose requests are of random workflows."""
    file = tmp_path / "invocations.csv"
    file.write_text("HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,60,60\n")
    workload = Azure(file=file, workflow_of="at-random")
    result = served("pooled", workload, 0)
    assert 0 < result.hits + result.misses <= 120
    cells = row("pooled", result)
    assert (cells[0], len(cells)) == ("pooled", 5)


@pytest.mark.slow
def test_a_policy_without_a_reserve_gets_the_headroom_that_it_needs_before_the_step():
    """Without one INFless misses under the steady load, too, and the step says nothing."""
    case = StepCase(4, True, "INFless")
    without = hit_ratio_in([served_step(generated(), case, 0)], *STEADY_S)
    headroom_ratio, runs = outcomes(generated(), case, 1)
    assert headroom_ratio > 0.0
    assert hit_ratio_in(runs, *STEADY_S) > without + 0.1
    cells = step_row(generated(), case, 1)
    assert cells[2] == f"INFless, +{100 * headroom_ratio:.0f} %"
    assert outcomes(generated(), StepCase(4, True, "reserved"), 1)[0] == 0.0
