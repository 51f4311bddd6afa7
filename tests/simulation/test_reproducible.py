"""The same seed gives the same bytes."""

import json

import pytest

from scheduler.model.catalogue import Catalogue
from tests.simulation.harness import Poisson, one_function, quiet, run
from workbench.profiles.builders import profile, workflow
from workbench.simulation.containers import data_locality, grant_cache
from workbench.simulation.registry import policy_names

CATALOGUE = one_function(
    [(b, 1, p, 20 * b**0.6 / (p / 25) ** 0.5) for b in (1, 2, 4) for p in (25, 50, 100)],
    slo_ms=45.0,
    cold_start_ms=300.0,
)
OURS = ("esg", "exact", "oracle", "minimum", "grandslam", "random")


def bytes_of(policy, seed):
    scenario = quiet(noise_ratio=0.1, nodes=2, prewarm=True)
    recording = run(scenario, CATALOGUE, Poisson(6.0, seed=9), policy, requests=400, seed=seed)
    assert recording.result.planning_s > 0
    return json.dumps(recording.result.as_json()), [*recording.requests, *recording.spans]


@pytest.mark.parametrize("policy", OURS)
def test_the_same_seed_gives_the_same_bytes(policy):
    """The result, and every record of a request and of a run."""
    assert policy in policy_names()
    assert bytes_of(policy, 1) == bytes_of(policy, 1)


@pytest.mark.slow
@pytest.mark.parametrize("policy", OURS)
def test_another_seed_gives_others(policy):
    assert bytes_of(policy, 1)[0] != bytes_of(policy, 2)[0]


def test_wall_time_is_no_part_of_it():
    result = run(quiet(), CATALOGUE, Poisson(6.0, seed=9), "exact", requests=50).result
    assert "planning_s" not in result.as_json()


def test_what_is_kept_of_answers_and_inputs_changes_nothing(monkeypatch):
    """With room for two of each they are made again and again."""
    expected = of_a_chain()
    monkeypatch.setattr(grant_cache, "_ANSWERS_MAX", 2)
    monkeypatch.setattr(data_locality, "_INPUTS_MAX", 2)
    assert of_a_chain() == expected


def of_a_chain():
    rows = [(1, 1, percent, 500 / percent) for percent in (20, 30, 50)]
    catalogue = Catalogue.of([workflow([[], [0]]), profile("f0", rows), profile("f1", rows)])
    recording = run(quiet(nodes=5), catalogue, Poisson(6.0, seed=9), "random", requests=300)
    return recording.result.as_json(), recording.requests, recording.spans
