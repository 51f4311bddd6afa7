"""Times and energy of runs: noise of each configuration, neighbours by function, power."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.search.margin import P95_Z, quantile_ratio
from tests.simulation.harness import Listed, one_function, quiet, run
from workbench.profiles.builders import profile, workflow
from workbench.simulation.rng import Noise
from workbench.simulation.scenario import Power

HALF = [(1, 1, 50, 10)]
POLICIES = ("minimum", "infless", "warm")


def durations_ms(recording):
    return [span.end_ms - span.execute_ms for span in recording.spans]


@given(ratio=st.floats(0.01, 0.5), sigma=st.floats(0.0, 0.8), seed=st.integers(0, 9))
def test_a_deviation_of_its_own_keeps_the_quantile(ratio, sigma, seed):
    """The factor of a configuration is as probable as that of the common noise."""
    # The first factor of a stream is 1: the second one is drawn.
    noises = [Noise(np.random.default_rng(seed), ratio) for _ in range(2)]
    for noise in noises:
        noise.take_factor()
    factors = [noises[0].take_factor(), noises[1].take_factor(sigma)]
    z_score = np.log(factors[0]) / ratio + ratio / 2
    assert factors[1] == pytest.approx(quantile_ratio(z_score, sigma))


def noisy(p95_ms, **changes):
    """Many runs, one after the other, of a function with this 95th percentile."""
    document = profile("f0", [(1, 1, 100, 100)])
    gpu = document.spec.gpus[0]
    listed = tuple(c.model_copy(update={"p95_ms": p95_ms}) for c in gpu.configurations)
    gpus = (gpu.model_copy(update={"configurations": listed}),)
    spec = document.spec.model_copy(update={"gpus": gpus})
    catalogue = Catalogue.of([workflow([[]]), document.model_copy(update={"spec": spec})])
    scenario = quiet(noise_ratio=0.05, **changes)
    return durations_ms(run(scenario, catalogue, Listed([1_000.0 * i for i in range(2_000)])))


def test_noise_follows_the_95th_percentile_of_the_profile():
    """A twentieth of the runs takes longer than what the profile says."""
    times_ms = noisy(140.0, profiled_noise=True)
    assert np.mean(times_ms) == pytest.approx(100.0, rel=0.02)
    assert np.mean(np.array(times_ms) > 140.0) == pytest.approx(0.05, abs=0.015)


def test_without_it_all_configurations_have_the_common_noise():
    common_ms = 100.0 * quantile_ratio(P95_Z, 0.05)
    assert np.mean(np.array(noisy(140.0)) > common_ms) == pytest.approx(0.05, abs=0.015)


def two_functions():
    """Workflows "w0" and "w1" of one stage each, which share a GPU."""
    workflows = [workflow([[]], name=f"w{i}", functions=[f"f{i}"]) for i in range(2)]
    return Catalogue.of([*workflows, profile("f0", HALF), profile("f1", HALF)])


PAIR = Listed([0.0, 1.0], [0, 1], (("default", "w0"), ("default", "w1")))


@pytest.mark.parametrize(
    ("table", "second_ms"),
    [
        ({"f1": {"f0": 0.4}}, 12.0),
        ({"f1": 0.6}, 13.0),
        ({"f1": {"f1": 0.4}}, 11.0),  # the pair is not listed: the common ratio
        ({"f0": 0.6}, 11.0),
        ({}, 11.0),
    ],
)
def test_neighbours_by_pair_and_by_function(table, second_ms):
    """The other run holds half of the GPU, so it counts half."""
    scenario = quiet(interference_ratio=0.2, interference=table, warm_containers=2)
    recording = run(scenario, two_functions(), PAIR)
    assert durations_ms(recording) == pytest.approx([10.0, second_ms])


@pytest.mark.parametrize("policy", ["minimum", "infless"])
def test_idle_containers_slow_nothing_down(policy):
    """Only what runs does, also where containers hold their share while they are idle."""
    scenario = quiet(interference_ratio=0.5, resizable=False)
    late = Listed([0.0, 500.0], [0, 1], PAIR.workflows)
    assert durations_ms(run(scenario, two_functions(), late, policy)) == pytest.approx([10.0, 10.0])


@pytest.mark.parametrize("policy", POLICIES)
def test_energy_is_that_of_the_idle_cluster_and_of_the_runs(policy):
    """Two GPUs idle for the whole time; each run adds half of the range, and one vCPU."""
    power = Power(gpu_idle_watts=50.0, gpu_max_watts=350.0, vcpu_watts=4.0)
    scenario = quiet(nodes=2, power=power, resizable=False)
    recording = run(scenario, one_function(HALF), Listed([0.0, 990.0]), policy)
    result, seconds = recording.result, recording.requests[-1].end_ms / 1000
    assert result.ran_joules == pytest.approx(2 * 0.010 * (150.0 + 4.0))
    assert result.idle_joules == pytest.approx(2 * 50.0 * seconds)
    total_joules = result.ran_joules + result.idle_joules
    assert result.joules_per_request == pytest.approx(total_joules / 2)
