"""``esg openb``: a table for people, JSON for programs, and what is wrong result in a line."""

import json

import pytest
from typer.testing import CliRunner

from scheduler.cli.commands import app
from tests.studies.packing.traces import NODES_HEADER, PODS_HEADER, csv_of

PODS = [
    f"p{i},4000,100,1,{milli},,LS,{i}" for i, milli in enumerate([810, 470, 470, 190, 1000] * 8)
]
NODES = [f"n{i},{cpu},64000,2,T4" for i, cpu in enumerate([16_000, 32_000, 64_000])]


@pytest.fixture
def esg(tmp_path, monkeypatch):
    """The command on a small trace, with other options."""
    monkeypatch.setenv("COLUMNS", "200")
    pods = csv_of(tmp_path, PODS_HEADER, PODS, "pods.csv")
    nodes = csv_of(tmp_path, NODES_HEADER, NODES, "nodes.csv")

    def run(*options, pods=pods):
        arguments = ["openb", "--pods", str(pods), "--nodes", str(nodes), *options]
        return CliRunner().invoke(app, arguments)

    return run


def test_a_table_of_all_rules(esg):
    """One line a rule, in the same order always."""
    done = esg()
    assert done.exit_code == 0, done.output
    names = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("│")]
    assert names == ["random", "best-fit", "fgd", "fgd-rounded", "pack", "defrag"]
    assert "3 nodes, 6 GPUs; 40 pods request 392.0 % of them" in done.stdout


def test_json_with_the_curve(esg):
    """The curve rises to the final grant, a point for each percent that arrived."""
    done = esg("--rule", "defrag", "--rule", "defrag", "--inflate", "1.3", "--seed", "3", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["nodes"], result["gpus"]) == (3, 6)
    [defrag] = result["rules"]
    assert defrag["rule"] == "defrag"
    curve = defrag["curve"]
    assert curve[0] == {"arrived_percent": 0, "granted_percent": 0, "fragmentation_percent": 0}
    assert curve[-1]["granted_percent"] == defrag["granted_percent"] > 0
    assert 130 <= curve[-1]["arrived_percent"] < 130 + 100 / 6
    for column in ("arrived_percent", "granted_percent"):
        values = [point[column] for point in curve]
        assert values == sorted(values)


def test_pods_without_gpu_by_kube_scheduler(esg, tmp_path):
    """They alone are placed otherwise: on the emptiest node, whose vCPUs a GPU then lacks."""
    rows = ["c,9000,100,0,0,,LS,0", "g,60000,100,1,1000,,LS,1"]
    with_cpu_pod = csv_of(tmp_path, PODS_HEADER, rows, "with_cpu_pod.csv")

    def unplaced(*options, **files):
        done = esg("--rule", "pack", "--json", *options, **files)
        return json.loads(done.stdout)["rules"][0]["unplaced_gpu"]

    live = ("--cpu-pods", "kube-scheduler")
    assert (unplaced(pods=with_cpu_pod), unplaced(*live, pods=with_cpu_pod)) == (0, 1)
    assert unplaced() == unplaced(*live)


def test_what_is_wrong_is_told_in_a_line(esg, tmp_path):
    """File, line and column; and what cannot be inflated."""
    broken = csv_of(tmp_path, PODS_HEADER, ["p,x,1,1,500,,LS,0"], "broken.csv")
    done = esg(pods=broken)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: {broken}: line 2: column cpu_milli: 'x' is no whole")
    plain = csv_of(tmp_path, PODS_HEADER, ["p,1,1,0,0,,LS,0"], "plain.csv")
    done = esg("--inflate", "1.3", pods=plain)
    assert done.exit_code == 1
    assert done.stderr == f"error: {plain}: no pod requests a GPU; there is nothing to inflate\n"
    done = esg(pods=tmp_path / "nowhere.csv")
    assert done.exit_code == 1
    assert "nowhere.csv: the file: cannot be read" in done.stderr
