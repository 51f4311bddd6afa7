"""``esg status``: three tables from a gateway's health port."""

import json

import pytest

from tests.command_line import esg
from tests.page import cluster
from tests.page.served import page_server


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


@pytest.mark.slow
def test_a_gateway_without_the_page_is_an_error():
    """The message names the setting."""
    documents = {"/v1/gpus": cluster.empty()["/v1/gpus"]}
    with page_server(documents) as url:
        result = esg("status", "--from", url)
    assert result.exit_code == 1
    assert "ESG_PAGE=true" in result.stderr


@pytest.mark.slow
def test_gpus_that_cannot_be_read_leave_the_others():
    """The tables of workflows and functions are printed, and the problem."""
    documents = cluster.played() | {"/v1/gpus": float}  # which cannot be written as JSON
    with page_server(documents) as url:
        result = esg("status", "--from", url)
    assert result.exit_code == 0
    assert "vision/street" in result.stdout
    assert "GPUs cannot be read" in result.stdout
