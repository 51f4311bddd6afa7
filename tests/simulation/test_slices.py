"""Policy `warm` with a pool: what it sets aside, what runs in it, and what an arbiter is worth."""

import pytest

from scheduler.dispatch.pods import Pod, Share
from scheduler.dispatch.pods import Run as PodRun
from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Prices
from tests.simulation.harness import Listed, Poisson, one_function, quiet, run
from workbench.profiles.builders import profile, workflow
from workbench.profiles.generated import samples
from workbench.simulation.live.slices import CrowdedGpus
from workbench.simulation.scenario import Failure, Scenario
from workbench.simulation.workloads.paper import Paper

ROWS = [(1, 4, 40, 100), (1, 4, 50, 80)]
SAMPLES = Catalogue.of(samples())
SIX_PROCESSES_MIB = 1_024 + 6 * 100  # beside the context of the MPS server
WHOLE_MS = Prices().request_cost_dollars(1.0, 16, 100, 1)  # of a node, dollars


def served(requests=800, mean_ms=25.0, slo_ms=300.0, **changes):
    """Run one function with a rate that keeps some three pods busy."""
    catalogue = one_function(ROWS, slo_ms=slo_ms, cold_start_ms=500.0)
    settings = {"nodes": 4, "gpus_per_node": 1, "cpus": 16, "memory_mib": 40_000, "pool": True}
    scenario = quiet(**(settings | changes))
    recording = run(scenario, catalogue, Poisson(mean_ms, 1), "warm", requests=requests)
    return recording.result, recording.spans


def strict_light(**changes):
    """Run the samples under the paper's setting on five nodes, of which 3.2 are their bound."""
    scenario = Scenario(slo_factor=0.8, nodes=5, pool=True, **changes)
    arrivals = Paper(load="light").arrivals(tuple(SAMPLES.workflows), seed=0)
    recording = run(scenario, SAMPLES, arrivals, "warm", requests=1_200)
    return recording.result, recording.spans


def most_running(spans):
    """Largest sum of the shares that run on a GPU at a time."""
    largest = 0
    for gpu in {span.gpu for span in spans}:
        changes = [
            (time_ms, sign * span.gpu_percent)
            for span in spans
            if span.gpu == gpu
            for time_ms, sign in ((span.begin_ms, 1), (span.end_ms, -1))
        ]
        total = 0
        for _, change in sorted(changes):
            total += change
            largest = max(largest, total)
    return largest


@pytest.mark.slow
def test_an_arbiter_keeps_requests_in_time_and_gpus_within_their_slices():
    """Although processes have more shares than there is; without it they all slow down."""
    result, spans = strict_light()
    assert result.hit_ratio >= 0.98
    assert most_running(spans) <= 100
    shares = {span.container: span.gpu_percent for span in spans}
    assert sum(shares.values()) > 5 * 150
    crowded, spans = strict_light(arbiter=False)
    assert most_running(spans) > 100
    assert crowded.hit_ratio < result.hit_ratio - 0.2


def test_what_is_set_aside_is_paid_whatever_runs():
    """Whole GPUs by the second, with the vCPUs beside them."""
    result, _ = served(pool_gpus=3, warmup_ms=0.0)
    end_ms = result.simulated_ms
    assert result.paid_dollars == pytest.approx(3 * WHOLE_MS * end_ms, rel=0.05)
    assert result.ran_dollars < 0.7 * result.paid_dollars


@pytest.mark.slow
def test_processes_follow_the_mix_at_once_where_memory_is_short():
    """Those that nothing needs any more end when others find no room, not half a minute later."""
    catalogue = Catalogue.of(
        [
            document
            for i in range(2)
            for document in (
                workflow([[]], slo_ms=150.0, name=f"w{i}", functions=[f"f{i}"]),
                profile(f"f{i}", [(1, 1, 20, 50.0)], cold_start_ms=500.0),
            )
        ]
    )
    seconds, shift_s = 60, 40
    rates = [(60, 2) if second < shift_s else (2, 60) for second in range(seconds)]
    arrivals = sorted(
        (1_000.0 * (second + (i + 0.5) / rate), number)
        for second, pair in enumerate(rates)
        for number, rate in enumerate(pair)
        for i in range(rate)
    )
    times_ms, numbers = zip(*arrivals, strict=True)
    listed = Listed(times_ms, numbers, tuple(catalogue.workflows))
    scenario = quiet(nodes=2, memory_mib=SIX_PROCESSES_MIB, pool=True, pool_gpus=2)
    recording = run(scenario, catalogue, listed, "warm")
    after = [r for r in recording.requests if r.arrival_ms >= 1_000.0 * (shift_s + 6)]
    in_time = [request.outcome == "hit" for request in after if request.workflow == 1]
    assert sum(in_time) >= 0.99 * len(in_time)


