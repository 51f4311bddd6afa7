"""Workflows meet their objective in the simulator, with run times that vary."""

import pytest

from scheduler.model.catalogue import Catalogue
from tests.simulation.harness import Poisson, run
from workbench.profiles.generated import samples
from workbench.simulation.scenario import Scenario

SAMPLES = Catalogue.of(samples())
ARRIVALS = Poisson(100.0, seed=3, workflows=tuple(SAMPLES.workflows))  # few requests wait


def hit_ratio(policy, requests=2_000, **changes):
    scenario = Scenario(nodes=32, slo_factor=0.9, resizable=True, **changes)
    return run(scenario, SAMPLES, ARRIVALS, policy, requests=requests).result.hit_ratio


@pytest.mark.parametrize(
    ("noise_ratio", "requests"),
    [
        (0.05, 500),
        pytest.param(0.05, 2_000, marks=pytest.mark.slow),
        pytest.param(0.1, 2_000, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("policy", ["exact", pytest.param("esg", marks=pytest.mark.slow)])
def test_an_objective_of_99_percent_is_met(policy, noise_ratio, requests):
    """The margin follows the noise, which the simulated profiles state as p95Ms."""
    assert hit_ratio(policy, requests, noise_ratio=noise_ratio) >= 0.99


@pytest.mark.slow
def test_a_constant_margin_misses_it():
    """A tenth covers two standard deviations of 5 % and one of 10 %."""
    assert hit_ratio("exact", noise_ratio=0.1, margin_ratio=0.1) < 0.99


def test_without_noise_there_is_no_margin():
    """The derived margin is that of an SLO with nothing held back."""
    assert hit_ratio("exact", 500, noise_ratio=0.0) == 1.0
    derived, without = (
        run(
            Scenario(noise_ratio=0.0, resizable=True, **changes),
            SAMPLES,
            ARRIVALS,
            "exact",
            requests=300,
        ).spans
        for changes in ({}, {"margin_ratio": 0.0})
    )
    assert derived == without
