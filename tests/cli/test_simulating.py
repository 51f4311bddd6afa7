"""``esg simulate``: what is ordered is done, what was found is told, what went wrong is too."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from scheduler.cli import app
from scheduler.model.documents import to_manifest
from scheduler.settings import Settings
from tests.extender import factories
from tests.signals import hear_ctrl_c
from tests.testbed import REPOSITORY
from workbench.commands.simulate_scenario import LIVE_SETTINGS, cluster_of, read_scenario
from workbench.profiles.generated import FUNCTIONS, WORKFLOWS, generated_profile, generated_workflow
from workbench.simulation.runs.experiment import Experiment
from workbench.simulation.scenario import Scenario, ScenarioError

ESG = str(Path(sys.executable).with_name("esg"))
QUICK = ("--requests", "150", "--jobs", "1")
GUIDE = REPOSITORY / "docs" / "simulator.md"


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """A terminal on which everything has room."""
    monkeypatch.setenv("COLUMNS", "200")


def simulate(*arguments, quick=True):
    words = [*arguments, *(QUICK if quick else ())]
    return CliRunner().invoke(app, ["simulate", *map(str, words)])


def answer(*arguments, quick=True):
    """Return the JSON output."""
    done = simulate(*arguments, "--json", quick=quick)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def one(*arguments):
    """The figures of a single run."""
    (run,) = answer("--policy", "minimum", *arguments)["runs"]
    return run


def refusal(*arguments, status=1):
    """Return the error output of a refused command."""
    done = simulate(*arguments)
    assert done.exit_code == status, done.output
    assert done.stdout == ""
    return done.stderr


def folder_of(tmp_path, *names, **changed):
    """Documents of sample workflows, and of the functions of those; ``changed`` is of specs."""
    functions = {function for name in names for function in WORKFLOWS[name]}
    generated = [*map(generated_workflow, names)]
    generated += [
        generated_profile(function) for function in FUNCTIONS if function.name in functions
    ]
    documents = [{"kind": document.kind, **to_manifest(document)} for document in generated]
    for document in documents:
        document["spec"].update(changed.get(document["metadata"]["name"].replace("-", "_"), {}))
    (tmp_path / "documents.yaml").write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    return tmp_path


# -- what is told


def test_programs_get_one_object():
    """Each run's figures by name; wall times stand apart; nothing else on standard output."""
    message = answer("--policy", "exact,minimum", "--setting", "strict-light,relaxed-light")
    runs = message["runs"]
    assert [(run["policy"], run["setting"], run["seed"]) for run in runs] == [
        ("exact", "strict-light", 0),
        ("minimum", "strict-light", 0),
        ("exact", "relaxed-light", 0),
        ("minimum", "relaxed-light", 0),
    ]
    for run in runs:
        assert run["requests"] == 150
        assert run["hits"] + run["misses"] + run["dropped"] == 150
        assert run["hit_rate"] == run["hits"] / 150
        assert 0 < run["cost_per_1000"] < 10
        assert 0 < run["gpu_fill"] < 1
        assert run["p50_over_slo"] <= run["p99_over_slo"]
        assert run["dispatches_per_s"] > 0
        assert not [name for name in run if "planning_s" in name or "wall" in name]
    assert [item["policy"] for item in message["timings"]] == [run["policy"] for run in runs]
    assert all(item["planning_s"] > 0 for item in message["timings"])
    assert runs[0]["hit_rate"] > runs[1]["hit_rate"] == 0.0  # 0.8 times what the minimum takes


def test_people_get_a_table():
    """A row for each policy under each setting, taken together over seeds."""
    done = simulate("--policy", "exact,minimum", "--setting", "moderate-light", "--seed", "1,2")
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.stdout.splitlines() if "moderate-light" in line]
    assert [row[1] for row in rows] == ["exact", "minimum"]
    assert "±" in done.stdout
    assert "$ paid per" in done.stdout
    assert "short" in done.stdout  # the verdict on a run of some seconds
    assert "generated profiles, not measured: background-removal, " in done.stderr


