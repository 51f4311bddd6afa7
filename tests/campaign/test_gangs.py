"""Gangs on the simulated cluster: all members are filtered before one is bound."""

import pytest

from scheduler.extender.promises import Promises
from tests.campaign.gangs import has_gangs
from tests.campaign.incidents import Incident, draw_layout
from tests.campaign.run import run_incidents, run_seed

SEED = 1  # without gateways
GPUS = sum(draw_layout(SEED).values())
RUNS = [seed for seed in range(200) if has_gangs(seed)]


def gang(name, size, at_s=1.0, **changed):
    details = {"function": "most", "size": size, "minimum": size, "has_racks": False}
    return Incident(at_s, "gang", {"gang": name, **details, **changed})


def test_a_gang_that_fits_exactly_is_bound_whole():
    """Each member of 60 % gets a GPU, also after attempts that kube-scheduler gives up."""
    incidents = [Incident(0.5, "revert", {"times": 3}), gang("g", GPUS)]
    verdict = run_incidents(SEED, incidents)
    assert (verdict.failures, verdict.bound) == ((), GPUS)


def test_a_gang_that_does_not_fit_takes_nothing_and_holds_nobody_up():
    """A single pod on each GPU is bound instead."""
    singles = [
        Incident(3.0 + number, "create", {"pod": f"p{number}", "function": "most", "priority": 0})
        for number in range(GPUS)
    ]
    verdict = run_incidents(SEED, [gang("g", GPUS + 1), *singles])
    assert (verdict.failures, verdict.bound) == ((), GPUS)


def test_one_of_two_gangs_is_bound():
    """Neither waits for the other with a part of the GPUs."""
    verdict = run_incidents(SEED, [gang("g", GPUS), gang("h", GPUS, 1.001)])
    assert (verdict.failures, verdict.bound) == ((), GPUS)


def test_without_promises_a_gang_is_broken(monkeypatch):
    """The cases above are not whole by chance."""
    monkeypatch.setattr(Promises, "add", lambda self, pod, share: None)
    assert run_incidents(SEED, [gang("g", GPUS + 1)]).bound > 0


@pytest.mark.slow
@pytest.mark.parametrize("active", [1, 2])
def test_faults_over_commit_and_lose_nothing(active):
    """Gangs, attempts that are given up, and the faults of the campaign together."""
    failed = [v for seed in RUNS if (v := run_seed(seed, active=active)).failed]
    assert failed == []
