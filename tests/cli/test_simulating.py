"""``esg simulate``: keys and options, results on the terminal and in files."""

import csv
import json
import sys

import pytest
import yaml

from scheduler.settings import Settings
from tests.cli.harness import answer, one, refusal, scenario_of, simulate
from workbench.simulation.runs.experiment import Experiment
from workbench.simulation.scenario import Scenario

pytestmark = pytest.mark.usefixtures("wide_terminal")


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


def test_a_narrow_terminal_shows_fewer_columns(monkeypatch):
    """80 columns hold hits and cost; standard error names the missing columns."""
    monkeypatch.setenv("COLUMNS", "80")
    done = simulate("--policy", "minimum", "--setting", "moderate-normal", "--seed", "1,2")
    row, split = [line.split() for line in done.stdout.splitlines() if "moderate-normal" in line]
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert row[1] == "minimum"
    assert float(row[-1]) > 1.0  # paid / B0
    assert float(split[-1]) > float(split[2]) > 0.0  # paid, and the limit
    assert "planning µs a call" in done.stderr
    assert "in SLO" not in done.stderr.partition("columns are too few")[2]


@pytest.mark.slow
def test_people_get_a_table():
    """A row for each policy under each setting, taken together over seeds."""
    done = simulate("--policy", "exact,minimum", "--setting", "moderate-light", "--seed", "1,2")
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.stdout.splitlines() if "moderate-light" in line]
    [difference] = [row for row in rows if row[1:3] == ["minimum", "exact"]]
    assert difference.count("±") == 2
    rows.remove(difference)
    assert [row[1] for row in rows] == 2 * ["exact", "minimum"]
    for row in rows[2:]:  # the parts of what is paid
        *parts, paid, fragmentation = map(float, row[2:])
        assert sum(parts) == pytest.approx(paid, abs=4e-4)  # each is rounded
        assert fragmentation > 0.0
    assert "±" in done.stdout
    assert "set aside" in done.stdout
    assert "short" in done.stdout  # the verdict on a run of some seconds
    assert "columns are too few" not in done.stderr
    assert "generated profiles, not measured: background-removal, " in done.stderr


CHANGED = {
    "gpus_per_node": 2, "gpu_models": ("a", "b"), "cpus": 8, "memory_mib": 9_000,
    "noise_ratio": 0.2, "interference_ratio": 0.1, "bandwidth_mib_s": 10.0,
    "keep_alive_ms": 5_000.0, "warm_containers": 0, "sharing": "sevenths", "resizable": True,
    "prewarm": False, "replan": False, "batching": False, "misses_max": 9, "retry_ms": 7.0,
    "give_up_factor": 3.0, "candidates": 7, "margin_ratio": 0.3,
    "placement": "spread", "objective": 0.9, "warmup_ms": 500.0, "headroom_ratio": 0.2,
    "request_noise_ratio": 0.4, "skip_overruns": True, "contexts": 3, "contexts_percent": 150.0,
}  # fmt: skip


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
    absent |= {"objective", "keep_alive_ms"}
    assert set(keys) == Experiment.model_fields.keys() - absent
    assert (keys["noise_ratio"], keys["policies"]) == (0.2, ["minimum"])


@pytest.mark.slow
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


@pytest.mark.slow
def test_policies_of_a_comparison_are_judged_on_the_same_requests(tmp_path):
    """MSER-5 finds another warm-up for each; the longest is left out for all, and stays given."""
    options = ("--setting", "strict-light", "--requests", "3000", "--jobs", "1")
    alone = [answer("--policy", policy, *options, quick=False) for policy in ("minimum", "infless")]
    assert len({run["warmup_s"] for one in alone for run in one["runs"]}) == 2

    both = ("--policy", "minimum,infless", *options, "--out", tmp_path)
    runs = answer(*both, quick=False)["runs"]
    assert {run["warmup_rule"] for run in runs} == {"MSER-5"}
    [warmup_s] = {run["warmup_s"] for run in runs}
    [requests] = {run["requests"] for run in runs}
    assert warmup_s == max(run["warmup_s"] for one in alone for run in one["runs"])
    set_apart = answer(*both[:-2], "--set", f"warmup_ms={1000 * warmup_s}", quick=False)["runs"]
    assert requests == set_apart[0]["requests"]
    for run, same in zip(runs, set_apart, strict=True):
        assert run | {"warmup_rule": "given"} == same
    written = json.loads((tmp_path / "results.json").read_text())["runs"]
    assert [run["requests"] for run in written] == [requests] * 2


