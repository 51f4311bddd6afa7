"""Command line `esg`: output for people and for programs, and errors."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from scheduler import __version__
from scheduler.agent.settings import AgentSettings
from scheduler.cli.environment import from_environment
from scheduler.cluster.crds import crds_yaml
from scheduler.gateway.settings import GatewaySettings
from scheduler.settings import Settings
from tests.command_line import esg
from tests.extender.sample_cluster import unserved_kubeconfig
from workbench.commands.reference import reference_pages
from workbench.profiles.generated import sample_documents

REPOSITORY = Path(__file__).parents[2]
SAMPLES = str(REPOSITORY / "deploy" / "samples")
ESG = str(Path(sys.executable).with_name("esg"))


def plan(*arguments: str) -> dict:
    result = esg("plan", "--profiles", SAMPLES, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_plan_prints_one_object_with_the_documented_keys():
    """The JSON has every documented key, and K candidates, the cheapest first."""
    answer = plan("--workflow", "image-classification", "--k", "3")
    assert answer["feasible"] is True
    assert answer["budget_ms"] == pytest.approx(526 / (1 + answer["margin_ratio"]))
    assert len(answer["candidates"]) == 3
    for candidate in answer["candidates"]:
        assert candidate.keys() >= {
            "batch", "cpu", "gpu_percent", "memory_mib", "stage_ms", "path_ms", "path_cost",
        }  # fmt: skip
        assert candidate["path_ms"] <= answer["budget_ms"] < 526
    costs = [candidate["path_cost"] for candidate in answer["candidates"]]
    assert costs == sorted(costs)


def test_plan_takes_slack_and_queue():
    """The budget is the slack less the margin; the queue limits the batch."""
    answer = plan(
        "--workflow", "default/image-classification", "--stage", "segmentation",
        "--slack-ms", "5000", "--queued", "2",
    )  # fmt: skip
    assert answer["budget_ms"] == pytest.approx(5000 / (1 + answer["margin_ratio"]))
    assert 0.01 < answer["margin_ratio"] < 0.1
    assert {candidate["batch"] for candidate in answer["candidates"]} <= {1, 2}


def test_plan_marks_a_lost_slo():
    """No completion fits 10 ms: the plan is infeasible and lists the cheapest."""
    answer = plan("--workflow", "image-classification", "--slack-ms", "10")
    assert answer["feasible"] is False
    costs = [candidate["path_cost"] for candidate in answer["candidates"]]
    assert costs == sorted(costs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workflow", "nothing"], "workflow default/nothing is not known"),
        (["--workflow", "image-classification", "--stage", "nothing"], "nothing"),
        (["--workflow", "image-classification", "--gpu-model", "T4"], "T4"),
    ],
)
def test_plan_names_an_unknown_document(arguments, message):
    """An unknown name ends the command with status 1 and a message with the name."""
    result = esg("plan", "--profiles", SAMPLES, *arguments)
    assert result.exit_code == 1
    assert message in result.output


def test_plan_prints_a_table_for_people():
    """Without --json the output is a table with the budget in its title."""
    result = esg("plan", "--profiles", SAMPLES, "--workflow", "depth-recognition")
    assert result.exit_code == 0
    assert "1,233.0 ms left" in result.output


def test_samples_are_valid():
    """`esg check` has no errors and no warnings for the sample documents."""
    result = esg("check", SAMPLES)
    assert result.exit_code == 0, result.output
    assert (
        "6 FunctionProfiles, 6 FunctionServers, 4 Workflows: 0 errors, 0 warnings" in result.output
    )


def test_generated_files_are_current():
    """CRDs, samples and reference pages in the tree are as `make documents` writes them."""
    expected = {REPOSITORY / "deploy" / "crds" / "esg-scheduler.io.yaml": crds_yaml()}
    expected |= {REPOSITORY / "deploy" / "samples" / n: t for n, t in sample_documents().items()}
    expected |= {REPOSITORY / "docs" / "reference" / n: t for n, t in reference_pages().items()}
    for path, text in expected.items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run `make documents`"


def test_every_metric_of_the_code_is_described():
    """The reference page has a description of every series."""
    for line in reference_pages()["metrics.md"].splitlines()[6:]:
        if line.startswith("| `"):
            assert line.rstrip(" |").rsplit("|", 1)[1].strip(), line


def test_every_field_of_a_document_has_a_type_and_a_meaning():
    """The reference page says for each field what YAML to write and what it does."""
    page = reference_pages()["documents.md"]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in page.splitlines()
        if line.startswith("| `")
    ]
    types = {row[0]: row[1] for row in rows}
    assert all(len(row) == 5 and row[1] and row[4] for row in rows)
    assert types["`stages`"] == "list of [Stage](#stage)"
    assert types["`matchLabels`"] == "object of string"
    assert types["`p95Ms`"] == "number"
    assert types["`batching`"] == "`gateway`, `none`"


def test_check_reports_workflows_above_the_limit_of_stages(monkeypatch):
    """`esg check` refuses what the service would not use."""
    monkeypatch.setenv("ESG_STAGES_MAX", "2")
    result = esg("check", SAMPLES)
    assert result.exit_code == 1
    assert "Workflow default/image-classification: spec.stages: 3 stages are more" in result.output
    assert "raise ESG_STAGES_MAX" in result.output


UNUSED = """\
apiVersion: esg-scheduler.io/v1alpha1
kind: FunctionProfile
metadata: {name: f}
spec:
  gpus:
    - model: g
      configurations:
        - {batch: 1, cpu: 1, gpuPercent: 100, latencyMs: 9, p95Ms: 10, memoryMib: 9}
        - {batch: 2, cpu: 1, gpuPercent: 100, latencyMs: 12, memoryMib: 9}
