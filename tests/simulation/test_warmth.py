"""Cold starts, keep-alive, eviction and pre-warming."""

import numpy as np
import pytest

from scheduler.model.catalogue import Catalogue
from scheduler.placement.options import Limits
from tests.simulation.harness import Fixed, Listed, one_function, quiet, run
from workbench.profiles.builders import profile, workflow

HALF = [(1, 1, 50, 10), (1, 1, 40, 10)]


def starts_ms(recording):
    return [span.start_ms for span in recording.spans]


def test_the_first_run_is_cold_and_the_next_is_warm():
    catalogue = one_function(HALF, cold_start_ms=200.0)
    recording = run(quiet(warm_containers=0), catalogue, Listed([0.0, 300.0]))
    assert starts_ms(recording) == [200.0, 0.0]
    assert recording.requests[0].start_ms == 200.0
    assert recording.result.cold_starts == 1


def test_cold_starts_have_the_profiles_distribution():
    """Half of them end within coldStartMs, and 95 % within coldStartP95Ms."""
    catalogue = one_function(HALF, cold_start_ms=200.0, cold_start_p95_ms=400.0)
    times_ms = [10_000.0 * i for i in range(400)]
    scenario = quiet(warm_containers=0, keep_alive_ms=500.0)
    drawn_ms = starts_ms(run(scenario, catalogue, Listed(times_ms)))
    assert drawn_ms == starts_ms(run(scenario, catalogue, Listed(times_ms)))
    assert np.quantile(drawn_ms, [0.5, 0.95]) == pytest.approx([200.0, 400.0], rel=0.1)


@pytest.mark.parametrize("policy", ["warm", "infless"])
def test_autoscaled_containers_draw_their_starts(policy):
    """The first request finds none; what it waits for the start differs by the seed."""
    catalogue = one_function(
        HALF, slo_ms=10_000.0, cold_start_ms=2_000.0, cold_start_p95_ms=4_000.0
    )
    scenario = quiet(warm_containers=0, resizable=False)
    ends_ms = {
        run(scenario, catalogue, Listed([100.0]), policy, seed=seed).spans[0].end_ms
        for seed in range(4)
    }
    assert len(ends_ms) == 4


def test_warm_containers_at_the_start():
    recording = run(quiet(), one_function(HALF, cold_start_ms=200.0), Listed([0.0, 300.0]))
    assert starts_ms(recording) == [0.0, 0.0]
    assert recording.result.cold_starts == 0


def test_a_container_stays_warm_for_its_keep_alive():
    """It counts from the end of the last run; at its end the container is gone."""
    catalogue = one_function(HALF, cold_start_ms=200.0)
    scenario = quiet(warm_containers=0, keep_alive_ms=500.0)
    recording = run(scenario, catalogue, Listed([0.0, 700.0, 1_300.0]))
    # ends at 210, 710, 1,500: idle for 490 ms, then for 590.
    assert starts_ms(recording) == [200.0, 0.0, 200.0]


def test_two_functions_of_one_name_share_their_containers():
    """A container is warm for its function, whichever workflow calls it."""
    catalogue = Catalogue.of(
        [
            workflow([[]], name="a", functions=["f0"]),
            workflow([[]], name="b", functions=["f0"]),
            profile("f0", HALF, cold_start_ms=200.0),
        ]
    )
    keys = (("default", "a"), ("default", "b"))
    recording = run(quiet(warm_containers=0), catalogue, Listed([0.0, 300.0], [0, 1], keys))
    assert starts_ms(recording) == [200.0, 0.0]


class Alternates(Fixed):
    """The two configurations in turn."""

    def candidates(self, question):
        self.choice = {"s0": int(question.now_ms >= 500.0)}
        return super().candidates(question)


@pytest.mark.parametrize(("resizable", "second_ms"), [(True, 0.0), (False, 200.0)])
def test_another_configuration_in_a_warm_container(resizable, second_ms):
    """MPS fixes the share at a process's start; where it may not change, the start is cold."""
    catalogue = one_function(HALF, cold_start_ms=200.0)
    scenario = quiet(warm_containers=0, resizable=resizable)
    recording = run(scenario, catalogue, Listed([0.0, 500.0, 1_000.0]), Alternates)
    assert starts_ms(recording) == [200.0, second_ms, 0.0]


