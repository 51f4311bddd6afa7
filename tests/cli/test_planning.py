"""``esg plan``: its options, its JSON and tables, and its page."""

import json
import re
import sys

import pytest
import yaml

from scheduler.model.documents import to_manifest
from tests.command_line import esg
from workbench.profiles.generated import FUNCTIONS, WORKFLOWS, generated_profile, generated_workflow

CHAIN = ("--workflow", "background-elimination")
SLO_MS = 1452.0
API_VERSION = "esg-scheduler.io/v1alpha1"


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """Set a terminal width at which no column is cut."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module", autouse=True)
def samples(tmp_path_factory):
    """Use a working folder with one sample workflow and a part of its functions' grids."""
    folder = tmp_path_factory.mktemp("samples")
    functions = WORKFLOWS["background-elimination"]
    profiles = [to_manifest(generated_profile(f)) for f in FUNCTIONS if f.name in functions]
    for profile in profiles:
        for gpu in profile["spec"]["gpus"]:
            gpu["configurations"] = [
                c
                for c in gpu["configurations"]
                if c["batch"] <= 4 and c["cpu"] != 2 and c["gpuPercent"] in {14, 28, 57, 100}
            ]
    write(folder, [to_manifest(generated_workflow("background-elimination")), *profiles])
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        yield


def write(folder, documents):
    for document in documents:
        document["apiVersion"] = API_VERSION
        document["kind"] = "Workflow" if "slo" in document["spec"] else "FunctionProfile"
    (folder / "documents.yaml").write_text(yaml.safe_dump_all(documents), encoding="utf-8")


def esg_plan(*arguments, profiles="."):
    return esg("plan", "--profiles", profiles, *arguments)


def answer(*arguments):
    """Return the JSON."""
    done = esg_plan(*CHAIN, *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def table(*arguments, profiles="."):
    """Return the tables."""
    done = esg_plan(*arguments, profiles=profiles)
    assert done.exit_code == 0, done.output
    return done.stdout


def row(text, first):
    """Return the cells of the last row that begins with a text."""
    lines = [line.split() for line in text.splitlines() if line.strip().startswith(first)]
    return lines[-1]


def two_models(tmp_path, name):
    """Write a workflow of one function, which has two GPU models of the same speed."""
    configurations = [
        {"batch": 1, "cpu": 1, "gpuPercent": 10, "latencyMs": 100, "p95Ms": 130, "memoryMib": 500},
        {"batch": 1, "cpu": 1, "gpuPercent": 20, "latencyMs": 80, "p95Ms": 90, "memoryMib": 500},
    ]
    gpus = [{"model": model, "configurations": configurations} for model in ("plain", name)]
    spec = {"slo": {"latencyMs": 1000}, "stages": [{"name": "only", "function": "f"}]}
    workflow = {"metadata": {"name": "w", "namespace": "default"}, "spec": spec}
    write(tmp_path, [workflow, {"metadata": {"name": "f"}, "spec": {"gpus": gpus}}])
    return tmp_path


def test_the_completion_is_the_best_candidate_s():
    """Its stages are in order, and take the time and the cost of the candidate."""
    plan = answer()
    best, runs = plan["candidates"][0], plan["completion"]
    assert [run["stage"] for run in runs] == ["super-resolution", "deblur", "background-removal"]
    assert {k: runs[0][k] for k in ("batch", "cpu", "gpu_percent", "memory_mib", "gpu_model")} == {
        k: best[k] for k in ("batch", "cpu", "gpu_percent", "memory_mib", "gpu_model")
    }
    assert [run["from_ms"] for run in runs] == [0.0, *(run["to_ms"] for run in runs[:-1])]
    assert runs[-1]["to_ms"] == pytest.approx(best["path_ms"])
    assert sum(run["cost"] for run in runs) == pytest.approx(best["path_cost"])


def test_budgets_are_the_slo_split():
    """In a chain every budget begins where the previous one ends; the last ends with the SLO."""
    runs = answer()["completion"]
    edges = [run["budget_from_ms"] for run in runs] + [runs[-1]["budget_to_ms"]]
    assert edges[1:-1] == pytest.approx([run["budget_to_ms"] for run in runs[:-1]])
    assert edges[0] == 0
    assert edges[-1] == pytest.approx(SLO_MS)


def test_budgets_count_from_now():
    """With 400 ms left of the SLO the last budget ends in 400 ms, and earlier ones have passed."""
    runs = answer("--stage", "deblur", "--slack-ms", 400)["completion"]
    assert runs[-1]["budget_to_ms"] == pytest.approx(400)
    assert runs[0]["budget_to_ms"] < 0


def test_the_table_has_the_values_of_the_json():
    """The second table has the completion, its budgets, and the total."""
    plan, text = answer(), table(*CHAIN)
    for run in plan["completion"]:
        assert row(text, run["stage"]) == [
            run["stage"], run["function"], str(run["batch"]), str(run["cpu"]),
            str(run["gpu_percent"]), f"{run['memory_mib']:,}", f"{run['from_ms']:,.1f}",
            f"{run['to_ms']:,.1f}", f"{run['budget_from_ms']:,.1f}",
            f"{run['budget_to_ms']:,.1f}", f"{1000 * run['cost']:.4f}", *run["gpu_model"].split(),
        ]  # fmt: skip
    best = plan["candidates"][0]
    cost = f"{1000 * best['path_cost']:.4f}"
    assert row(text, "total") == ["total", f"{best['path_ms']:,.1f}", "1,452.0", cost]


def test_a_narrow_terminal_shows_every_number(monkeypatch):
    """In 80 columns no number is cut; a value that all rows share stands once, below."""
    monkeypatch.setenv("COLUMNS", "80")
    text = table(*CHAIN)
    assert row(text, "deblur")[:1] + row(text, "total") == ["deblur", *row(table(*CHAIN), "total")]
    assert "GPU model: NVIDIA A100-SXM4-80GB" in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "20")
    assert row(table(*CHAIN), "total") == row(text, "total")


