"""Figures of runs in a folder: those of the very same order count, and no others."""

import json
from dataclasses import replace

import pytest

from tests.simulation.harness import Listed, one_function, quiet, run
from workbench.simulation.runs import result_cache
from workbench.simulation.runs.job import Outcome, SimulationJob
from workbench.simulation.runs.result_cache import ResultCache
from workbench.simulation.workloads.poisson import Poisson

JOB = SimulationJob(
    policy="minimum",
    setting="test",
    seed=1,
    scenario=quiet(),
    workload=Poisson(rate_rps=5.0),
    requests=3,
)


@pytest.fixture
def store(tmp_path):
    """Figures of one run, under a name."""
    result = run(quiet(), one_function([(1, 1, 50, 10)]), Listed([0.0, 20.0, 40.0])).result
    cache = ResultCache(tmp_path / "kept", [])
    cache.write("name", Outcome(job=JOB, result=result, wall_s=2.0))
    return cache


def test_what_was_kept_is_read_again(store):
    """The whole result, and the wall times with it."""
    result = run(quiet(), one_function([(1, 1, 50, 10)]), Listed([0.0, 20.0, 40.0])).result
    outcome = store.read("name", JOB)
    assert outcome == Outcome(job=JOB, result=result, wall_s=2.0)
    assert outcome.result.planning_s > 0


@pytest.mark.parametrize(
    "changed",
    [
        replace(JOB, seed=2),
        replace(JOB, policy="exact"),
        replace(JOB, requests=4),
        replace(JOB, scenario=quiet(nodes=2)),
        replace(JOB, workload=Poisson(rate_rps=6.0)),
    ],
)
def test_another_order_under_that_name_does_not_count(store, changed):
    assert store.read("name", changed) is None


def test_another_version_does_not_count(store, monkeypatch):
    monkeypatch.setattr(result_cache, "__version__", "changed")
    assert store.read("name", JOB) is None


def test_a_file_that_was_cut_off_does_not_count(store, tmp_path):
    (path,) = (tmp_path / "kept").iterdir()
    path.write_text(path.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    assert store.read("name", JOB) is None
    path.write_text(json.dumps([1]), encoding="utf-8")
    assert store.read("name", JOB) is None


def test_what_is_forgotten_is_gone(store):
    store.clear()
    assert store.read("name", JOB) is None
    assert store.read("never", JOB) is None
