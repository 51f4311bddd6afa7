"""``esg simulate``: documents, nodes and workloads, and refusals of wrong input."""

import json
import re

import pytest
import yaml

from scheduler.model.documents import to_manifest
from tests.cli.harness import answer, folder_of, one, refusal, simulate
from tests.command_line import esg
from tests.extender import factories
from tests.testbed import REPOSITORY
from workbench.commands.simulate.scenario import cluster_of, read_scenario
from workbench.profiles.generated import FUNCTIONS, generated_profile
from workbench.simulation.scenario import ScenarioError

pytestmark = pytest.mark.usefixtures("wide_terminal")


def test_measured_profiles_are_not_called_generated(tmp_path):
    folder = folder_of(tmp_path, "image-classification", segmentation={"coldStartMs": 1.0})
    done = simulate("--policy", "minimum", "--profiles", folder)
    assert done.exit_code == 0, done.output
    assert "not measured: classification, super-resolution\n" in done.stderr


@pytest.mark.slow
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


def test_a_number_of_nodes_is_that_of_all():
    """Those of a gateway's cluster that differ are not added to it."""
    kind = {"gpus": 2, "gpu_model": factories.MODEL, "cpus": 8, "memory_mib": 81_920}
    cluster = {"node_kinds": [kind | {"count": 3}, kind | {"count": 2, "gpus": 1}]}
    shapes = [
        len(read_scenario(None, options, [], cluster=dict(cluster))[0].node_shapes)
        for options in ({}, {"nodes": 4})
    ]
    assert shapes == [5, 4]


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


# -- refusals, before anything begins


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
    text = file.read_text(encoding="utf-8").replace(
        '"function": "segmentation"', '"function": "lost"'
    )
    file.write_text(text, encoding="utf-8")
    assert refusal("--profiles", folder) == (
        f"error: {file}:1: Workflow default/image-classification: spec.stages[1].function: "
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
        ("nodes: several\n", "nodes: should be a number of nodes, or a file of Node documents"),
        ("- nodes: 3\n", "the file: must be one mapping of keys"),
        ("nodes: [\n", "the file: "),
        ("prewarm: perhaps\n", "prewarm: should be a valid boolean"),
    ],
)
def test_a_scenario_file_that_is_wrong(tmp_path, text, message):
    """The file and the key are named."""
    file = tmp_path / "scenario.yaml"
    file.write_text(text, encoding="utf-8")
    output = refusal(file)
    assert message in output
    assert output.startswith(f"error: {file}: ")


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert "Not a directory" in refusal("--policy", "minimum", "--out", tmp_path / "file" / "out")


@pytest.mark.parametrize("option", ["--policy", "--setting", "--seed"])
def test_an_empty_list_is_refused(option):
    """A script whose variables are unset passes one."""
    assert "',' names nothing" in refusal(option, ",")


def test_an_slo_of_nothing_is_refused(tmp_path):
    """And not taken for an SLO as it is."""
    trace = tmp_path / "requests.csv"
    trace.write_text("time_ms,workflow\n0,image-classification\n", encoding="utf-8")
    assert "slo_factor" in refusal("--trace", trace, "--set", "slo_factor=0")


@pytest.mark.slow
def test_a_name_that_is_there_twice_is_refused(tmp_path):
    """Which of the two was meant, nobody knows; esg plan says so too."""
    folder = folder_of(tmp_path, "image-classification")
    again = (folder / "documents.yaml").read_text(encoding="utf-8")
    (folder / "more.yaml").write_text(again, encoding="utf-8")
    message = "Workflow default/image-classification: metadata.name: is in "
    assert message in refusal("--profiles", folder)
    command = ["plan", "--profiles", str(folder), "--workflow", "image-classification"]
    assert message in esg(*command).stderr
