"""Figures of benchmarks: their ranges, the answers of other solvers, and the virtual clock."""

import json
from math import nan

import pytest

from bench import thresholds
from bench.dispatch import Owner
from bench.search import check
from scheduler.dispatch.dispatcher import Dispatcher
from workbench.profiles.generated import (
    FUNCTIONS,
    WORKFLOWS,
    generated_profile,
    generated_workflow,
)


@pytest.mark.parametrize(("value", "status"), [(1.0, 0), (2.0, 0), (0.9, 1), (2.1, 1), (nan, 1)])
def test_a_figure_out_of_its_range_fails(tmp_path, monkeypatch, value, status):
    """Also one that is no number; a figure without a range passes."""
    ranges = {"figure": {"measured": 1.5, "min": 1, "max": 2}}
    (tmp_path / "bench.json").write_text(json.dumps(ranges), encoding="utf-8")
    monkeypatch.setattr(thresholds, "RANGES", tmp_path)
    assert thresholds.check_ranges("bench", {"figure": value, "other": 7.0}) == status


def test_solvers_of_equal_costs_are_compared():
    """Costs differ by the rounding of a solver at most."""
    check([1.0, 2.0], [1.0, 2.0 + 1e-9])


@pytest.mark.parametrize("solved", [[], [1.0], [1.0, 2.1], [1.0, 2.0, 3.0]])
def test_a_solver_that_answers_otherwise_is_no_peer(solved):
    """A search that ends without all of the costs is not faster than the planner."""
    with pytest.raises(RuntimeError, match="costs differ"):
        check([1.0, 2.0], solved)


def test_the_clock_goes_on_after_the_warm_up(monkeypatch):
    """Requests that are measured arrive after those that warm up, as reports to a dispatcher do."""
    arrivals_ms = []
    arrive = Dispatcher.arrive

    def recorded(dispatcher, workflow, payload, *, now_ms):
        arrivals_ms.append(now_ms)
        return arrive(dispatcher, workflow, payload, now_ms=now_ms)

    monkeypatch.setattr(Dispatcher, "arrive", recorded)
    profiles, workflows = map(generated_profile, FUNCTIONS), map(generated_workflow, WORKFLOWS)
    owner = Owner(list(profiles), list(workflows), seed=0)
    rate_rps = owner.start_pods(5)
    for _ in range(2):
        owner.serve(rate_rps, 10)
    assert arrivals_ms == sorted(arrivals_ms)
    assert len(arrivals_ms) == 20
