"""``esg jobs``: table, JSON, files, and errors."""

import json

import pytest
from typer.testing import CliRunner

from scheduler.cli.commands import app
from studies.training.runs.setup import JobsSetup


def ran(*arguments, code=0):
    wide = {"COLUMNS": "200"}
    result = CliRunner().invoke(app, ["jobs", "--jobs", "1", *arguments], env=wide)
    assert result.exit_code == code, result.output
    return result


def test_policies_are_compared_without_any_files():
    """Jobs and models are generated, and the output says so."""
    result = ran("--policy", "tiresias", "--seed", "1,2")
    assert "generated jobs and models, not measured" in result.stderr
    assert result.stdout.count("tiresias") == 2


@pytest.mark.parametrize(("settings", "round_s"), [({}, 120.0), ({"round_s": "90"}, 90.0)])
def test_a_policy_knows_the_rounds_of_its_environment(settings, round_s):
    """Its own default is the length of Gavel's rounds."""
    setup = JobsSetup(policy="max-min", environment="shockwave", settings=settings)
    assert [parameters.round_s for parameters in setup.parameters()] == [round_s, round_s]


def test_json_has_a_run_for_each_combination():
    """Policies, seeds and values of settings are multiplied."""
    result = ran(
        "--policy", "tiresias,optimus", "--seed", "0,1", "--set", "interval_s=60,120", "--json"
    )
    runs = json.loads(result.stdout)["runs"]
    assert len(runs) == 8
    assert {(r["policy"], r["seed"], r["settings"]["interval_s"]) for r in runs} == {
        (policy, seed, interval)
        for policy in ("tiresias", "optimus")
        for seed in (0, 1)
        for interval in ("60", "120")
    }
    assert all(run["mean_jct_s"] > 0 for run in runs)


@pytest.mark.slow
def test_a_folder_gets_page_results_and_files_of_each_run(tmp_path):
    """The page has the three figures; CSV and trace have all jobs."""
    ran("--policy", "tiresias", "--out", str(tmp_path))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 3
    assert "mathdefault" not in page  # labels of the logarithmic axis are plain numbers
    assert "generated, not measured" in page
    (folder,) = (tmp_path / "runs").iterdir()
    rows = (folder / "jobs.csv").read_text(encoding="utf-8").splitlines()
    (run,) = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["runs"]
    assert len(rows) == 1 + run["jobs"]
    events = json.loads((folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert sum(event["ph"] == "b" for event in events) == run["jobs"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "fifo2"], "no policy 'fifo2'; there are tiresias"),
        (["--environment", "mars"], "no environment 'mars'; there are pollux, tiresias"),
        (["--set", "interval_s=0"], "--set interval_s: Input should be greater than 0"),
        (["--set", "colour=red"], "--set colour: neither policy tiresias nor environment pollux"),
        (["--set", "colour"], "--set colour: must be KEY=VALUE"),
        (["--seed", "x"], "--seed: invalid literal"),
        (["--workload", "none.csv"], "none.csv: the file: cannot be read"),
    ],
)
def test_a_wrong_option_is_reported(arguments, message):
    """The message names the option and what it may be."""
    assert message in ran(*arguments, code=1).stderr


def test_a_wrong_row_ends_the_command_before_any_run(tmp_path):
    """File, line and column are named."""
    file = tmp_path / "w.csv"
    file.write_text(
        "name,time,application,num_replicas,batch_size\na,0,generated-small,1,-1\n", "utf-8"
    )
    result = ran("--workload", str(file), code=1)
    assert f"error: {file}: line 2: column batch_size: '-1' is no whole number" in result.stderr


@pytest.mark.slow
def test_runs_are_the_same_in_any_process(tmp_path):
    """Equal setups give equal files, byte for byte."""
    for processes in ("1", "2"):
        result = CliRunner().invoke(
            app, ["jobs", "--jobs", processes, "--out", str(tmp_path / processes)]
        )
        assert result.exit_code == 0, result.output
    for path in (tmp_path / "1").rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "2" / path.relative_to(tmp_path / "1")).read_bytes()
