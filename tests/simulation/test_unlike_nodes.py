"""Nodes that differ: what fits where, how data moves, and what the cluster holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from tests.examples import examples
from tests.simulation.harness import Listed, WatchedCluster, one_function, quiet, run
from tests.simulation.test_invariants import (
    catalogues,
    each_request_ends_once,
    phases_add_up,
    scenarios,
    suited,
    workloads,
)
from workbench.profiles.builders import GPU, profile, workflow
from workbench.simulation.containers.data_locality import Inputs
from workbench.simulation.scenario import ScenarioError, UnlikeNodes
from workbench.simulation.setup import assemble


def test_absent_keys_are_those_of_the_other_nodes():
    unlike = (UnlikeNodes(count=2, gpus=2, memory_mib=40_000), UnlikeNodes(cpus=4, gpu_model="b"))
    scenario = quiet(nodes=1, cpus=8, unlike_nodes=unlike)
    shapes = [(s.gpus, s.gpu_model, s.cpus, s.memory_mib) for s in scenario.node_shapes]
    assert shapes == [
        (1, GPU, 8, 81_920),
        (2, GPU, 8, 40_000),
        (2, GPU, 8, 40_000),
        (1, "b", 4, 81_920),
    ]
    cluster = assemble(scenario, one_function([(1, 1, 100, 10)]), (("default", "w"),), 0).cluster
    assert cluster.node_of == [0, 1, 1, 2, 2, 3]
    assert cluster.gpu_models == [GPU] * 5 + ["b"]


@pytest.mark.parametrize("policy", ["minimum", "infless", "warm"])
def test_what_fits_only_the_larger_node_runs_there(policy):
    """Eight vCPUs: the nodes that are alike have four."""
    scenario = quiet(nodes=3, cpus=4, resizable=False, unlike_nodes=(UnlikeNodes(cpus=8),))
    recording = run(scenario, one_function([(1, 8, 50, 10)]), Listed([0.0, 50.0]), policy)
    assert {span.node for span in recording.spans} == {"node-0003"}


def test_data_moves_at_the_speed_of_the_slower_node():
    """10 MiB at 100 MiB/s between like nodes, at 25 to or from the slow one, at once to itself."""
    inputs = Inputs([(0, 100.0)], (1.0, 1.0, 4.0), 0.0)
    ways_ms = [[inputs.transfer_ms([source], node) for node in range(3)] for source in range(3)]
    assert ways_ms == [[0.0, 100.0, 400.0], [100.0, 0.0, 400.0], [400.0, 400.0, 0.0]]
    for source in range(3):
        assert inputs.of([source]).node_transfer_ms.tolist() == ways_ms[source]


def test_a_slow_network_is_that_of_the_scenario():
    """The second function runs on another GPU model, which the slow node has."""
    catalogue = Catalogue.of(
        [
            workflow([[], [0]]),
            profile("f0", {GPU: [(1, 1, 100, 10)]}, output_mib=10.0),
            profile("f1", {"b": [(1, 1, 100, 10)]}),
        ]
    )
    slow = UnlikeNodes(gpu_model="b", bandwidth_mib_s=25.0)
    scenario = quiet(bandwidth_mib_s=100.0, unlike_nodes=(slow,))
    _, second = run(scenario, catalogue, Listed([0.0])).spans
    assert second.transfer_ms == pytest.approx(400.0)


def test_an_unlimited_network_has_no_slower_node():
    scenario = quiet(
        bandwidth_mib_s=float("inf"), unlike_nodes=(UnlikeNodes(bandwidth_mib_s=10.0),)
    )
    with pytest.raises(ScenarioError, match="needs a finite one"):
        run(scenario, one_function([(1, 1, 100, 10)]), Listed([0.0]))


@pytest.mark.replaces
@examples(60)
@given(
    data=st.data(),
    catalogue=catalogues(),
    scenario=scenarios,
    unlike=st.builds(
        UnlikeNodes,
        count=st.integers(1, 2),
        gpus=st.sampled_from((None, 1, 3)),
        cpus=st.sampled_from((None, 1, 8)),
        memory_mib=st.sampled_from((None, 350, 2_000)),
    ),
    policy=st.sampled_from(("minimum", "exact", "infless", "warm")),
)
def test_laws_of_runs_on_unlike_nodes(data, catalogue, scenario, unlike, policy):
    """Each request ends once, and no node holds more than it has."""
    scenario = suited(scenario, policy, unlike_nodes=(unlike,))
    arrivals = data.draw(workloads(len(catalogue.workflows)))
    recording = run(scenario, catalogue, arrivals, policy, cluster=WatchedCluster)
    each_request_ends_once(recording, arrivals, recording.result)
    if policy != "warm":
        phases_add_up(recording)
