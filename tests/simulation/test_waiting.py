"""A container of another function is evicted only if no run ends before its successor is ready."""

from functools import cache

import pytest

from scheduler.model.catalogue import Catalogue
from scheduler.placement.options import Limits
from tests.simulation.harness import Listed, quiet, run
from workbench.commands.simulate.jobs import documents_of
from workbench.profiles.builders import profile, workflow
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.poisson import Poisson

KEYS = (("default", "a"), ("default", "b"))


def two_functions(run_ms, *, cold_start_ms, slo_ms):
    """Workflows a and b of one stage each."""
    return Catalogue.of(
        [
            workflow([[]], name="a", functions=["f0"], slo_ms=slo_ms),
            workflow([[]], name="b", functions=["f1"], slo_ms=slo_ms),
            *(
                profile(f, [(1, 1, 40, run_ms)], cold_start_ms=cold_start_ms, memory_mib=1_000)
                for f in ("f0", "f1")
            ),
        ]
    )


def second_run(run_ms, *, cold_start_ms, memory_mib, policy="exact", slo_ms=10.0, **changes):
    """Two requests of a, 10 ms apart and late from the start; f1 is warm and has no request."""
    scenario = quiet(memory_mib=memory_mib, limits=Limits(server_context_mib=0), **changes)
    catalogue = two_functions(run_ms, cold_start_ms=cold_start_ms, slo_ms=slo_ms)
    recording = run(scenario, catalogue, Listed([0.0, 10.0], [0, 0], KEYS), policy)
    span = recording.spans[1]
    return span.begin_ms, span.start_ms, recording.result.evictions


FULL_MIB, FREE_MIB = 2_000, 3_000  # one container of each function; one more


@pytest.mark.parametrize("policy", ["exact", "esg", "minimum"])
def test_a_late_request_waits_for_a_busy_container_instead_of_an_eviction(policy):
    assert second_run(100, cold_start_ms=3_000.0, memory_mib=FULL_MIB, policy=policy) == (
        100.0,
        0.0,
        0,
    )


def test_a_container_is_evicted_if_a_start_is_sooner_than_the_end_of_the_run():
    assert second_run(500, cold_start_ms=200.0, memory_mib=FULL_MIB) == (10.0, 200.0, 1)


def test_with_free_memory_a_container_is_added():
    assert second_run(100, cold_start_ms=3_000.0, memory_mib=FREE_MIB) == (10.0, 3_000.0, 0)


def test_a_request_in_time_waits_too():
    """Its slack allows the cold start as well as the wait."""
    assert second_run(100, cold_start_ms=3_000.0, memory_mib=FULL_MIB, slo_ms=9_000.0) == (
        100.0,
        0.0,
        0,
    )


def test_with_fixed_shares_a_request_waits_for_a_busy_container_of_its_share():
    """Two containers of 40 % run; a third one has no room, so the third request waits."""
    scenario = quiet(resizable=False)
    catalogue = two_functions(100, cold_start_ms=3_000.0, slo_ms=9_000.0)
    recording = run(scenario, catalogue, Listed([0.0, 0.0, 10.0], [0, 0, 0], KEYS), "minimum")
    assert [(span.begin_ms, span.start_ms) for span in recording.spans] == [
        (0.0, 0.0),
        (0.0, 0.0),
        (100.0, 0.0),
    ]


def test_a_run_that_takes_longer_than_predicted_is_waited_for():
    """The wait ends with the run, not with the prediction; the arrivals between change nothing."""
    scenario = quiet(memory_mib=FULL_MIB, limits=Limits(server_context_mib=0), noise_ratio=0.3)
    catalogue = two_functions(100, cold_start_ms=3_000.0, slo_ms=10.0)
    times_ms = [10.0 * i for i in range(40)]
    recording = run(scenario, catalogue, Listed(times_ms, [0] * 40, KEYS), "exact")
    assert recording.result.evictions == 0
    ends_ms = [span.end_ms for span in recording.spans]
    assert [span.begin_ms for span in recording.spans[1:]] == ends_ms[:-1]


@cache
def samples():
    return Catalogue.of(documents_of(None))


@pytest.mark.slow
@pytest.mark.parametrize("warm_containers", [1, 2])
@pytest.mark.parametrize("policy", ["exact", "esg"])
def test_full_memory_is_no_livelock(policy, warm_containers):
    """Four GPUs of 16 GB at 53 % load: cold starts for late requests would evict each other."""
    catalogue = samples()
    keys = tuple(sorted(catalogue.workflows))
    scenario = Scenario(nodes=4, memory_mib=16_384, warm_containers=warm_containers, resizable=True)
    arrivals = Poisson(rate_rps=12.0).arrivals(keys, seed=0)
    result = run(scenario, catalogue, arrivals, policy, requests=1_000).result
    assert result.hits / result.requests > 0.95
    assert result.cold_starts < 10