SWEEP = "sweep={noise_ratio: [0, 0.2], rules.group_size: [1, 3]}"


@pytest.mark.slow
def test_a_sweep_runs_all_combinations():
    """Each run is that of the scenario with these values set."""
    few = ("--requests", "40", "--policy", "esg")
    runs = answer(*few, "--set", SWEEP)["runs"]
    assert [run["setting"] for run in runs] == [
        f"moderate-normal, noise_ratio={noise}, rules.group_size={size}"
        for noise in (0, 0.2)
        for size in (1, 3)
    ]
    single = answer(*few, "--set", "noise_ratio=0.2", "--set", "rules.group_size=1")
    (plain,) = single["runs"]
    assert runs[2] | {"setting": plain["setting"]} == plain


@pytest.mark.slow
def test_each_run_of_a_sweep_has_a_folder(tmp_path):
    """Its name has the values."""
    assert answer("--policy", "minimum", "--set", SWEEP, "--out", tmp_path)
    folders = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert "minimum-moderate-normal-noise-ratio-0.2-rules.group-size-1-0" in folders
    assert len(folders) == 4


def stems(key, values):
    """Return the names of the folders of a sweep's runs without what all have in common."""
    experiment = Experiment(policies="minimum", sweep={key: values})
    common = f"minimum-moderate-normal-{key.replace('_', '-')}-"
    return [job.file_stem.removeprefix(common).removesuffix("-0") for job in experiment.jobs()]


def test_folders_are_named_by_the_swept_values():
    """A sign stays, because two values may differ by it alone."""
    assert stems("headroom_ratio", [-0.2, 0.2, 1e-05]) == ["-0.2", "0.2", "1e-05"]
    assert stems("resizable", [True, False]) == ["True", "False"]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("keep_alive_ms", [1e16, 1e-16]),
        ("failures", [[{"at_ms": at_ms, "node": 0}] for at_ms in (1e16, 1e-16)]),
        ("gpu_models", [[model] for model in ("a_b", "a-b", "a b", "a.b")]),
    ],
)
def test_each_run_of_a_sweep_has_a_name_of_its_own(key, values):
    """Also where values differ only in characters that a file name does not have."""
    assert len(set(stems(key, values))) == len(values)


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
        (
            "{nodes: [8, '8']}",
            "'moderate-normal, nodes=8' and 'moderate-normal, nodes=8' would write the same files",
        ),
    ],
)
def test_a_sweep_that_is_wrong(sweep, message):
    assert message in refusal("--set", f"sweep={sweep}")


@pytest.fixture(scope="module")
def plain():
    """Return the summary of a run without options."""
    (run,) = answer("--policy", "exact")["runs"]
    return run


@pytest.mark.slow
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


@pytest.mark.slow
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
    live = Settings().simulated
    assert {"rules", "limits"} < set(live)
    assert Scenario(**live) == Scenario()


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_without_its_libraries_the_report_is_missing_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = simulate("--policy", "minimum", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "warning: no report.html" in done.stderr
    assert "pip install 'esg-scheduler[workbench]'" in done.stderr
    assert (tmp_path / "results.json").exists()
    assert not (tmp_path / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize("file", ["results.json", "report.html"])
def test_what_cannot_be_written_costs_no_table(tmp_path, file):
    """It is told, and the status says it; a long run is not for nothing."""
    (tmp_path / file).mkdir()
    done = simulate("--policy", "minimum", "--out", tmp_path)
    assert done.exit_code == 1
    assert f"error: {tmp_path / file}: Is a directory" in done.stderr
    assert "minimum" in done.stdout
