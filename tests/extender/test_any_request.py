"""Schemathesis: answers to any request are those of the OpenAPI document."""

import json
import subprocess
import sys

import pytest

from tests.extender.factories import pod

PHASES = ("coverage", "fuzzing")  # no route makes what another one reads: nothing is stateful
EXAMPLES = 6  # per route and phase, in addition to the edges of every field; take more by hand


@pytest.mark.slow
def test_schemathesis_finds_nothing(shared, tmp_path):
    """With every check on, no answer has a status, header, type or form that is not documented.

    Sound data are taken and bad data refused on all routes, those that change the state included;
    then a sound pod is filtered, bound and finished as ever.
    """
    report = tmp_path / "report.ndjson"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run"),
            f"{shared.client.base_url}/openapi.json",
            *("--checks", "all", "--mode", "all", "--phases", ",".join(PHASES)),
            *("--max-examples", str(EXAMPLES), "--generation-deterministic"),
            *("--report", "ndjson", "--report-ndjson-path", str(report), "--no-color"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    routes = shared.get("/openapi.json")["paths"]
    count = sum(len(methods) for methods in routes.values())
    assert f"Operations:       {count} selected / {count} total" in done.stdout
    events = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    finished = [e["ScenarioFinished"] for e in events if "ScenarioFinished" in e]
    assert set(PHASES) == {event["phase"].lower() for event in finished}
    pending = pod("half")
    assert shared.place(pending, "n1")["gpu_percent"] == 50
    shared.finish(pending)
