"""Failures of nodes and GPUs: what runs there runs elsewhere, and nothing is placed there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.simulation.harness import Listed, WatchedCluster, one_function, quiet, run
from tests.simulation.test_invariants import (
    ScalesAtRandom,
    catalogues,
    each_request_ends_once,
    phases_add_up,
    scenarios,
    suited,
    workloads,
)
from workbench.simulation.scenario import Failure, ScenarioError

ONE = [(1, 1, 100, 100)]
KINDS = ("minimum", ScalesAtRandom, "infless", "warm")


@pytest.mark.parametrize("policy", ["minimum", "warm", "infless"])
def test_a_lost_run_is_run_elsewhere(policy):
    """It has no result: the request ends one failure and one whole run after its arrival."""
    scenario = quiet(nodes=2, failures=(Failure(at_ms=60.0, node=0),), resizable=False)
    recording = run(scenario, one_function(ONE, slo_ms=1e5), Listed([0.0]), policy)
    first, *others = recording.spans
    lost = first.node == "node-0000"
    assert [span.node for span in others] == (["node-0001"] if lost else [])
    (record,) = recording.requests
    assert record.outcome == "hit"
    if lost:
        assert record.end_ms >= 160.0
        dollars = 60.0 * first.cost_dollars / 100.0 + first.cost_dollars
        assert record.cost_dollars == pytest.approx(dollars)


def test_nothing_runs_on_a_gpu_that_has_failed():
    """The other GPU of the node serves on; after the recovery both do."""
    failure = Failure(at_ms=0.0, node=0, gpu=0, for_ms=1_000.0)
    scenario = quiet(gpus_per_node=2, failures=(failure,), warm_containers=0)
    times_ms = [1.0 + i for i in range(30)]
    spans = run(scenario, one_function(ONE, slo_ms=9_000.0), Listed(times_ms)).spans
    assert {span.gpu for span in spans if span.begin_ms < 1_000.0} == {"GPU-0000-1"}
    assert {span.gpu for span in spans if span.begin_ms >= 1_000.0} == {"GPU-0000-0", "GPU-0000-1"}


def test_nothing_is_prewarmed_on_a_gpu_that_has_failed():
    """The predictor starts its containers where there is room."""
    catalogue = one_function(ONE, cold_start_ms=50.0)
    failure = Failure(at_ms=0.0, node=0, gpu=0, for_ms=5_000.0)
    scenario = quiet(
        gpus_per_node=2, failures=(failure,), prewarm=True, warm_containers=0, resizable=False,
        keep_alive_ms=0.0,
    )  # fmt: skip
    spans = run(scenario, catalogue, Listed([500.0 * i for i in range(1, 9)])).spans
    assert {span.gpu for span in spans} == {"GPU-0000-1"}


def test_overlapping_failures_end_with_the_last():
    failures = (
        Failure(at_ms=10.0, node=0, for_ms=500.0),
        Failure(at_ms=20.0, node=0, gpu=0, for_ms=100.0),
    )
    (span,) = run(quiet(failures=failures), one_function(ONE), Listed([50.0])).spans
    assert span.begin_ms == pytest.approx(510.0)


def test_what_no_gpu_can_serve_is_dropped():
    """A cluster that never comes back: the run ends all the same."""
    scenario = quiet(failures=(Failure(at_ms=0.0, node=0),))
    recording = run(scenario, one_function(ONE), Listed([1.0, 2.0]))
    assert [record.outcome for record in recording.requests] == ["dropped", "dropped"]


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (Failure(at_ms=0.0, node=1), "node 1 does not exist; nodes are numbered from 0 to 0"),
        (Failure(at_ms=0.0, node=0, gpu=2), "node 0 has no GPU 2"),
    ],
)
def test_a_failure_of_what_does_not_exist(failure, message):
    with pytest.raises(ScenarioError, match=message):
        run(quiet(failures=(failure,)), one_function(ONE), Listed([0.0]))


failures = st.lists(
    st.builds(
        Failure,
        at_ms=st.sampled_from((0.0, 1.0, 30.0, 400.0, 3_000.0)),
        node=st.just(0),
        gpu=st.sampled_from((None, 0)),
        for_ms=st.sampled_from((5.0, 200.0, 5_000.0)),
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.replaces
@examples(100)
@given(
    data=st.data(),
    catalogue=catalogues(),
    scenario=scenarios,
    listed=failures,
    policy=st.sampled_from(("minimum", "exact", "orion", ScalesAtRandom, "warm")),
)
def test_laws_of_runs_with_failures(data, catalogue, scenario, listed, policy):
    """Each request ends once, phases fill its time, and the cluster never holds too much."""
    scenario = suited(scenario, policy, failures=tuple(listed))
    arrivals = data.draw(workloads(len(catalogue.workflows)))
    recording = run(scenario, catalogue, arrivals, policy, cluster=WatchedCluster)
    each_request_ends_once(recording, arrivals, recording.result)
    if policy != "warm":
        phases_add_up(recording)
    if not recording.result.dropped:
        assert recording.result.ran_dollars == pytest.approx(
            sum(record.cost_dollars for record in recording.requests)
        )