CHANGED = {
    "gpus_per_node": 2, "gpu_models": ("a", "b"), "cpus": 8, "memory_mib": 9_000,
    "noise_ratio": 0.2, "interference_ratio": 0.1, "bandwidth_mib_s": 10.0,
    "keep_alive_ms": 5_000.0, "warm_containers": 0, "sharing": "sevenths", "resizable": True,
    "prewarm": False, "replan": False, "batching": False, "misses_max": 9, "retry_ms": 7.0,
    "give_up_factor": 3.0, "candidates": 7, "margin_ratio": 0.3,
    "placement": "spread", "warmup_ms": 500.0, "headroom_ratio": 0.2,
    "request_noise_ratio": 0.4, "skip_overruns": True, "contexts": 3, "contexts_percent": 150.0,
}  # fmt: skip


def scenario_of(*assignments, file=None, **options):
    """The experiment that the command reads."""
    return read_scenario(file, options, assignments)[0]


@pytest.mark.parametrize("as_file", [True, False])
def test_keys_are_applied(tmp_path, as_file):
    """Keys change the scenario by their names; none is taken for another."""
    keys = {**CHANGED, "gpu_models": ["a", "b"], "nodes": 7, "rules": {"group_size": 2}}
    file = tmp_path / "scenario.yaml"
    if as_file:
        file.write_text(yaml.safe_dump(keys), encoding="utf-8")
        scenario = scenario_of(file=file)
    else:
        scenario = scenario_of(*(f"{key}={json.dumps(value)}" for key, value in keys.items()))
    assert scenario.nodes == 7
    assert scenario.rules.group_size == 2
    for name, value in CHANGED.items():
        assert getattr(scenario, name) == value
        assert getattr(Scenario(), name) != value
    (first, *_) = scenario_of().jobs()
    assert first.scenario == Scenario()


def test_what_is_later_wins(tmp_path):
    """A file wins over the environment, an option over the file, an assignment over all."""
    file = tmp_path / "scenario.yaml"
    file.write_text("nodes: 3\ncpus: 4\nmargin_ratio: 0.2\nrules: {group_size: 4}\n", "utf-8")
    scenario = scenario_of("nodes=5", "rules.latency=p95", file=file, nodes="4")
    assert (scenario.nodes, scenario.cpus, scenario.margin_ratio) == (5, 4, 0.2)
    assert (scenario.rules.group_size, scenario.rules.latency) == (4, "p95")


def test_the_effective_scenario_is_a_scenario_file(tmp_path):
    """Read again, it is the same; and every key is in it but those that are absent."""
    options = "noise_ratio=0.2", "--set", "give_up_factor=.inf", "--policy", "minimum"
    text = simulate("--set", *options, "--show-scenario", quick=False).stdout
    file = tmp_path / "scenario.yaml"
    file.write_text(text, encoding="utf-8")
    assert simulate(file, "--show-scenario", quick=False).stdout == text
    keys = yaml.safe_load(text)
    absent = {"warmup_ms", "requests", "profiles", "workload", "slo_factor", "margin_ratio"}
    assert set(keys) == Experiment.model_fields.keys() - absent
    assert (keys["noise_ratio"], keys["policies"]) == (0.2, ["minimum"])


def test_results_carry_the_scenario_that_gives_them_again(tmp_path, monkeypatch):
    """The environment that it was read in is part of it."""
    monkeypatch.setenv("ESG_GROUP_SIZE", "2")
    first = simulate(
        "--policy", "esg", "--set", "sweep={nodes: [8, 16]}", "--out", tmp_path / "a"
    )  # fmt: skip
    assert first.exit_code == 0, first.output
    monkeypatch.delenv("ESG_GROUP_SIZE")
    again = simulate(tmp_path / "a" / "scenario.yaml", "--out", tmp_path / "b", quick=False)
    assert again.exit_code == 0, again.output
    results, repeated = ((tmp_path / name / "results.json").read_text("utf-8") for name in "ab")
    assert results == repeated
    scenarios = [run["scenario"] for run in json.loads(results)["runs"]]
    assert [(one["nodes"], one["rules"]["group_size"]) for one in scenarios] == [(8, 2), (16, 2)]


