"""Runs are equal by seed in any process: in plain Python, too, where this one is compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.model.catalogue import Catalogue
from workbench.profiles.generated import samples
from workbench.simulation.engine import simulate
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.paper import SETTINGS, Paper

REPOSITORY = Path(__file__).parents[2]
POLICIES = ("warm", "exact", "infless")


def results(policy, seed):
    """Return the result of 400 requests, as text, by resizable."""
    setting = SETTINGS["moderate-normal"]
    catalogue = Catalogue.of(samples())
    arrivals = Paper(load=setting.load).arrivals(tuple(catalogue.workflows), seed=seed)
    return [
        json.dumps(
            simulate(
                Scenario(slo_factor=setting.slo_factor, resizable=resizable),
                catalogue,
                arrivals,
                policy,
                requests=400,
                seed=seed,
            ).as_json()
        )
        for resizable in (False, True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_plain_python_gives_the_same(policy):
    code = f"from {__name__} import results; print(*results({policy!r}, 3), sep='\\n')"
    process = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.splitlines() == results(policy, 3)