"""


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("--version", 0),
        ("check {samples}", 0),
        ("check {nowhere}", 1),
        ("plan --workflow nope --profiles {samples}", 1),
        ("plan --workflow image-classification --profiles {nowhere}", 1),
        ("simulate --policy nope", 1),
        ("openb --pods {nowhere} --nodes {nowhere}", 1),
        ("calibrate {nowhere}", 1),
        ("cleanup --kubeconfig {nowhere}", 1),
        ("serve --port 65536", 2),
        ("check {samples} --nodes {nowhere}", 2),
        ("replay {nowhere}", 2),
        ("plan --k many --workflow w", 2),
        ("nope", 2),
    ],
)
def test_exit_statuses_follow_one_rule(words, status, tmp_path, monkeypatch):
    """1: an error, or a finding, with a line that says so; 2: the command line is wrong."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    result = esg(*words.format(samples=SAMPLES, nowhere=tmp_path / "nowhere").split())
    assert result.exit_code == status
    assert result.stderr.startswith({0: "", 1: "error: ", 2: "Usage: "}[status])


def test_check_is_strict_on_request(tmp_path):
    """A warning is status 0, or 1 with --strict; --json has it as an object."""
    file = tmp_path / "f.yaml"
    file.write_text(UNUSED, encoding="utf-8")
    lenient, strict = esg("check", file, "--json"), esg("check", file, "--strict")
    assert (lenient.exit_code, strict.exit_code) == (0, 1)
    assert "1 FunctionProfile: 0 errors, 1 warning" in strict.stdout
    answer = json.loads(lenient.stdout)
    assert answer["documents"] == {"FunctionProfile": 1}
    [problem] = answer["problems"]
    assert "1 of 2 have no p95Ms" in problem.pop("message")
    assert problem == {
        "source": str(file),
        "document": "FunctionProfile f",
        "field": "spec.gpus[0].configurations",
        "line": 7,
        "reason": "Invalid",
        "warning": True,
    }


def test_a_file_of_another_program_is_an_error_with_a_reason(tmp_path):
    """Deployments alone are nothing to check, and all files with them alone are named."""
    files = [tmp_path / name for name in ("deployment.yaml", "others.yaml")]
    for file in files:
        file.write_text("{apiVersion: apps/v1, kind: Deployment}", encoding="utf-8")
    result = esg("check", *files)
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: {files[0]}, {files[1]}: no Workflow, FunctionProfile or FunctionServer of "
        "esg-scheduler.io; name files or folders that have some\n"
    )


def test_a_key_that_occurs_twice_is_refused(tmp_path):
    """Neither value wins silently; the message has the line."""
    file = tmp_path / "f.yaml"
    file.write_text(UNUSED + "  gpus: []\n", encoding="utf-8")
    result = esg("check", file)
    assert result.exit_code == 1
    assert "key 'gpus' occurs twice in a mapping; keep one" in result.stderr
    assert f"{file}:10: " in result.stderr


def test_a_setting_that_is_no_json_is_an_error(monkeypatch):
    """Its name and the place are in one line."""
    monkeypatch.setenv("ESG_GPU_HOUR_DOLLARS_OF", "{")
    result = esg("check", SAMPLES)
    assert result.exit_code == 2
    assert "gpu_hour_dollars_of" in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_version_is_printed():
    assert esg("--version").stdout == f"{__version__}\n"


def test_a_misspelt_setting_is_a_warning(monkeypatch):
    """It names the setting that is meant; names of other programs are left alone."""
    monkeypatch.setenv("ESG_STAGES_MXA", "2")
    monkeypatch.setenv("ESG_DATA", "/data")
    result = esg("check", SAMPLES)
    assert result.exit_code == 0
    message = "warning: ESG_STAGES_MXA is not a setting; did you mean ESG_STAGES_MAX?\n"
    assert result.stderr == message


def test_no_setting_resembles_one_of_another_program(monkeypatch, capsys):
    """With all settings of all programs in the environment there is no warning."""
    kinds = (Settings, AgentSettings, GatewaySettings)
    for kind in kinds:
        for field in kind.model_fields:
            monkeypatch.setenv(f"{kind.model_config['env_prefix']}{field}".upper(), "")
    for kind in kinds:
        with pytest.raises(typer.Exit):  # the values are invalid
            from_environment(kind)
    assert "did you mean" not in capsys.readouterr().err


def test_an_invalid_setting_is_named(monkeypatch):
    """An invalid setting ends the command with the name of its variable."""
    monkeypatch.setenv("ESG_CANDIDATES", "many")
    result = esg("plan", "--profiles", SAMPLES, "--workflow", "image-classification")
    assert result.exit_code == 2
    assert "ESG_CANDIDATES" in result.output
    assert "many" in result.output


@pytest.mark.slow
def test_a_port_in_use_is_named(tmp_path):
    """The service does not start, and its error has the address."""
    kubeconfig = f"--kubeconfig={unserved_kubeconfig(tmp_path)}"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        served = subprocess.run(
            [ESG, "serve", kubeconfig, "--port", port],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert served.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in served.stderr


def test_samples_cannot_replace_a_file_by_a_folder(tmp_path):
    """An existing file of that name is an error of one line."""
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    result = esg("samples", "--out", str(file))
    assert result.exit_code == 1
    assert result.stderr == f"error: {file}: File exists\n"