def test_a_sweep_runs_all_combinations(tmp_path):
    """Each run is that of the scenario with these values set."""
    keys = "sweep={noise_ratio: [0, 0.2], rules.group_size: [1, 3]}"
    runs = answer("--policy", "esg", "--set", keys, "--out", tmp_path)["runs"]
    assert [run["setting"] for run in runs] == [
        f"moderate-normal, noise_ratio={noise}, rules.group_size={size}"
        for noise in (0, 0.2)
        for size in (1, 3)
    ]
    single = answer("--policy", "esg", "--set", "noise_ratio=0.2", "--set", "rules.group_size=1")
    (plain,) = single["runs"]
    assert runs[2] | {"setting": plain["setting"]} == plain
    folders = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert "esg-moderate-normal-noise-ratio-0.2-rules.group-size-1-0" in folders
    assert len(folders) == 4


def test_a_sweep_may_vary_the_workload():
    """Twice the rate is half the time."""
    keys = "sweep={workload.rateRps: [5, 10]}"
    slow, fast = answer(
        "--policy", "minimum", "--set", "workload={name: poisson}", "--set", keys
    )["runs"]  # fmt: skip
    assert slow["simulated_s"] > 1.5 * fast["simulated_s"]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("{nodes: []}", "at least 1 item"),
        ("{nodes: [8, none]}", "sweep: nodes=none: nodes: "),
        ("{nods: [8]}", "sweep: nods=8: nods: Extra inputs are not permitted"),
        ("{seeds: [1, 2]}", "sweep: seeds cannot vary; policies, settings and seeds do"),
        ("{slo_factor: [1, 2]}", "slo_factor goes with workload"),
    ],
)
def test_a_sweep_that_is_wrong(sweep, message):
    assert message in refusal("--set", f"sweep={sweep}")


@pytest.fixture(scope="module")
def plain():
    """Return the summary of a run without options."""
    (run,) = answer("--policy", "exact")["runs"]
    return run


@pytest.mark.parametrize(
    ("options", "figure"),
    [
        (("--set", "noise_ratio=0.4"), "cost_per_1000"),
        (("--set", "sharing=whole"), "cost_per_1000"),
        (("--set", "resizable=true"), "cost_per_1000"),
        (("--set", "warm_containers=0"), "cold_starts"),
        (("--seed", "7"), "cost_per_1000"),
        (("--setting", "relaxed-heavy"), "simulated_s"),
        (("--nodes", "3"), "gpu_fill"),
    ],
)
def test_options_reach_the_simulation(plain, options, figure):
    (changed,) = answer("--policy", "exact", *options)["runs"]
    assert plain[figure] != changed[figure]


def test_settings_that_are_set_hold_as_live(monkeypatch):
    """The environment sets planning and prices; an option takes precedence."""
    plain = one()
    monkeypatch.setenv("ESG_GPU_HOUR_DOLLARS", "9.38")
    monkeypatch.setenv("ESG_VCPU_HOUR_DOLLARS", "0.068")
    assert one()["cost_per_1000"] == pytest.approx(2 * plain["cost_per_1000"])
    monkeypatch.setenv("ESG_MARGIN_RATIO", "0.5")
    monkeypatch.setenv("ESG_GROUP_SIZE", "1")
    assert scenario_of().margin_ratio == 0.5
    assert scenario_of("margin_ratio=0.1").margin_ratio == 0.1
    assert scenario_of().rules.group_size == 1
    assert scenario_of("rules.group_size=2").rules.prices.gpu_hour_dollars == 9.38


def test_where_nothing_is_said_the_defaults_are_the_live_ones():
    """A setting of the live service that the simulator has too is the same in both."""
    settings, simulated = Settings(), Scenario()
    assert {"rules", "limits"} < set(LIVE_SETTINGS)
    for name in LIVE_SETTINGS:
        assert getattr(settings, name) == getattr(simulated, name)


