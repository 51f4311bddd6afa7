"""Calibration: what differs between a run and its scenario is said, stage by stage."""

import json
from collections import deque
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from scheduler.cli import app
from scheduler.model.catalogue import Catalogue
from scheduler.model.document_reader import DocumentError
from scheduler.model.documents import to_manifest
from tests.simulation.harness import Poisson, quiet, run
from workbench.profiles.builders import profile, workflow
from workbench.simulation.calibration import EVENT, calibrate, read_batches

SLOWER, NOISE_RATIO = 1.25, 0.1
KEY = ("default", "w")


def documents(factor=1.0):
    """A chain of two stages; the second one takes so many times 40 ms."""
    rows = [(1, 1, 50, 30.0)], [(1, 1, 50, 40.0 * factor)]
    return [workflow([[], [0]]), *(profile(f"f{i}", listed) for i, listed in enumerate(rows))]


def scenario(noise_ratio=0.0):
    return quiet(noise_ratio=noise_ratio, nodes=4)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Log of a gateway whose second stage is slower than profiled, and whose times scatter."""
    recording = run(
        scenario(NOISE_RATIO), Catalogue.of(documents(SLOWER)), Poisson(8.0, seed=3), "minimum",
        requests=1_500,
    )  # fmt: skip
    arrivals = deque(sorted(record.arrival_ms for record in recording.requests))
    lines = ["starting", json.dumps({"event": "another"})]
    for span in recording.spans:  # the first stage serves in the order of arrival
        waits = [0.0]
        if span.stage == "s0":
            waits = [(span.execute_ms - arrivals.popleft()) / 1000]
        lines.append(json.dumps(line(span, waits)))
    file = tmp_path_factory.mktemp("log") / "gateway.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def line(span, waits):
    profiled_ms = {"s0": 30.0, "s1": 40.0}[span.stage]
    return {
        "event": EVENT,
        "timestamp": datetime.fromtimestamp(1e9 + span.end_ms / 1000, UTC).isoformat(),
        "namespace": "default",
        "workflow": "w",
        "stage": span.stage,
        "rows": span.jobs,
        "queue_s": waits,
        "execute_s": (span.end_ms - span.execute_ms) / 1000,
        "profiled_s": profiled_ms / 1000,
    }


def test_known_parameters_are_found(log):
    """The slower stage, the noise, and no error where there is none."""
    catalogue = Catalogue.of(documents())
    first, second = calibrate(read_batches(log, catalogue), scenario(), catalogue, "minimum")
    assert (first.stage, second.stage) == ((KEY, "s0"), (KEY, "s1"))
    assert first.batches == second.batches == 1_500
    for stage, error in ((first, 0.0), (second, 1 / SLOWER - 1)):
        assert stage.simulation_error_ratio == pytest.approx(error, abs=0.02)
        assert stage.profile_error_ratio == pytest.approx(error, abs=0.02)
        assert stage.noise_ratio == pytest.approx(NOISE_RATIO, rel=0.1)
        assert stage.measured_rows == stage.simulated_rows == 1.0


def test_true_parameters_leave_no_error(log):
    """Simulated with what the run had, both stages take as long as measured."""
    catalogue = Catalogue.of(documents(SLOWER))
    stages = calibrate(
        read_batches(log, catalogue), scenario(NOISE_RATIO), catalogue, "minimum"
    )  # fmt: skip
    assert [stage.simulation_error_ratio for stage in stages] == pytest.approx([0.0, 0.0], abs=0.02)


def test_the_command_prints_the_errors(log, tmp_path, monkeypatch):
    """A row for each stage; the terminal is wide enough for all columns."""
    monkeypatch.setenv("COLUMNS", "200")
    texts = [json.dumps({"kind": d.kind, **to_manifest(d)}) for d in documents()]
    (tmp_path / "documents.yaml").write_text("\n---\n".join(texts), encoding="utf-8")
    (tmp_path / "scenario.yaml").write_text("{policies: minimum, nodes: 4}", encoding="utf-8")
    words = ["--scenario", tmp_path / "scenario.yaml", "--profiles", tmp_path / "documents.yaml"]
    done = CliRunner().invoke(app, ["calibrate", *map(str, [log, *words])])
    assert done.exit_code == 0, done.output
    (row,) = [line for line in done.stdout.splitlines() if " s1 " in line]
    assert row.split()[2] == "1,500"
    assert float(row.split()[-2].rstrip("%")) == pytest.approx(-20, abs=2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"stage": "s9"},
            "line 1: is no batch of the gateway's log: 'default/w' has no stage 's9'",
        ),
        ({"rows": None}, "line 1: is no batch of the gateway's log: int() argument"),
        ({"execute_s": 0}, "execute_ms is 0.0, which is no duration"),
        ({"event": "another"}, "has no line with the event 'batch ended'"),
    ],
)
def test_a_log_that_is_wrong(tmp_path, changes, message):
    """File, line and reason are named."""
    fields = {
        "event": EVENT, "timestamp": "2026-01-01T00:00:00Z", "namespace": "default",
        "workflow": "w", "stage": "s0", "rows": 1, "queue_s": [0], "execute_s": 1,
        "profiled_s": 1,
    }  # fmt: skip
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps(fields | changes), encoding="utf-8")
    with pytest.raises(DocumentError) as refused:
        read_batches(file, Catalogue.of(documents()))
    (problem,) = refused.value.problems
    assert str(problem).startswith(str(file))
    assert message in str(problem)
