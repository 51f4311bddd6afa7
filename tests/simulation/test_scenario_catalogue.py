"""Documents as a scenario changes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.harness import Listed, one_function, quiet, run
from workbench.profiles.builders import GPU
from workbench.profiles.generated import GPU_MODEL
from workbench.simulation.scenario_catalogue import granted_percent, shaped
from workbench.simulation.setup import assemble

ROWS = [(1, 1, 14, 90), (1, 1, 21, 70), (1, 1, 28, 60), (2, 1, 30, 80), (4, 2, 100, 50)]
KEYS = (("default", "w"),)


def configurations(**changes):
    catalogue = shaped(one_function(ROWS), quiet(**changes), KEYS)
    return [
        (c.batch, c.cpu, c.gpu_percent, c.latency_ms)
        for c in catalogue.profile("f0").spec.gpus[0].configurations
    ]


def test_shares_by_mps_stay_what_they_are():
    assert sorted(configurations()) == sorted(ROWS)


def test_shares_in_sevenths_are_rounded_up():
    """21 becomes two sevenths and is given up for 28, which runs faster; 30 becomes three."""
    assert sorted(configurations(sharing="sevenths")) == [
        (1, 1, 14, 90),
        (1, 1, 28, 60),
        (2, 1, 42, 80),
        (4, 2, 100, 50),
    ]


def test_whole_gpus():
    assert sorted(configurations(sharing="whole")) == [
        (1, 1, 100, 60),
        (2, 1, 100, 80),
        (4, 2, 100, 50),
    ]


def test_without_batching_one_at_a_time():
    assert {batch for batch, *_ in configurations(batching=False)} == {1}


@given(percent=st.integers(1, 100))
def test_a_seventh_is_never_less_than_asked(percent):
    """The least multiple of a seventh, in whole percent, and seven of the first fit."""
    granted = granted_percent(percent, "sevenths")
    sevenths = [n * 100 // 7 for n in range(1, 8)]
    assert granted in sevenths
    assert granted >= percent
    below = [share for share in sevenths if share < granted]
    assert not below or below[-1] < percent


def test_the_factor_is_on_the_slo():
    (record,) = run(quiet(slo_factor=0.8), one_function(ROWS), Listed([0.0])).requests
    assert record.slo_ms == 800.0


def test_gpu_models_in_turn():
    """Nodes are given the models one after the other."""
    scenario = quiet(nodes=3, gpus_per_node=2, gpu_models=(GPU, GPU_MODEL))
    cluster = assemble(scenario, one_function(ROWS), KEYS, 0).cluster
    assert cluster.gpu_models == [GPU, GPU, GPU_MODEL, GPU_MODEL, GPU, GPU]
    assert cluster.node_of == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("sharing", ["sevenths", "whole"])
def test_no_more_runs_at_a_time_than_partitions(sharing):
    scenario = quiet(sharing=sharing, warm_containers=9)
    recording = run(scenario, one_function([(1, 1, 14, 10)]), Listed([0.0] * 9))
    at_once = sum(span.begin_ms == 0.0 for span in recording.spans)
    assert at_once == (7 if sharing == "sevenths" else 1)