def test_output_to_a_pipe_is_plain_and_wide(monkeypatch):
    """Without a terminal there are no colours, and no column is cut."""
    monkeypatch.delenv("COLUMNS")
    text = table(*CHAIN)
    assert "\x1b" not in text
    assert "background-removal  background-removal" in text


def test_names_are_not_interpreted_as_markup(tmp_path):
    """A GPU model's name may contain Rich markup."""
    text = table("--workflow", "w", profiles=two_models(tmp_path, "[red]T4[/red] :smile:"))
    assert "[red]T4[/red] :smile:" in text


def test_start_times_are_planned():
    """Every start time has candidates within the SLO; two or more start times add a column."""
    plan = answer("--start-ms", 0, "--start-ms", 300, "--k", 2)
    assert {candidate["start_ms"] for candidate in plan["candidates"]} == {0, 300}
    assert all(candidate["path_ms"] <= SLO_MS for candidate in plan["candidates"])
    assert "start ms" in table(*CHAIN, "--start-ms", 0, "--start-ms", 300)
    assert "start ms" not in table(*CHAIN, "--start-ms", 300)
    assert answer("--start-ms", 300)["completion"][0]["from_ms"] == 300


def test_ceilings_limit_candidates():
    """No candidate exceeds them, and a ceiling below every configuration is an error."""
    ceilings = {"cpu": 2, "gpu_percent": 28, "memory_mib": 1400}
    plan = answer(
        "--cpu-max", 2, "--gpu-percent-max", 28, "--memory-mib-max", 1400, "--slack-ms", 9000
    )
    for name, limit in ceilings.items():
        assert max(candidate[name] for candidate in plan["candidates"]) <= limit
    done = esg_plan(*CHAIN, "--gpu-percent-max", 1)
    assert done.exit_code == 1
    assert done.stderr.startswith("error: no configuration of super-resolution within 1 % GPU")


def test_a_margin_reduces_the_budget():
    """The table has the remaining time and the budget less the margin."""
    assert answer("--margin-ratio", 0.1)["budget_ms"] == pytest.approx(SLO_MS / 1.1)
    assert "1,452.0 ms left, 1,320.0 to plan for" in table(*CHAIN, "--margin-ratio", 0.1)


def test_latency_selects_mean_or_percentile(tmp_path):
    """With p95 the planned times are the profile's 95th percentiles."""
    folder = two_models(tmp_path, "other")
    for latency, path_ms in (("mean", 100), ("p95", 130)):
        done = esg_plan("--workflow", "w", "--latency", latency, "--json", profiles=folder)
        assert json.loads(done.stdout)["candidates"][0]["path_ms"] == path_ms


def test_policy_esg_plans_one_group():
    """The candidate covers one stage with groups of one, and all stages with groups of five."""
    alone = answer("--policy", "esg", "--group-size", 1, "--margin-ratio", 0)
    assert alone["candidates"][0]["path_ms"] == alone["completion"][0]["to_ms"]
    assert alone["budget_ms"] == pytest.approx(alone["completion"][0]["budget_to_ms"])
    whole = answer("--policy", "esg", "--group-size", 5, "--margin-ratio", 0)
    assert whole["candidates"][0]["path_ms"] == pytest.approx(whole["completion"][-1]["to_ms"])