def test_every_placement_is_simulated(monkeypatch):
    """The live service's setting chooses it; the scenario overrides the setting."""
    monkeypatch.setenv("ESG_PLACEMENT", "defrag")
    by_setting = one("--policy", "minimum")
    assert by_setting["requests"] == 150
    assert one("--set", "placement=spread")["requests"] == 150
    monkeypatch.setenv("ESG_PLACEMENT", "pack")
    by_scenario = one("--policy", "minimum", "--set", "placement=defrag")
    timings = {"planning_s", "wall_s"}
    assert {key: value for key, value in by_scenario.items() if key not in timings} == {
        key: value for key, value in by_setting.items() if key not in timings
    }
    message = "should be 'pack', 'spread' or 'defrag' (given: 'none')"
    assert message in refusal("--policy", "minimum", "--set", "placement=none")


@pytest.mark.slow
def test_the_same_order_gives_the_same_bytes(tmp_path):
    """Results, report, requests and trace; only wall times differ."""
    for name in ("a", "b"):
        done = simulate("--policy", "exact,random", "--seed", "3,4", "--out", tmp_path / name)
        assert done.exit_code == 0, done.output
    files = [path for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert len(files) == 4 + 4 + 2  # of all; requests of each run; traces of the first seed
    for path in files:
        same = path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
        assert same == (path.name != "timings.json"), path


def test_files_say_what_the_answer_says(tmp_path):
    message = answer("--policy", "exact", "--out", tmp_path, "--set", "trace_requests=20")
    (run,) = message["runs"]
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert {name: results["runs"][0][name] for name in run} == run
    assert results["facts"]["Profiles"].startswith("generated, not measured")
    folder = tmp_path / "runs" / "exact-moderate-normal-0"
    with (folder / "requests.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(row["outcome"] == "hit" for row in rows) == run["hits"]
    trace = json.loads((folder / "trace.json").read_text(encoding="utf-8"))
    assert "20 requests" in trace["otherData"]["shows"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"<td>{100 * run['hit_rate']:.1f}</td>" in page
    assert "The profiles are generated, not measured" in page


def test_without_its_libraries_the_report_is_missing_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = simulate("--policy", "minimum", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "warning: no report.html" in done.stderr
    assert "pip install 'esg-scheduler[workbench]'" in done.stderr
    assert (tmp_path / "results.json").exists()
    assert not (tmp_path / "report.html").exists()


# -- documents, nodes, workloads


def test_measured_profiles_are_not_called_generated(tmp_path):
    folder = folder_of(tmp_path, "image-classification", segmentation={"coldStartMs": 1.0})
    done = simulate("--policy", "minimum", "--profiles", folder)
    assert done.exit_code == 0, done.output
    assert "not measured: classification, super-resolution\n" in done.stderr


def test_nodes_from_a_file(tmp_path):
    """Number and size are those of the documents; a node without a healthy GPU is skipped."""
    nodes = [factories.node(f"n{i}", 2, cpu="8") for i in range(3)] + [factories.bare_node("bare")]
    nodes.append(
        factories.node("sick", inventory=json.dumps([factories.gpu(0, "sick", healthy=False)]))
    )
    file = tmp_path / "nodes.yaml"
    file.write_text(yaml.safe_dump_all(nodes), encoding="utf-8")
    assert cluster_of(file) == {
        "nodes": 3,
        "gpu_models": (factories.MODEL,) * 3,
        "gpus_per_node": 2,
        "cpus": 8,
        "memory_mib": 81_920,
        "unlike_nodes": [],
    }
    shipped = REPOSITORY / "deploy" / "nodes" / "mocked-16x1.yaml"
    assert one("--nodes", shipped) == one()


def test_nodes_that_differ(tmp_path):
    """Those that are as the first one but for the model are alike; the others are counted."""
    nodes = [
        factories.node("a"), factories.node("b", 2, cpu="8"), factories.node("c"),
        factories.node("d", 2, cpu="8"),
    ]  # fmt: skip
    file = tmp_path / "nodes.yaml"
    file.write_text(yaml.safe_dump_all(nodes), encoding="utf-8")
    keys = cluster_of(file)
    unlike = {
        "count": 2, "gpus": 2, "gpu_model": factories.MODEL, "cpus": 8, "memory_mib": 81_920,
    }  # fmt: skip
    assert (keys["nodes"], keys["cpus"], keys["unlike_nodes"]) == (2, 16, [unlike])
    shapes = [
        (shape.gpus, shape.cpus)
        for shape in read_scenario(None, {"nodes": str(file)}, [])[0].node_shapes
    ]
    assert shapes == [(1, 16), (1, 16), (2, 8), (2, 8)]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            [factories.node("a", 2, inventory=json.dumps(
                [factories.gpu(0, "a"), factories.gpu(1, "a", model="T4")]
            ))],
            "Node a has unlike GPUs: NVIDIA A100-SXM4-80GB of 81,920 MiB, T4 of 81,920 MiB",
        ),
        ([factories.bare_node("a")], "no Node has a healthy GPU"),
        ([factories.node("a", inventory="?")], "annotation esg-scheduler.io/gpus"),
    ],
)  # fmt: skip
def test_nodes_that_cannot_be_simulated(tmp_path, nodes, message):
    file = tmp_path / "nodes.yaml"
    file.write_text(yaml.safe_dump_all(nodes), encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        cluster_of(file)
    assert str(file) in str(caught.value)
    assert message in str(caught.value)
    assert message in refusal("--nodes", file)


def test_a_users_trace(tmp_path):
    """All its requests, of the workflows that it names; the setting is named after it."""
    trace = tmp_path / "mine.csv"
    rows = [f"{100 * i},depth-recognition" for i in range(40)]
    trace.write_text("\n".join(["time_ms,workflow", *rows]), encoding="utf-8")
    (run,) = answer(
        "--policy",
        "minimum",
        "--trace",
        trace,
        "--set",
        "slo_factor=1.2",
        "--jobs",
        "1",
        quick=False,
    )["runs"]
    assert (run["setting"], run["requests"]) == ("mine.csv", 40)
    assert run["hit_rate"] == 1.0


def test_a_hole_in_a_trace_is_a_warning(tmp_path):
    trace = tmp_path / "mine.csv"
    trace.write_text("time_s,workflow\n1,depth-recognition\n7200,depth-recognition\n", "utf-8")
    done = simulate("--policy", "minimum", "--trace", trace)
    assert done.exit_code == 0, done.output
    assert f"warning: {trace}: line 3: there is no request in the 120.0 minutes" in done.stderr


def test_another_workload(tmp_path):
    file = tmp_path / "scenario.yaml"
    file.write_text("workload: {name: poisson, rateRps: 3}\n", encoding="utf-8")
    run = one(file)
    assert run == one("--set", "workload.name=poisson", "--set", "workload.rateRps=3")
    assert run["setting"] == "poisson"
    assert run["requests"] / run["simulated_s"] == pytest.approx(3, rel=0.5)


# -- what is refused, before anything begins


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["0,depth-recognition", "-5,depth-recognition"], "line 3: column time_ms: -5 is negative"),
        (["9,depth-recognition", "5,depth-recognition"], "line 3: column time_ms: 5 is before"),
        (["9,nobody"], "line 2: column workflow: 'nobody' is not a workflow"),
        (["9"], "line 2: has 1 values for 2 columns"),
        ([], "has no row"),
    ],
)
def test_a_trace_that_is_wrong(tmp_path, rows, message):
    """File and line; nothing is simulated, and nothing written."""
    trace = tmp_path / "mine.csv"
    trace.write_text("\n".join(["time_ms,workflow", *rows]), encoding="utf-8")
    said = refusal("--trace", trace, "--out", tmp_path / "out")
    assert said.startswith(f"error: {trace}: ")
    assert message in said
    assert not (tmp_path / "out").exists()