def test_slices_end_when_requests_do():
    """After a burst the pool shrinks; its last slice stays for the keep-alive."""
    catalogue = one_function(ROWS, slo_ms=400.0, cold_start_ms=500.0)
    times_ms = [*range(0, 20_000, 12), *range(20_000, 200_000, 500)]
    scenario = quiet(nodes=6, cpus=16, memory_mib=40_000, pool=True)
    result = run(scenario, catalogue, Listed(times_ms), "warm").result
    fill = result.gpu_utilisation
    assert max(fill) > 2 * fill[-1] > 0.0


def test_a_failed_gpu_takes_its_slice_and_its_pods():
    """Others start, and each request ends once."""
    failure = Failure(at_ms=5_000.0, node=0)
    result, spans = served(failures=(failure,))
    lost = [s for s in spans if s.gpu.startswith("GPU-0000") and s.begin_ms > 5_000.0]
    assert lost == []
    assert result.hits + result.misses + result.dropped == result.requests


@pytest.mark.slow
def test_without_an_arbiter_neighbours_slow_a_run_by_their_table_too():
    """`interference` has what a pair costs within a GPU; shares above it cost in proportion."""
    settings = {"arbiter": False, "pool_gpus": 1, "nodes": 1, "warmup_ms": 0.0}
    alone, spans = served(**settings)
    beside, slower = served(**settings, interference={"f0": {"f0": 0.3}})
    assert {span.function for span in spans} == {"f0"}
    means_ms = [
        sum(span.end_ms - span.execute_ms for span in of) / len(of) for of in (spans, slower)
    ]
    assert means_ms[1] > 1.05 * means_ms[0]
    assert beside.hit_ratio <= alone.hit_ratio


def test_without_an_arbiter_a_run_is_shown_to_its_end():
    """However much longer it takes beside others, its requests end with it."""
    catalogue = one_function([(1, 1, 60, 50.0)], slo_ms=1_000.0)
    scenario = quiet(pool=True, pool_gpus=1, arbiter=False)
    recording = run(scenario, catalogue, Listed([0.0, 10.0, 20.0, 500.0]), "warm")
    ends_ms = {number: s.end_ms for s in recording.spans for number, _ in s.requests}
    assert ends_ms == {record.number: record.end_ms for record in recording.requests}
    assert max(s.end_ms - s.begin_ms for s in recording.spans) > 50.0


def test_a_crowded_run_that_is_lost_costs_no_more_than_a_whole_one():
    """Five runs of a second take three together, and fail after two and a half."""
    catalogue = one_function([(1, 1, 60, 1_000.0)], slo_ms=10_000.0)
    failure = Failure(at_ms=2_500.0, node=0, for_ms=1_000.0)
    scenario = quiet(pool=True, pool_gpus=1, arbiter=False, failures=(failure,))
    recording = run(scenario, catalogue, Listed([float(i) for i in range(5)]), "warm")
    assert len(recording.spans) == 10
    whole_dollars = recording.spans[0].cost_dollars
    for record in recording.requests:
        assert record.cost_dollars == pytest.approx(2 * whole_dollars)


def run_of_60_percent():
    pod = Pod("p", ("default", "f0"), Share("A100", 4, 60, 1_000))
    return PodRun(
        pod=pod,
        workflow=("default", "w"),
        stage=0,
        jobs=[],
        batch=1,
        latency_ms=100.0,
        profiled_ms=100.0,
        begin_ms=0.0,
        execute_ms=0.0,
    )


def test_runs_slow_down_in_proportion_to_their_shares():
    """Two runs of 60 % take 1.2 times as long while both run, and their usual time alone."""
    gpus, first, second = CrowdedGpus(1), run_of_60_percent(), run_of_60_percent()
    assert gpus.begin(0, first, 100.0, 0.0) == [(100.0, first)]
    assert gpus.begin(0, second, 50.0, 40.0) == [(112.0, first), (100.0, second)]
    assert gpus.end(0, first, 100.0) is None
    assert gpus.end(0, second, 100.0) == [(110.0, first)]