@pytest.mark.parametrize(
    ("variable", "value", "option", "default"),
    [
        ("ESG_POLICY", "esg", "--policy", "exact"),
        ("ESG_LATENCY", "p95", "--latency", "mean"),
        ("ESG_ON_LOST_SLO", "fastest", "--on-lost-slo", "cheapest"),
        ("ESG_CANDIDATES", "2", "--k", "5"),
    ],
)
def test_settings_are_the_defaults_of_options(monkeypatch, variable, value, option, default):
    """The environment sets the default of an option, and the option overrides it."""
    lost = ["--slack-ms", 100] if "lost" in option else []
    plain = answer(*lost)
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv("ESG_GROUP_SIZE", "1")
    assert answer(*lost) != plain
    assert answer(*lost) == answer(option, value, *lost)
    assert answer(option, default, *lost) == plain


def test_the_margin_of_the_environment_can_be_overridden(monkeypatch):
    """Without both, the margin is that of the objective."""
    derived = answer()
    monkeypatch.setenv("ESG_MARGIN_RATIO", "0.2")
    assert answer()["margin_ratio"] == 0.2
    assert answer() == answer("--margin-ratio", 0.2) != derived
    assert answer("--margin-ratio", 0.1)["margin_ratio"] == 0.1


def test_a_lost_slo_is_reported():
    """The message of the plan stands below the tables."""
    text = table(*CHAIN, "--slack-ms", 100)
    assert "The SLO is lost: 100.0 ms left, and the fastest completion takes 372.2 ms" in text


def test_a_truncated_search_is_reported(monkeypatch):
    """The message has the maximum excess over the minimum cost."""
    monkeypatch.setenv("ESG_EXPANSIONS_MAX", "1")
    text = table(*CHAIN, "--policy", "esg")
    message = r"The plan is not exact: at most [\d.,]+ % above the minimum cost\."
    assert re.search(message, text)


def test_an_infinite_slack_is_refused():
    """JSON cannot represent infinity."""
    done = esg_plan(*CHAIN, "--slack-ms", "inf")
    assert done.exit_code == 2
    assert "--slack-ms" in done.stderr


@pytest.mark.slow
def test_plot_writes_a_page(tmp_path):
    """Standard output has only the JSON."""
    page = tmp_path / "plan.html"
    done = esg_plan(*CHAIN, "--plot", page, "--json")
    assert done.exit_code == 0, done.output
    assert done.stderr == f"wrote {page}\n"
    best = json.loads(done.stdout)["candidates"][0]
    text = page.read_text(encoding="utf-8")
    assert "<h1>default/background-elimination, stage super-resolution</h1>" in text
    assert f"<td>{1000 * best['path_cost']:.4f}</td>" in text
    assert "minimum cost (exact)" in text
    assert "planned in groups" not in text


@pytest.mark.slow
def test_the_page_of_policy_esg_has_two_curves(tmp_path):
    """It has the exact curve, the curve in groups, and the options of the plan."""
    page = tmp_path / "plan.html"
    esg_plan(*CHAIN, "--policy", "esg", "--group-size", 2, "--cpu-max", 4, "--plot", page)
    text = page.read_text(encoding="utf-8")
    assert "minimum cost (exact)" in text
    assert "planned in groups (esg)" in text
    assert "<dt>Policy</dt><dd>esg, groups of at most 2</dd>" in text
    assert "<dt>The stage has at most</dt><dd>4 vCPU</dd>" in text


@pytest.mark.slow
def test_an_unwritable_page_is_an_error(tmp_path):
    """The only output is one line with the path and the reason."""
    for path, reason in ((tmp_path, "Is a directory"), (tmp_path / "no" / "p", "No such file")):
        done = esg_plan(*CHAIN, "--plot", path)
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith(f"error: {path}: cannot be written: {reason}")
        assert done.stderr.count("\n") == 1


def test_plot_names_the_missing_extra(tmp_path, monkeypatch):
    """Without matplotlib, --plot names the extra to install; the rest works."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = esg_plan(*CHAIN, "--plot", tmp_path / "plan.html")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "pip install 'esg-scheduler[workbench]'" in done.stderr
    assert not list(tmp_path.iterdir())
    assert esg_plan(*CHAIN).exit_code == 0
