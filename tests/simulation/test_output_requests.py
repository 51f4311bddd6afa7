"""requests.csv: every request, and nothing that the result does not say as well."""

import csv
from collections import Counter
from contextlib import closing

import pytest

from scheduler.model.catalogue import Catalogue
from tests.simulation.harness import Poisson, one_function, quiet, run
from workbench.profiles.builders import profile, workflow
from workbench.simulation.output.requests_csv import COLUMNS, RequestsCsv
from workbench.simulation.result import RequestRecord

TIGHT = one_function([(b, 1, 50, 20 * b**0.6) for b in (1, 2, 4)], slo_ms=40.0, cold_start_ms=30.0)


@pytest.fixture(scope="module")
def recording():
    """A run with hits, misses and requests that are dropped."""
    scenario = quiet(noise_ratio=0.2, give_up_factor=1.5)
    return run(scenario, TIGHT, Poisson(7.0, seed=1), "exact", requests=600)


@pytest.fixture
def rows(recording, tmp_path):
    return rows_of(recording, tmp_path)


def rows_of(recording, folder):
    """Rows of a recording."""
    with closing(RequestsCsv(folder / "requests.csv", ["default/w"])) as table:
        for span in recording.spans:
            table.add_run(span)
        for record in recording.requests:
            table.write(record)
    with (folder / "requests.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_rows_say_what_the_result_says(recording, rows):
    """Equal counts of each outcome, and equal dollars."""
    result = recording.result
    assert min(result.hits, result.misses, result.dropped) > 0
    for outcome, count in (
        ("hit", result.hits),
        ("miss", result.misses),
        ("dropped", result.dropped),
    ):
        assert sum(row["outcome"] == outcome for row in rows) == count
    assert sum(float(row["cost_dollars"]) for row in rows) == pytest.approx(result.ran_dollars)
    assert {row["workflow"] for row in rows} == {"default/w"}
    assert sorted(int(row["request"]) for row in rows) == list(range(600))


def test_phases_add_up_to_the_latency(rows):
    for row in rows:
        phases = ("queue_ms", "start_ms", "transfer_ms", "execute_ms")
        latency_ms = float(row["end_ms"]) - float(row["arrival_ms"])
        assert float(row["latency_ms"]) == pytest.approx(latency_ms, abs=0.002)
        assert sum(float(row[phase]) for phase in phases) == pytest.approx(latency_ms, abs=0.005)


def test_a_hit_is_within_the_slo(rows):
    for row in rows:
        if row["outcome"] != "dropped":
            assert (row["outcome"] == "hit") == (float(row["latency_ms"]) <= float(row["slo_ms"]))


@pytest.mark.parametrize("policy", ["exact", "infless", "warm", "sgprs"])
def test_each_stage_has_batch_node_and_share(policy, tmp_path):
    """A part for each stage: the requests that share batches are as many as the batches say."""
    grid = [(b, 1, p, 2000 * b**0.6 / p) for b in (1, 2, 4) for p in (20, 50)]
    catalogue = Catalogue.of(
        [workflow([[], [0]], slo_ms=400.0), profile("f0", grid), profile("f1", grid)]
    )
    recording = run(quiet(nodes=3), catalogue, Poisson(15.0, seed=1), policy, requests=200)
    rows = rows_of(recording, tmp_path)
    assert len(rows) == 200
    parts = [
        list(zip(*(row[name].split(";") for name in COLUMNS[-3:]), strict=True)) for row in rows
    ]
    assert {len(stages) for stages in parts} == {2}
    by_jobs = Counter(int(batch) for stages in parts for batch, _, _ in stages)
    spans = Counter(span.jobs for span in recording.spans for _ in span.requests)
    assert by_jobs == spans
    assert {node for stages in parts for _, node, _ in stages} <= {
        span.node for span in recording.spans
    }
    assert {int(percent) for stages in parts for _, _, percent in stages} == {
        span.gpu_percent for span in recording.spans
    }


def test_it_is_written_while_the_run_goes_on(tmp_path):
    """Rows are written during the run, for any number of requests."""
    path = tmp_path / "requests.csv"
    record = RequestRecord(0, 0, 1.0, 2.0, 5.0, "hit", 0.0, 0.0, 0.0, 1.0, 0.25)
    with closing(RequestsCsv(path, ["default/w"])) as table:
        for _ in range(50_000):
            table.write(record)
        written = path.stat().st_size
    assert written > 0.5 * path.stat().st_size


def test_columns_are_named_with_their_units(tmp_path):
    RequestsCsv(tmp_path / "requests.csv", []).close()
    assert (tmp_path / "requests.csv").read_text(encoding="utf-8") == ",".join(COLUMNS) + "\n"