def test_a_workflow_without_profile(tmp_path):
    folder = folder_of(tmp_path, "image-classification")
    file = folder / "documents.yaml"
    text = file.read_text(encoding="utf-8").replace("function: segmentation", "function: lost")
    file.write_text(text, encoding="utf-8")
    assert refusal("--profiles", folder) == (
        f"error: {file}: Workflow default/image-classification: spec.stages[1].function: "
        "stage 'segmentation' runs 'lost', which has no FunctionProfile\n"
    )


def test_an_unknown_policy_is_told_with_the_known():
    assert re.search("no policy 'best'; there are .*exact", refusal("--policy", "exact,best"))


def test_documents_without_a_workflow(tmp_path):
    profile = generated_profile(FUNCTIONS[0])
    text = yaml.safe_dump({"kind": profile.kind, **to_manifest(profile)})
    (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
    assert "holds no Workflow" in refusal("--profiles", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--set", "noise_ratio=-1"],
            "error: --set: noise_ratio: should be greater than or equal to 0 (given: -1)",
        ),
        (
            ["--set", "noise_ratio=much"],
            "error: --set: noise_ratio: should be a valid number, unable to parse string",
        ),
        (
            ["--set", "noise=0.1"],
            "error: --set: noise: unknown key; did you mean noise_ratio or nodes?",
        ),
        (
            ["--set", "rules.group=2"],
            "error: --set: rules.group: unknown key; did you mean group_size?",
        ),
        (["--set", "rules.group_size=33"], "error: --set: rules: group_size must be from 1 to 32"),
        (["--set", "candidates"], "error: --set: 'candidates': must be key=value"),
        (["--set", "candidates=["], "error: --set: candidates: is not YAML"),
        (["--set", "seeds=[0, -1]"], "error: --set: seeds.1: should be greater than or equal to 0"),
        (["--set", "gpu_models=[T4]"], "and the cluster has T4"),
        (["--set", "workload.name=tides"], "'tides' is unknown; it is one of paper"),
        (["--set", "workload.name=poisson"], "workload poisson: rateRps: is missing"),
        (["--setting", "lax-light"], "'lax-light' is unknown; it is one of strict-light"),
        (["--seed", "1,x"], "error: --seed: seeds.1: should be a valid integer"),
        (
            ["--trace", "a.csv", "--setting", "strict-light"],
            "with another workload give",
        ),
        (
            ["--trace", "a.csv", "--set", "workload.name=poisson"],
            "error: --trace: workload: not with another workload: a trace is one",
        ),
        (["--set", "slo_factor=2"], "slo_factor goes with workload or --trace"),
        (
            ["--nodes", "nowhere.yaml", "--set", "cpus=3"],
            "error: --set: cpus: nowhere.yaml defines it; remove the key",
        ),
    ],
)
def test_orders_that_make_no_sense(arguments, message):
    assert message in refusal(*arguments)


