"""The command `esg` as people and programs call it."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scheduler.cli import app
from scheduler.cluster.crds import crds_yaml
from workbench.commands.reference import reference_pages
from workbench.profiles.generated import sample_documents

REPOSITORY = Path(__file__).parents[2]
SAMPLES = str(REPOSITORY / "deploy" / "samples")
ESG = str(Path(sys.executable).with_name("esg"))


def esg(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def plan(*arguments: str) -> dict:
    result = esg("plan", "--profiles", SAMPLES, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_plan_prints_one_object_with_the_documented_keys():
    """Programs find every documented key, and K candidates, the cheapest first."""
    answer = plan("--workflow", "image-classification", "--k", "3")
    assert answer["feasible"] is True
    assert answer["budget_ms"] == pytest.approx(526 / 1.1)
    assert len(answer["candidates"]) == 3
    for candidate in answer["candidates"]:
        assert candidate.keys() >= {
            "batch", "cpu", "gpu_percent", "memory_mib", "stage_ms", "path_ms", "path_cost",
        }  # fmt: skip
        assert candidate["path_ms"] <= 526 / 1.1
    costs = [candidate["path_cost"] for candidate in answer["candidates"]]
    assert costs == sorted(costs)


def test_plan_takes_slack_and_queue():
    """The slack less the margin is the budget, and no larger batch is planned than waits."""
    answer = plan(
        "--workflow", "default/image-classification", "--stage", "segmentation",
        "--slack-ms", "5000", "--queued", "2",
    )  # fmt: skip
    assert answer["budget_ms"] == pytest.approx(5000 / 1.1)
    assert {candidate["batch"] for candidate in answer["candidates"]} <= {1, 2}


def test_plan_says_when_the_slo_is_lost():
    """Nothing takes 10 ms: the cheapest come, marked as infeasible."""
    answer = plan("--workflow", "image-classification", "--slack-ms", "10")
    assert answer["feasible"] is False
    costs = [candidate["path_cost"] for candidate in answer["candidates"]]
    assert costs == sorted(costs)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--workflow", "nothing"], "workflow default/nothing is not known"),
        (["--workflow", "image-classification", "--stage", "nothing"], "nothing"),
        (["--workflow", "image-classification", "--gpu-model", "T4"], "T4"),
    ],
)
def test_plan_tells_what_is_not_there(arguments, says):
    """A name that is wrong ends with 1 and a sentence that has it."""
    result = esg("plan", "--profiles", SAMPLES, *arguments)
    assert result.exit_code == 1
    assert says in result.output


def test_plan_prints_a_table_for_people():
    """Without --json there is a table with the budget in its title."""
    result = esg("plan", "--profiles", SAMPLES, "--workflow", "depth-recognition")
    assert result.exit_code == 0
    assert "1,233.0 ms left" in result.output


def test_samples_are_sound():
    """`esg check` finds nothing in what the project ships."""
    result = esg("check", SAMPLES)
    assert result.exit_code == 0, result.output
    assert "6 FunctionProfiles, 4 Workflows: 0 errors, 0 warnings" in result.output


def test_serve_embedded_wants_documents():
    """There is no API server to ask for Workflows."""
    result = esg("serve", "--embedded", str(REPOSITORY / "deploy" / "nodes" / "mocked-16x1.yaml"))
    assert result.exit_code == 2
    assert "--profiles" in result.output


def test_what_is_made_from_the_code_is_as_the_code_says():
    """CRDs, samples and reference pages in the tree are what `make documents` would write."""
    expected = {REPOSITORY / "deploy" / "crds" / "esg-scheduler.io.yaml": crds_yaml()}
    expected |= {REPOSITORY / "deploy" / "samples" / n: t for n, t in sample_documents().items()}
    expected |= {REPOSITORY / "docs" / "reference" / n: t for n, t in reference_pages().items()}
    for path, text in expected.items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run `make documents`"


def test_every_metric_of_the_code_is_described():
    """The reference has a meaning for every series."""
    for line in reference_pages()["metrics.md"].splitlines()[6:]:
        if line.startswith("| `"):
            assert line.rstrip(" |").rsplit("|", 1)[1].strip(), line


def test_wrong_setting_is_named(monkeypatch):
    """A setting that cannot be read ends the command with its variable's name."""
    monkeypatch.setenv("ESG_CANDIDATES", "many")
    result = esg("plan", "--profiles", SAMPLES, "--workflow", "image-classification")
    assert result.exit_code == 2
    assert "ESG_CANDIDATES" in result.output
    assert "many" in result.output


def test_a_port_that_is_taken_is_named():
    """The service does not start, and says which address it could not have."""
    nodes = str(REPOSITORY / "deploy" / "nodes" / "mocked-16x1.yaml")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        served = subprocess.run(
            [ESG, "serve", "--embedded", nodes, "--profiles", SAMPLES, "--port", port],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert served.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in served.stderr


def test_samples_need_a_folder(tmp_path):
    """A file of that name is told, in a line."""
    file = tmp_path / "taken"
    file.write_text("", encoding="utf-8")
    result = esg("samples", "--out", str(file))
    assert result.exit_code == 1
    assert result.stderr == f"error: {file}: File exists\n"