def test_shares_that_stay_are_warm_for_what_the_policy_chooses():
    """Containers under the minimum would be no use to an SLO that only the whole GPU keeps."""
    rows = [(1, 1, 50, 100), (1, 1, 100, 55)]
    catalogue = one_function(rows, slo_ms=60, cold_start_ms=200.0)
    scenario = quiet(resizable=False, prewarm=True)
    recording = run(scenario, catalogue, Listed([0.0, 250.0, 500.0, 750.0]), "exact")
    assert {(span.gpu_percent, span.start_ms) for span in recording.spans} == {(100, 0.0)}
    assert [item.outcome for item in recording.requests] == ["hit"] * 4


def functions_in_turn(memory_mib, scenario):
    """Three functions on one GPU, called one after the other and then the first again."""
    catalogue = Catalogue.of(
        [
            *(workflow([[]], name=f"w{i}", functions=[f"f{i}"]) for i in range(3)),
            *(profile(f"f{i}", HALF, cold_start_ms=200.0, memory_mib=memory_mib) for i in range(3)),
        ]
    )
    keys = tuple(("default", f"w{i}") for i in range(3))
    times_ms = [0.0, 300.0, 600.0, 900.0, 1_200.0]
    return run(scenario, catalogue, Listed(times_ms, [0, 1, 0, 2, 0], keys))


def test_the_least_recently_used_is_evicted_for_memory():
    """Room for two: the third function ends the second's container, not the first's."""
    limits = Limits(server_context_mib=0)
    scenario = quiet(warm_containers=0, memory_mib=2_500, limits=limits)
    recording = functions_in_turn(1_000, scenario)
    assert starts_ms(recording) == [200.0, 200.0, 0.0, 200.0, 0.0]
    assert recording.result.evictions == 1


def test_the_least_recently_used_is_evicted_for_a_client():
    scenario = quiet(warm_containers=0, limits=Limits(clients_max=2))
    recording = functions_in_turn(100, scenario)
    assert starts_ms(recording) == [200.0, 200.0, 0.0, 200.0, 0.0]
    assert recording.result.evictions == 1


def test_an_idle_container_takes_no_share():
    """Three idle ones of half a GPU each, and a run of the whole GPU beside them."""
    catalogue = Catalogue.of(
        [
            workflow([[]], name="half", functions=["f0"]),
            workflow([[]], name="whole", functions=["f1"]),
            profile("f0", [(1, 1, 50, 10)]),
            profile("f1", [(1, 1, 100, 10)]),
        ]
    )
    keys = (("default", "half"), ("default", "whole"))
    recording = run(quiet(warm_containers=3), catalogue, Listed([0.0], [1], keys))
    assert recording.requests[0].end_ms == 10.0


@pytest.mark.parametrize(("prewarm", "last_ms"), [(False, 200.0), (True, 0.0)])
def test_a_container_is_started_before_the_predicted_arrival(prewarm, last_ms):
    """Every second a request, and containers that stay for 300 ms; two arrivals predict a third."""
    catalogue = one_function(HALF, cold_start_ms=200.0)
    scenario = quiet(warm_containers=0, keep_alive_ms=300.0, prewarm=prewarm)
    recording = run(scenario, catalogue, Listed([0.0, 1_000.0, 2_000.0]))
    assert starts_ms(recording) == [200.0, 200.0, last_ms]
    assert recording.result.prewarmed == int(prewarm)
    assert recording.result.cold_starts == (2 if prewarm else 3)


def test_whoever_comes_early_waits_for_the_rest_of_the_start():
    """The container for the third arrival starts at 1,800 ms; the request comes at 1,900."""
    catalogue = one_function(HALF, cold_start_ms=200.0)
    scenario = quiet(warm_containers=0, keep_alive_ms=300.0, prewarm=True)
    recording = run(scenario, catalogue, Listed([0.0, 1_000.0, 1_900.0]))
    assert starts_ms(recording) == [200.0, 200.0, 100.0]
    assert recording.result.cold_starts == 2