def test_a_trace_and_another_workload(tmp_path):
    """A file names a workload; an option cannot make a trace of it."""
    file = tmp_path / "scenario.yaml"
    file.write_text("workload: {name: poisson, rateRps: 3}\n", encoding="utf-8")
    assert "--trace: workload: not with another workload: a trace is one" in refusal(
        file, "--trace", "a.csv"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: 3\nnoise: 0.1\n", "noise: unknown key; did you mean noise_ratio"),
        ("nodes: several\n", "several"),
        ("- nodes: 3\n", "the file: must be one mapping of keys"),
        ("nodes: [\n", "the file: "),
        ("prewarm: perhaps\n", "prewarm: should be a valid boolean"),
    ],
)
def test_a_scenario_file_that_is_wrong(tmp_path, text, message):
    """The file and the key are named."""
    file = tmp_path / "scenario.yaml"
    file.write_text(text, encoding="utf-8")
    status = 2 if "several" in text else 1
    output = refusal(file, status=status)
    assert message in output
    assert status == 2 or output.startswith(f"error: {file}: ")


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert "Not a directory" in refusal("--policy", "minimum", "--out", tmp_path / "file" / "out")


# -- a user's own policy, and processes


def guide_block(kind):
    """The guide's example, as its reader would copy it."""
    (block,) = re.findall(rf"```{kind}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    return block


@pytest.fixture
def installed(tmp_path):
    """A folder with the guide's policy in it, as pip would install it, and others beside it."""

    def install(name, source, target):
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        about = tmp_path / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n", encoding="utf-8")
        points = f"[esg_scheduler.policies]\n{name} = {target}\n"
        (about / "entry_points.txt").write_text(points, encoding="utf-8")
        return tmp_path

    return install


def start(folder, *arguments):
    """The command itself, with a folder of packages beside its own."""
    return subprocess.Popen(
        [ESG, "simulate", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,  # noqa: PLW1509 - no other thread forks
    )


@pytest.mark.slow
def test_the_guides_policy(installed):
    """It is found by its entry point, in processes that are spawned too, and is fast and dear."""
    (target,) = re.findall(r'^fastest = "(.*)"$', guide_block("toml"), re.MULTILINE)
    folder = installed("fastest", guide_block("python"), target)
    with start(
        folder,
        "--policy",
        "exact,fastest",
        "--requests",
        200,
        "--jobs",
        2,
        "--json",
        "--set",
        "resizable=true",
    ) as running:
        out, err = running.communicate(timeout=100)
    assert running.returncode == 0, err
    exact, fastest = json.loads(out)["runs"]
    assert (exact["policy"], fastest["policy"]) == ("exact", "fastest")
    assert fastest["p50_over_slo"] < exact["p50_over_slo"]
    assert fastest["cost_per_1000"] > exact["cost_per_1000"]


def test_a_policy_of_a_file(tmp_path):
    """No package is installed; spawned processes read the file too."""
    file = tmp_path / "fastest.py"
    file.write_text(guide_block("python"), encoding="utf-8")
    name = f"{file}:Fastest"
    done = simulate(
        "--policy", f"minimum,{name}", "--requests", 50, "--jobs", 2, "--json",
        "--out", tmp_path / "out", quick=False,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert [run["policy"] for run in json.loads(done.stdout)["runs"]] == ["minimum", name]
    folders = [path.name for path in (tmp_path / "out" / "runs").iterdir()]
    assert any(folder.endswith("fastest.py-Fastest-moderate-normal-0") for folder in folders)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("", "Missing", "the file has no class 'Missing'"),
        ("class Wrong: ...", "Wrong", "is no class derived from Policy"),
        ("1 / 0", "Any", "cannot be imported: ZeroDivisionError"),
        (None, "Any", "cannot be imported: FileNotFoundError"),
    ],
)
def test_a_file_without_a_policy(tmp_path, source, target, message):
    file = tmp_path / "policy.py"
    if source is not None:
        file.write_text(source, encoding="utf-8")
    error = refusal("--policy", f"{file}:{target}")
    assert f"error: policy {file}:{target}: " in error
    assert message in error


HALF_WAY = """
from workbench.simulation.policies.minimum import Minimum

class Weary(Minimum):
    asked = 0

    def candidates(self, question):
        self.asked += 1
        if self.asked > 300:
            raise RuntimeError("enough for today")
        return super().candidates(question)
"""


def test_a_policy_that_fails_half_way(installed, tmp_path, monkeypatch):
    """The others are finished, what it had served is kept, and the status says that it failed."""
    monkeypatch.syspath_prepend(installed("weary", HALF_WAY, "weary:Weary"))
    done = simulate(
        "--policy", "weary,minimum", "--requests", 400, "--jobs", 1, "--out", tmp_path / "out",
        quick=False,
    )  # fmt: skip
    assert done.exit_code == 1
    message = r"error: weary, moderate-normal, seed 0: policy \S+, called for queue default/\S+ at "
    assert re.search(
        message + r"[\d,.]+ ms of the virtual clock: RuntimeError: enough for today", done.stderr
    )
    weary, minimum = json.loads((tmp_path / "out/results.json").read_text("utf-8"))["runs"]
    assert 0 < weary["requests"] < 400 == minimum["requests"]
    assert "enough for today" in weary["failure"]
    rows = (tmp_path / "out/runs/weary-moderate-normal-0/requests.csv").read_text("utf-8")
    assert len(rows.splitlines()) == 1 + weary["requests"]
    assert "enough for today" in (tmp_path / "out/report.html").read_text("utf-8")


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished(tmp_path, jobs):
    """Arrivals end, what has arrived is served, files are whole, and the status tells it."""
    with start(
        tmp_path, "--policy", "minimum", "--seed", "1,2,3", "--requests", 100_000_000,
        "--jobs", jobs, "--out", "out",
    ) as running:  # fmt: skip
        begun = tmp_path / "out/runs/minimum-moderate-normal-1/requests.csv"
        while not begun.exists():
            assert running.poll() is None, running.stderr.read()
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=100)
    assert running.returncode == 130, err
    assert "stopping: requests that have arrived still end" in err
    runs = json.loads((tmp_path / "out/results.json").read_text("utf-8"))["runs"]
    assert 1 <= len(runs) <= 3
    assert runs[0]["requests"] == runs[0]["hits"] + runs[0]["misses"]
    rows = begun.read_text("utf-8").splitlines()[1:]
    counted = [row for row in rows if float(row.split(",")[2]) >= 1000 * runs[0]["warmup_s"]]
    assert len(counted) == runs[0]["requests"]
    assert "stopped" in runs[0]["failure"]
    assert (tmp_path / "out/report.html").exists()


