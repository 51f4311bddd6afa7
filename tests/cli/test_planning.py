"""``esg plan``: what is asked is heeded, and what is found is told."""

import json
import re
import sys

import pytest
import yaml
from typer.testing import CliRunner

from scheduler.cli import app
from scheduler.model.documents import to_manifest
from workbench.profiles.generated import FUNCTIONS, WORKFLOWS, generated_profile, generated_workflow

CHAIN = ("--workflow", "background-elimination")
SLO_MS = 1452.0
API_VERSION = "esg-scheduler.io/v1alpha1"


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """A terminal on which everything has room."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module", autouse=True)
def samples(tmp_path_factory):
    """The working folder: one of the sample workflows, with a part of its functions' grids."""
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
    return CliRunner().invoke(app, ["plan", "--profiles", str(profiles), *map(str, arguments)])


def answer(*arguments):
    """What it tells programs."""
    done = esg_plan(*CHAIN, *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def table(*arguments, profiles="."):
    """What it tells people."""
    done = esg_plan(*arguments, profiles=profiles)
    assert done.exit_code == 0, done.output
    return done.stdout


def row(text, first):
    """The cells of the last row that begins so."""
    lines = [line.split() for line in text.splitlines() if line.strip().startswith(first)]
    return lines[-1]


def two_models(tmp_path, name):
    """A folder with one function on two GPU models of the same speed, and a workflow of it."""
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
    """Stage by stage, in order, it takes the time and the cost that the candidate tells."""
    found = answer()
    best, runs = found["candidates"][0], found["completion"]
    assert [run["stage"] for run in runs] == ["super-resolution", "deblur", "background-removal"]
    assert {k: runs[0][k] for k in ("batch", "cpu", "gpu_percent", "memory_mib", "gpu_model")} == {
        k: best[k] for k in ("batch", "cpu", "gpu_percent", "memory_mib", "gpu_model")
    }
    assert [run["from_ms"] for run in runs] == [0.0, *(run["to_ms"] for run in runs[:-1])]
    assert runs[-1]["to_ms"] == pytest.approx(best["path_ms"])
    assert sum(run["cost"] for run in runs) == pytest.approx(best["path_cost"])


def test_budgets_are_the_slo_split():
    """In a chain each begins where the one before ends, and the last ends with the SLO."""
    runs = answer()["completion"]
    edges = [run["budget_from_ms"] for run in runs] + [runs[-1]["budget_to_ms"]]
    assert edges[1:-1] == pytest.approx([run["budget_to_ms"] for run in runs[:-1]])
    assert edges[0] == 0
    assert edges[-1] == pytest.approx(SLO_MS)


def test_budgets_count_from_now():
    """With 400 ms left of the SLO the last budget ends in 400 ms, and earlier ones are over."""
    runs = answer("--stage", "deblur", "--slack-ms", 400)["completion"]
    assert runs[-1]["budget_to_ms"] == pytest.approx(400)
    assert runs[0]["budget_to_ms"] < 0


def test_people_read_the_same():
    """The second table has the completion of the JSON, its budgets, and the total."""
    found, text = answer(), table(*CHAIN)
    for run in found["completion"]:
        assert row(text, run["stage"]) == [
            run["stage"], run["function"], str(run["batch"]), str(run["cpu"]),
            str(run["gpu_percent"]), f"{run['memory_mib']:,}", f"{run['from_ms']:,.1f}",
            f"{run['to_ms']:,.1f}", f"{run['budget_from_ms']:,.1f}",
            f"{run['budget_to_ms']:,.1f}", f"{1000 * run['cost']:.4f}", *run["gpu_model"].split(),
        ]  # fmt: skip
    best = found["candidates"][0]
    cost = f"{1000 * best['path_cost']:.4f}"
    assert row(text, "total") == ["total", f"{best['path_ms']:,.1f}", "1,452.0", cost]


def test_a_narrow_terminal_loses_nothing(monkeypatch):
    """On 80 columns every number is whole, and what all rows share is told once, below."""
    monkeypatch.setenv("COLUMNS", "80")
    text = table(*CHAIN)
    assert row(text, "deblur")[:1] + row(text, "total") == ["deblur", *row(table(*CHAIN), "total")]
    assert "GPU model: NVIDIA A100-SXM4-80GB" in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "20")
    assert row(table(*CHAIN), "total") == row(text, "total")


def test_a_pipe_gets_plain_lines(monkeypatch):
    """No colours, and wide enough for everything, where no terminal says how wide it is."""
    monkeypatch.delenv("COLUMNS")
    text = table(*CHAIN)
    assert "\x1b" not in text
    assert "background-removal  background-removal" in text


def test_names_are_no_markup(tmp_path):
    """A GPU may be named as it likes."""
    text = table("--workflow", "w", profiles=two_models(tmp_path, "[red]T4[/red] :smile:"))
    assert "[red]T4[/red] :smile:" in text


def test_a_start_that_takes_time():
    """Candidates for every start that is asked, each in time; the column comes with the second."""
    found = answer("--start-ms", 0, "--start-ms", 300, "--k", 2)
    assert {candidate["start_ms"] for candidate in found["candidates"]} == {0, 300}
    assert all(candidate["path_ms"] <= SLO_MS for candidate in found["candidates"])
    assert "start ms" in table(*CHAIN, "--start-ms", 0, "--start-ms", 300)
    assert "start ms" not in table(*CHAIN, "--start-ms", 300)
    assert answer("--start-ms", 300)["completion"][0]["from_ms"] == 300


