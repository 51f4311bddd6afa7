"""``--nodes`` of `esg check` and `esg plan`: what no node of the cluster can hold."""

import json

import pytest

from scheduler.model.documents import to_manifest
from tests.command_line import esg
from tests.extender.factories import MODEL, bare_node, node, workflow
from tests.extender.test_fleet_capacity import function


def check(folder, documents, nodes):
    """Check the documents for these nodes, as kubectl prints them."""
    documents_file, nodes_file = files(folder, documents, nodes)
    return esg("check", documents_file, "--nodes", nodes_file)


def files(folder, documents, nodes):
    """Write Lists of the documents and of the nodes, and return the files' names."""
    documents_file, nodes_file = folder / "documents.json", folder / "nodes.json"
    manifests = [to_manifest(document) | {"kind": document.kind} for document in documents]
    listed = [raw | {"apiVersion": "esg-scheduler.io/v1alpha1"} for raw in manifests]
    documents_file.write_text(json.dumps({"kind": "List", "items": listed}))
    nodes_file.write_text(json.dumps({"kind": "List", "items": nodes}))
    return str(documents_file), str(nodes_file)


def daemon(**status):
    """A pod of a DaemonSet that requests a tenth of a vCPU on node n1."""
    return {
        "kind": "Pod",
        "metadata": {
            "name": "exporter",
            "namespace": "monitoring",
            "ownerReferences": [{"kind": "DaemonSet", "name": "exporter"}],
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}],
        },
        "status": status,
    }


def test_configurations_that_the_cluster_cannot_hold(tmp_path):
    """Each is listed, with the size of the largest node; they are warnings."""
    documents = [
        function("f", (32, 4_000, 10.0), (1, 90_000, 10.0), (4, 4_000, 300.0)),
        workflow("w", 500, "f"),
    ]
    result = check(tmp_path, documents, [node("n1"), node("n2", cpu="8"), bare_node("bare")])
    assert result.exit_code == 0, result.output
    assert (
        f"FunctionProfile f: spec.gpus: no node can hold 2 of 3 configurations on {MODEL}: "
        "(32 vCPU, 10 % GPU and 4,000 MiB), (1 vCPU, 11 % GPU and 90,000 MiB); the largest node "
        "with that GPU has 16 vCPU and 80,896 MiB"
    ) in result.output
    assert "0 errors, 1 warning" in result.output


def test_a_workflow_that_cannot_run(tmp_path):
    """A stage without any configuration that fits is an error."""
    documents = [function("f", (32, 4_000, 10.0)), workflow("w", 500, "f")]
    result = check(tmp_path, documents, [node("n1")])
    assert result.exit_code == 1
    assert "Workflow default/w: spec.stages: stage f: no node can hold function f" in result.output


def test_an_slo_that_only_larger_nodes_meet(tmp_path):
    """The fastest time is that of configurations that fit."""
    documents = [
        function("f", (32, 4_000, 10.0), (4, 4_000, 300.0)),
        workflow("w", 200, "f"),
    ]
    result = check(tmp_path, documents, [node("n1")])
    assert "no configuration meets 200 ms; the fastest takes 300 ms" in result.output


@pytest.mark.parametrize(
    ("pods", "warnings"),
    [([], 0), ([daemon()], 1), ([daemon(phase="Failed")], 0)],
    ids=["nodes alone", "a daemon", "a daemon that has ended"],
)
def test_daemons_take_capacity(tmp_path, pods, warnings):
    """Pods of DaemonSets in the file make a node of 16 vCPUs one of 15.9."""
    documents = [function("f", (16, 4_000, 10.0), (4, 4_000, 300.0))]
    result = check(tmp_path, documents, [*pods, node("n1")])
    assert f"{warnings} warning" in result.output
    assert ("has 15.9 vCPU" in result.output) == bool(warnings)


@pytest.mark.parametrize(
    ("options", "vcpus"),
    [([], {4, 8}), (["--gpu-model", MODEL], {4, 8}), (["--gpu-model", "other"], None)],
)
def test_a_plan_for_these_nodes(tmp_path, options, vcpus):
    """It has configurations that one of the nodes can hold, on the models that are there."""
    rows = [(32, 4_000, 10.0), (8, 4_000, 200.0), (4, 4_000, 300.0)]
    documents = [function("f", *rows), workflow("w", 500, "f")]
    documents_file, nodes_file = files(tmp_path, documents, [node("n1"), node("n2", cpu="8")])
    arguments = ["plan", "--profiles", documents_file, "--workflow", "w", "--nodes", nodes_file]
    result = esg(*arguments, *options, "--json")
    if vcpus is None:
        assert result.exit_code == 1
        message = f"error: {nodes_file}: no Node has a GPU of model other; there are {MODEL}"
        assert message in result.output
    else:
        assert {c["cpu"] for c in json.loads(result.stdout)["candidates"]} == vcpus


@pytest.mark.parametrize(
    ("nodes", "message"),
    [([bare_node("bare")], "no Node has a GPU in its annotation"), (["n1"], "document 1 is no")],
)
def test_a_file_that_is_no_cluster(tmp_path, nodes, message):
    """It is a usage error that names the file."""
    result = check(tmp_path, [function("f", (1, 4_000, 10.0))], nodes)
    assert result.exit_code == 2
    text = "".join(result.output.replace("│", "").split())  # without line breaks
    assert "nodes.json" in text
    assert "".join(message.split()) in text