SLEEPER = """
import time
from workbench.simulation.policies.minimum import Minimum

class Sleeper(Minimum):
    def candidates(self, question):
        print("asleep", flush=True)
        time.sleep(3600)
"""


@pytest.mark.slow
def test_a_second_ctrl_c_ends_at_once(installed):
    """Even where a policy never answers; what was finished before is kept."""
    folder = installed("sleeper", SLEEPER, "sleeper:Sleeper")
    with start(
        folder, "--policy", "minimum,sleeper", "--requests", 50, "--jobs", 2, "--out", "out"
    ) as running:
        assert running.stdout.readline() == "asleep\n"
        running.send_signal(signal.SIGINT)
        assert running.stderr.readline().startswith("generated profiles")
        assert running.stderr.readline().startswith("stopping: ")
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "stopped\n" in err
    assert out == ""
    runs = json.loads((folder / "out/results.json").read_text("utf-8"))["runs"]
    assert "sleeper" not in [run["policy"] for run in runs]


SUICIDAL = """
import os, signal
from workbench.simulation.policies.minimum import Minimum

class Suicidal(Minimum):
    def candidates(self, question):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_is_told(installed):
    """The kernel does so when memory is short."""
    folder = installed("suicidal", SUICIDAL, "suicidal:Suicidal")
    with start(
        folder, "--policy", "suicidal", "--seed", "1,2", "--requests", 50, "--jobs", 2
    ) as running:
        _, err = running.communicate(timeout=100)
    assert running.returncode == 1
    assert "error: suicidal, moderate-normal, seed 1: its process ended by itself" in err


# -- what is wrong with an order


@pytest.mark.parametrize("option", ["--policy", "--setting", "--seed"])
def test_an_empty_list_is_refused(option):
    """A script whose variables are unset passes one."""
    assert "',' names nothing" in refusal(option, ",")


def test_an_slo_of_nothing_is_refused(tmp_path):
    """And not taken for an SLO as it is."""
    trace = tmp_path / "requests.csv"
    trace.write_text("time_ms,workflow\n0,image-classification\n", encoding="utf-8")
    assert "slo_factor" in refusal("--trace", trace, "--set", "slo_factor=0")


def test_a_name_that_is_there_twice_is_refused(tmp_path):
    """Which of the two was meant, nobody knows; esg plan says so too."""
    folder = folder_of(tmp_path, "image-classification")
    again = (folder / "documents.yaml").read_text(encoding="utf-8")
    (folder / "more.yaml").write_text(again, encoding="utf-8")
    message = "Workflow default/image-classification: metadata.name: is in "
    assert message in refusal("--profiles", folder)
    command = ["plan", "--profiles", str(folder), "--workflow", "image-classification"]
    assert message in CliRunner().invoke(app, command).stderr


@pytest.mark.parametrize("file", ["results.json", "report.html"])
def test_what_cannot_be_written_costs_no_table(tmp_path, file):
    """It is told, and the status says it; a long run is not for nothing."""
    (tmp_path / file).mkdir()
    done = simulate("--policy", "minimum", "--out", tmp_path)
    assert done.exit_code == 1
    assert f"error: {tmp_path / file}: Is a directory" in done.stderr
    assert "minimum" in done.stdout
