"""Runs as jobs: the same in any process, and honest about failure."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.model.catalogue import Catalogue
from tests.simulation.harness import quiet
from workbench.profiles.builders import profile, workflow
from workbench.series.executors import SeriesProcesses
from workbench.series.runs import SeriesWorker, run_series
from workbench.simulation import registry
from workbench.simulation.policies.minimum import Minimum
from workbench.simulation.runs.job import SimulationJob
from workbench.simulation.runs.processes import SimulationWorker
from workbench.simulation.runs.results_json import write_results
from workbench.simulation.runs.runner import run
from workbench.simulation.runs.summary import aggregate, summary
from workbench.simulation.workloads import requests
from workbench.simulation.workloads.poisson import Poisson
from workbench.simulation.workloads.requests import Requests

DOCUMENTS = (
    workflow([[], [0]], slo_ms=90.0),
    workflow([[]], name="v", slo_ms=50.0),
    *(profile(f"f{i}", [(b, 1, 40, 20 * b**0.6) for b in (1, 2)]) for i in (0, 1)),
)
JOB = SimulationJob(
    policy="exact",
    setting="test",
    seed=3,
    scenario=quiet(nodes=2, noise_ratio=0.1, prewarm=True),
    workload=Poisson(rate_rps=60.0),
    requests=500,
)


def outcomes_of(jobs, *, processes=1, progress=lambda *_: None):
    worker = SimulationWorker(DOCUMENTS)
    processes = SeriesProcesses(count=processes)
    outcomes = dict(run_series(jobs, worker, processes=processes, progress=progress))
    return [outcomes[number] for number in sorted(outcomes)]


def failing(at, error):
    """A policy that fails when it is asked so often."""

    class Failing(Minimum):
        calls = 0

        def candidates(self, question):
            self.calls += 1
            if self.calls == at:
                raise error
            return super().candidates(question)

    return Failing


@pytest.fixture
def registered(monkeypatch):
    """Registers a class as policy "mine", as an entry point would."""

    def register(policy):
        class Point:
            name, value = "mine", "somewhere:Mine"

            def load(self):
                return policy

        monkeypatch.setattr(registry, "entry_points", lambda **_: [Point()])

    return register


class _Pressed(SeriesWorker):
    """A worker whose processes get a Ctrl-C while they start."""

    def __reduce__(self):
        return _press, ()

    def run(self, job, progress):
        return job

    def lost(self, job, reason):
        return reason


def _press():
    os.kill(os.getpid(), signal.SIGINT)
    return _Pressed()


@pytest.mark.slow
def test_processes_survive_a_ctrl_c_while_they_start():
    """A terminal signals all processes, and the parent alone decides what ends."""
    outcomes = run_series(
        ["a", "b"],
        _Pressed(),
        processes=SeriesProcesses(count=2),
        progress=lambda *_: None,
    )
    assert dict(outcomes) == {0: "a", 1: "b"}


@pytest.mark.slow
def test_a_run_is_the_same_in_any_process(tmp_path):
    """Spawned or not, alone or beside others: results and files are equal to the byte."""
    jobs = [
        replace(JOB, policy=policy, seed=seed, trace_requests=50)
        for policy in ("minimum", "exact")
        for seed in (1, 2)
    ]
    for folder, processes in (("here", 1), ("spawned", 3)):
        ordered = [
            replace(job, folder=tmp_path / folder / f"{job.policy}-{job.seed}") for job in jobs
        ]
        write_results(tmp_path / folder, outcomes_of(ordered, processes=processes), {})
    files = sorted(path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*"))
    assert len([path for path in files if path.suffix]) == 2 + 2 * len(jobs)
    for path in files:
        if path.suffix and path.name != "timings.json":
            assert (tmp_path / "here" / path).read_bytes() == (
                tmp_path / "spawned" / path
            ).read_bytes()


def test_every_policy_is_asked_for_the_same(tmp_path):
    """The seed alone decides which requests arrive, and when."""
    arrivals = {}
    for policy in ("minimum", "random"):
        outcomes_of([replace(JOB, policy=policy, folder=tmp_path / policy)])
        rows = (tmp_path / policy / "requests.csv").read_text(encoding="utf-8").splitlines()[1:]
        arrivals[policy] = sorted(row.split(",")[:3] for row in rows)
    assert arrivals["minimum"] == arrivals["random"]


def test_results_are_strict_json(tmp_path):
    """Programs other than Python read them: there is no infinity in them."""
    job = replace(JOB, scenario=quiet(bandwidth_mib_s=float("inf")))
    write_results(tmp_path, outcomes_of([job]), {"Profiles": "made up"})

    def refuse(constant):
        raise AssertionError(constant)

    for name in ("results.json", "timings.json"):
        reports = json.loads((tmp_path / name).read_text(encoding="utf-8"), parse_constant=refuse)
        assert [report["seed"] for report in reports["runs"]] == [3]
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert results["facts"] == {"Profiles": "made up"}
    (one,) = results["runs"]
    assert one["scenario"]["bandwidth_mib_s"] is None
    assert one["workload"] == {"name": "poisson", "rateRps": 60.0, "together": False} or (
        one["workload"]["rateRps"] == 60.0
    )
    counts = one["result"]["latency"]["counts"]
    assert sum(count for _, count in counts) == one["hits"] + one["misses"]


@pytest.mark.slow
def test_the_progress_ends_with_all_requests():
    reports = []
    job = replace(JOB, requests=25_000, policy="minimum")
    outcomes_of([job], progress=lambda number, ended: reports.append((number, ended)))
    assert reports == [(0, 10_000), (0, 20_000)]


def test_a_policy_that_fails_leaves_what_had_ended(registered, tmp_path):
    """The failure names policy, queue and time; rows and figures of what had ended are kept."""
    registered(failing(200, RuntimeError("out of ideas")))
    job = replace(JOB, policy="mine", folder=tmp_path)
    (outcome,) = outcomes_of([job])
    assert "queue default/" in outcome.failure
    assert "ms of the virtual clock: RuntimeError: out of ideas" in outcome.failure
    rows = (tmp_path / "requests.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert len(rows) == outcome.result.requests > 50
    assert summary(outcome)["failure"] == outcome.failure
    assert summary(outcome)["requests"] == len(rows)


def test_a_policy_that_cannot_be_made_is_named(registered):
    class Unmade(Minimum):
        def __init__(self, world):
            raise ValueError("no such prices")

    registered(Unmade)
    (outcome,) = outcomes_of([replace(JOB, policy="mine")])
    message, _, place = outcome.failure.partition(" (")
    assert message == "policy mine, constructed for its run: ValueError: no such prices"
    assert Path(place.partition(":")[0]) == Path(__file__)
    assert outcome.result is None


def test_one_failure_does_not_end_the_others(registered):
    registered(failing(1, RuntimeError("no")))
    first, second = outcomes_of([replace(JOB, policy="mine"), JOB])
    assert not first.whole
    assert second.whole


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    (outcome,) = outcomes_of([replace(JOB, folder=tmp_path / "file" / "runs")])
    assert "Not a directory" in outcome.failure


def test_seeds_are_taken_together():
    """Means over runs, and one distribution of all their requests."""
    jobs = [replace(JOB, seed=seed, requests=200 * seed) for seed in (1, 2)]
    outcomes = outcomes_of(jobs)
    (both,) = aggregate(outcomes)
    first, second = (outcome.result for outcome in outcomes)
    assert both.hit_ratios == [first.hit_ratio, second.hit_ratio]
    assert sum(both.latency.counts) == 600
    assert both.latency.max_ratio == max(first.latency.max_ratio, second.latency.max_ratio)
    assert both.latency.mean == pytest.approx(
        (200 * first.latency.mean + 400 * second.latency.mean) / 600
    )
    misses = first.misses + second.misses
    assert both.missed.queue_ms == pytest.approx(
        (first.missed.queue_ms + second.missed.queue_ms) / max(misses, 1)
    )


def test_a_run_without_requests_has_no_row():
    (outcome,) = outcomes_of([JOB])
    empty = run(JOB, Catalogue.of(DOCUMENTS), progress=lambda _: None)
    assert aggregate([replace(empty, result=None), outcome])[0].results == (outcome.result,)


def test_policies_are_told_the_whole_workload_s_rates(registered, tmp_path, monkeypatch):
    """And not those of its beginning, in which little may come."""
    monkeypatch.setattr(requests, "CHUNK_MAX", 1_000)  # the file is longer
    file = tmp_path / "requests.csv"
    rows = [(0.0, "w"), *((100_000.0 + i, "v") for i in range(1_200))]
    lines = ["time_ms,workflow", *(f"{time_ms},{name}" for time_ms, name in rows)]
    file.write_text("\n".join(lines), encoding="utf-8")
    reports = []

    class RecordsRates(Minimum):
        def __init__(self, world):
            super().__init__(world)
            reports.append(dict(world.rate_rps))

    registered(RecordsRates)
    job = replace(JOB, policy="mine", workload=Requests(file=file), requests=10)
    run(job, Catalogue.of(DOCUMENTS), progress=lambda _: None)
    assert reports == [job.workload.mean_rate_rps(tuple(sorted(Catalogue.of(DOCUMENTS).workflows)))]