def test_later_stages_are_started_later():
    """By the part of the SLO that goes before them."""
    catalogue = Catalogue.of(
        [
            workflow([[], [0]], slo_ms=200.0),
            profile("f0", [(1, 1, 50, 100)], cold_start_ms=200.0),
            profile("f1", [(1, 1, 50, 100)], cold_start_ms=200.0),
        ]
    )
    scenario = quiet(warm_containers=0, keep_alive_ms=300.0, prewarm=True)
    recording = run(scenario, catalogue, Listed([0.0, 2_000.0, 4_000.0]))
    assert starts_ms(recording)[4:] == [0.0, 0.0]
    # The second stage's container is started at 4,000 + 200 / 2 - 200 ms: it still starts at 4,000,
    # and is ready when the second stage begins.
    assert recording.spans[5].begin_ms == 4_100.0
    assert recording.result.prewarmed == 2


def test_no_container_is_started_where_one_is_free():
    catalogue = one_function(HALF, cold_start_ms=200.0)
    scenario = quiet(prewarm=True, warm_containers=2)
    recording = run(scenario, catalogue, Listed([100.0 * i for i in range(20)]))
    assert recording.result.prewarmed == 0
    assert recording.result.cold_starts == 0


class StartsLater(Fixed):
    """A container for the second stage 50 ms after each arrival; none of its own for the first."""

    def prewarm_delay_ms(self, key):
        return 50.0 if key[2] == "s1" else None


def test_a_policy_may_say_when_a_later_stage_is_started():
    """The second stage begins at 400 ms, and its container is ready at 250."""
    catalogue = Catalogue.of(
        [
            workflow([[], [0]], slo_ms=2_000.0),
            profile("f0", [(1, 1, 50, 200)], cold_start_ms=200.0),
            profile("f1", [(1, 1, 50, 100)], cold_start_ms=200.0),
        ]
    )
    scenario = quiet(warm_containers=0, prewarm=True)
    recording = run(scenario, catalogue, Listed([0.0]), StartsLater)
    assert starts_ms(recording) == [200.0, 0.0]
    assert recording.result.prewarmed == 1


def test_prewarming_ends_no_other_container():
    """Its memory is taken by others, which are not evicted for a prediction."""
    catalogue = Catalogue.of(
        [
            workflow([[]], name="a", functions=["f0"]),
            workflow([[]], name="b", functions=["f1"]),
            *(profile(f, HALF, cold_start_ms=200.0, memory_mib=1_000) for f in ("f0", "f1")),
        ]
    )
    keys = (("default", "a"), ("default", "b"))
    limits = Limits(server_context_mib=0)
    scenario = quiet(warm_containers=0, prewarm=True, memory_mib=1_500, limits=limits)
    times_ms = [0.0, 1_000.0, 1_500.0, 2_500.0]
    recording = run(scenario, catalogue, Listed(times_ms, [0, 0, 1, 1], keys))
    assert recording.result.prewarmed == 0
    assert recording.result.evictions == 1


def test_a_container_is_prewarmed_on_a_gpu_that_the_function_knows():
    """Its profile has one of the two models; the walk from home passes both kinds of nodes."""
    catalogue = one_function({"b": HALF}, cold_start_ms=200.0)
    scenario = quiet(
        nodes=6, gpu_models=("a", "b"), warm_containers=0, keep_alive_ms=300.0, prewarm=True
    )
    recording = run(scenario, catalogue, Listed([0.0, 1_000.0, 2_000.0]))
    assert recording.result.prewarmed == 1
    assert starts_ms(recording)[2] == 0.0
    assert all(int(span.node[-1]) % 2 for span in recording.spans)


def test_a_container_that_was_started_in_vain_ends_after_its_keep_alive():
    """Nothing ran in it, so nothing but its start says from when on it is idle."""
    catalogue = one_function(HALF, cold_start_ms=200.0)
    scenario = quiet(warm_containers=0, keep_alive_ms=300.0, prewarm=True)
    recording = run(scenario, catalogue, Listed([0.0, 1_000.0, 5_000.0]))
    # One is started for 2,000 ms, where no request comes, and ends at 2,300.
    assert recording.result.prewarmed == 1
    assert starts_ms(recording) == [200.0, 200.0, 200.0]
    assert recording.result.cold_starts == 3