def test_ceilings_hold():
    """No candidate is given more than is asked for."""
    most = {"cpu": 2, "gpu_percent": 28, "memory_mib": 1400}
    found = answer(
        "--cpu-max", 2, "--gpu-percent-max", 28, "--memory-mib-max", 1400, "--slack-ms", 9000
    )
    for name, limit in most.items():
        assert max(candidate[name] for candidate in found["candidates"]) <= limit
    told = esg_plan(*CHAIN, "--gpu-percent-max", 1)
    assert told.exit_code == 1
    assert told.stderr.startswith("error: no configuration of super-resolution within 1 % GPU")


def test_a_margin_is_kept():
    """With a margin of a tenth there is less to plan for, and both are told."""
    assert answer("--margin-ratio", 0.1)["budget_ms"] == pytest.approx(SLO_MS / 1.1)
    assert "1,452.0 ms left, 1,320.0 to plan for" in table(*CHAIN, "--margin-ratio", 0.1)


def test_percentiles_can_be_planned(tmp_path):
    """With p95 the times are the profile's percentiles."""
    folder = two_models(tmp_path, "other")
    for latency, path_ms in (("mean", 100), ("p95", 130)):
        done = esg_plan("--workflow", "w", "--latency", latency, "--json", profiles=folder)
        assert json.loads(done.stdout)["candidates"][0]["path_ms"] == path_ms


def test_in_groups():
    """Policy esg plans the group at hand: alone where groups are of one, all stages where of 5."""
    alone = answer("--policy", "esg", "--group-size", 1, "--margin-ratio", 0)
    assert alone["candidates"][0]["path_ms"] == alone["completion"][0]["to_ms"]
    assert alone["budget_ms"] == pytest.approx(alone["completion"][0]["budget_to_ms"])
    whole = answer("--policy", "esg", "--group-size", 5, "--margin-ratio", 0)
    assert whole["candidates"][0]["path_ms"] == pytest.approx(whole["completion"][-1]["to_ms"])


@pytest.mark.parametrize(
    ("variable", "value", "option", "other"),
    [
        ("ESG_POLICY", "esg", "--policy", "exact"),
        ("ESG_LATENCY", "p95", "--latency", "mean"),
        ("ESG_MARGIN_RATIO", "0.2", "--margin-ratio", "0.1"),
        ("ESG_ON_LOST_SLO", "fastest", "--on-lost-slo", "cheapest"),
        ("ESG_CANDIDATES", "2", "--k", "5"),
    ],
)
def test_settings_are_the_defaults(monkeypatch, variable, value, option, other):
    """What is not given comes from the environment, and what is given wins."""
    lost = ["--slack-ms", 100] if "lost" in option else []
    plain = answer(*lost)
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv("ESG_GROUP_SIZE", "1")
    assert answer(*lost) != plain
    assert answer(*lost) == answer(option, value, *lost)
    assert answer(option, other, *lost) == plain


def test_a_lost_slo_is_told():
    """The sentence of the plan stands below the tables."""
    text = table(*CHAIN, "--slack-ms", 100)
    assert "The SLO is lost: 90.9 ms left, and the fastest completion takes 372.2 ms" in text


def test_a_search_cut_short_is_told(monkeypatch):
    """How far from the least cost the plan may be."""
    monkeypatch.setenv("ESG_EXPANSIONS_MAX", "1")
    text = table(*CHAIN, "--policy", "esg")
    told = r"The search ended at its budget of work: at most [\d.,]+ % above the least cost\."
    assert re.search(told, text)


def test_a_slack_without_end_is_refused():
    """JSON has no infinity."""
    done = esg_plan(*CHAIN, "--slack-ms", "inf")
    assert done.exit_code == 2
    assert "--slack-ms" in done.stderr


def test_a_page(tmp_path):
    """It is written beside the answer, and standard output has the answer alone."""
    page = tmp_path / "plan.html"
    done = esg_plan(*CHAIN, "--plot", page, "--json")
    assert done.exit_code == 0, done.output
    assert done.stderr == f"wrote {page}\n"
    best = json.loads(done.stdout)["candidates"][0]
    text = page.read_text(encoding="utf-8")
    assert "<h1>default/background-elimination, stage super-resolution</h1>" in text
    assert f"<td>{1000 * best['path_cost']:.4f}</td>" in text
    assert "least cost (exact)" in text
    assert "planned in groups" not in text


def test_a_page_of_the_paper_s_way(tmp_path):
    """Both curves, and what the plan was asked with."""
    page = tmp_path / "plan.html"
    esg_plan(*CHAIN, "--policy", "esg", "--group-size", 2, "--cpu-max", 4, "--plot", page)
    text = page.read_text(encoding="utf-8")
    assert "least cost (exact)" in text
    assert "planned in groups (esg)" in text
    assert "<dt>Policy</dt><dd>esg, groups of at most 2</dd>" in text
    assert "<dt>The stage has at most</dt><dd>4 vCPU</dd>" in text


def test_a_page_that_cannot_be_written(tmp_path):
    """One line says which and why, and nothing else is printed."""
    for place, why in ((tmp_path, "Is a directory"), (tmp_path / "no" / "p", "No such file")):
        done = esg_plan(*CHAIN, "--plot", place)
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith(f"error: {place}: cannot be written: {why}")
        assert done.stderr.count("\n") == 1


def test_a_page_without_its_libraries(tmp_path, monkeypatch):
    """The extra is named; without --plot they are not missed."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = esg_plan(*CHAIN, "--plot", tmp_path / "plan.html")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "pip install 'esg-scheduler[workbench]'" in done.stderr
    assert not list(tmp_path.iterdir())
    assert esg_plan(*CHAIN).exit_code == 0
