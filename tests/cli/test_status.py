"""``esg status``: three tables from a gateway's health port."""

import json

import pytest

from tests.command_line import esg
from tests.http_in_thread import json_served_in_thread
from tests.page import cluster
from tests.page.served import page_server
from workbench.cluster.api_server import write_kubeconfig


def test_tables_have_the_figures():
    """Workflows, functions and nodes with their GPUs; or all of it as JSON."""
    with page_server(cluster.played()) as url:
        result = esg("status", "--from", url)
        whole = json.loads(esg("status", "--from", url, "--json").stdout)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["vision/street", "400", "99.0", "%", "99.5", "%", "99.2", "%", "80", "%", "123.4",
            "120", "380", "0.0123", "0.0456", "0.0100"] in lines  # fmt: skip
    assert ["vision/detect", "3", "1", "4", "12", "3.25", "1.08", "3.50"] in lines
    assert ["gpu-node-a", "2", "140", "%", "0", "0", "5"] in lines
    assert ["gpu-node-b", "2", "0", "%", "2", "1", "0"] in lines
    assert [row["name"] for row in whole["workflows"]] == ["receipts", "street"]


def status_of(folder, overviews):
    """Run the command in a cluster with a gateway for each overview."""
    pods = [
        {"metadata": {"namespace": "esg", "name": f"gateway-{i}",
                      "labels": {"app.kubernetes.io/component": "gateway"}}}
        for i in range(len(overviews))
    ]  # fmt: skip
    answers = {f"gateway-{i}:8890/proxy/v1/overview": o for i, o in enumerate(overviews)}

    def answer(path):
        if path.startswith("/api/v1/pods"):
            return 200, {"items": pods}
        for end, document in answers.items():
            if path.endswith(end):
                return 200, document
        return 404, {"detail": "Not Found"}

    with json_served_in_thread(answer) as url:
        write_kubeconfig(folder / "kubeconfig", url)
        return esg("status", "--kubeconfig", folder / "kubeconfig")


def test_functions_of_all_gateways_are_shown(tmp_path):
    """A function is that of the gateway with most of its pods; problems are of all gateways."""
    first, second = cluster.played()["/v1/overview"], cluster.played()["/v1/overview"]
    first |= {"functions": [cluster.function("detect", ready=0)], "not_ready": "nodes: no answer"}
    pooled = cluster.function("ocr", dollars_per_hour=None)
    second |= {"functions": [cluster.function("detect"), pooled], "workflows": []}
    result = status_of(tmp_path, [first, second])
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["vision/detect", "3", "1", "4", "12", "3.25", "1.08", "3.50"] in lines
    assert ["vision/ocr", "3", "1", "4", "12", "3.25", "1.08", "-"] in lines
    assert "pool of namespace vision: $4.50/h for its slices" in result.stdout
    assert "gateway-0 is not ready: nodes: no answer" in result.stdout


def test_pools_of_groups_are_added(tmp_path):
    """Replicas of a group show one pool; groups have a pool each in a namespace."""
    overviews = [cluster.played()["/v1/overview"] for _ in range(3)]
    overviews[2] |= {"group": "batch", "pools": {"vision": 2.0}}
    result = status_of(tmp_path, overviews)
    assert "pool of namespace vision: $6.50/h for its slices" in result.stdout


@pytest.mark.slow
def test_a_gateway_without_the_page_is_an_error():
    """The message names the setting."""
    documents = {"/v1/gpus": cluster.empty()["/v1/gpus"]}
    with page_server(documents) as url:
        result = esg("status", "--from", url)
    assert result.exit_code == 1
    assert "ESG_PAGE=true" in result.stderr
    assert "health port" in result.stderr


@pytest.mark.slow
def test_gpus_that_cannot_be_read_leave_the_others():
    """The tables of workflows and functions are printed, and the problem."""
    documents = cluster.played() | {"/v1/gpus": float}  # which cannot be written as JSON
    with page_server(documents) as url:
        result = esg("status", "--from", url)
    assert result.exit_code == 0
    assert "vision/street" in result.stdout
    assert "GPUs cannot be read" in result.stdout
