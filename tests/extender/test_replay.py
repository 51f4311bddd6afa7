"""Replay of a snapshot: the decisions of the live service, offline."""

import json

import pytest
from typer.testing import CliRunner

from scheduler.cli.commands import app
from scheduler.extender.replay import replay
from scheduler.extender.snapshot import SnapshotError, restore_state, take_snapshot
from tests.extender.factories import DOCUMENTS, node, pod
from tests.extender.harness import embedded


@pytest.fixture
def busy(clock):
    """A service with run history, reservations and one removed node."""
    nodes = [node("n1", 2), node("gone"), node("n2", 2), node("n3", 1), node("n4", 1)]
    settings = {"cold_start": True, "network_mib_per_s": 1.0, "margin_ratio": 0.05}
    with embedded(nodes=nodes, documents=DOCUMENTS, clock=clock, **settings) as extender:
        first = pod(workflow="chain", stage="half", request="r1")
        extender.place(first, "n2")
        extender.finish(first)
        extender.place(pod("whole", priority=3), "n1")
        extender.place(pod("half"), "n3")
        ordinary = pod(requests={"cpu": "15500m"})
        extender.filter(ordinary, "n4")
        assert extender.bind(ordinary, "n4") == ""
        extender.on_loop(extender.service.state.nodes.delete, node("gone"))
        extender.on_loop(
            extender.service.state.nodes.upsert, node("unreadable", inventory="not JSON")
        )
        yield extender


ARRIVAL = {"arrival": "2027-01-15T07:59:59.500Z"}
PENDING = [
    pod(workflow="chain", stage="elastic", request="r1", annotations=ARRIVAL),
    pod("whole"),
    pod("tenth", requests={"cpu": "2"}),
    pod("nobody-knows"),
    pod("half", annotations={"queued": "many"}),
]


def snapshot_of(extender):
    names = [entry["name"] for entry in extender.get("/v1/snapshot")["nodes"]]
    for raw in PENDING:
        extender.filter(raw, *names)
    return extender.get("/v1/snapshot")


def test_a_replayed_decision_is_the_live_one(busy):
    """Plan, candidates, feasible nodes and every reason are equal, for each pending pod."""
    snapshot = snapshot_of(busy)
    live = {raw["metadata"]["name"]: busy.explain(raw) for raw in PENDING}
    assert len(live) == len(PENDING)
    replayed = {entry["pod"].split("/")[1]: entry for entry in replay(snapshot)}
    assert replayed == live
    assert len(live[PENDING[0]["metadata"]["name"]]["feasible_nodes"]) > 1


def test_a_snapshot_restores_the_whole_ledger(busy):
    """The rebuilt state has the same snapshot again, apart from the run history of no pod."""
    snapshot = snapshot_of(busy)
    del snapshot["ready"]
    assert json.loads(json.dumps(take_snapshot(restore_state(snapshot)))) == snapshot


def test_one_pod_is_selected_by_its_name(busy):
    """Other pending pods are not replayed; an unknown name lists those that are there."""
    snapshot, name = snapshot_of(busy), PENDING[1]["metadata"]["name"]
    [explanation] = replay(snapshot, f"default/{name}")
    assert explanation["pod"] == f"default/{name}"
    with pytest.raises(SnapshotError, match=rf"pod a/b is not pending .*default/{name}"):
        replay(snapshot, "a/b")


def test_the_command_prints_plan_nodes_and_reasons(busy, tmp_path):
    """A table for people, and the explanations as JSON."""
    snapshot = snapshot_of(busy)
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps(snapshot), encoding="utf-8")
    name = f"default/{PENDING[1]['metadata']['name']}"
    table = CliRunner().invoke(app, ["replay", str(file), "--pod", name])
    assert table.exit_code == 0, table.output
    assert f"pod {name}" in table.output
    assert "  ->      0 " in table.output
    assert "n3: GPU 0: 50 % free, 100 % asked" in table.output
    printed = CliRunner().invoke(app, ["replay", str(file), "--json"])
    assert json.loads(printed.output) == replay(snapshot)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "is not a JSON object"),
        ("{}", "snapshot version None cannot be read"),
        ('{"version": 5, "settings": {}}', "incomplete or was edited"),
    ],
)
def test_a_file_that_is_no_snapshot(tmp_path, content, message):
    """A usage error that says what is wrong with the file."""
    file = tmp_path / "snapshot.json"
    file.write_text(content, encoding="utf-8")
    done = CliRunner().invoke(app, ["replay", str(file)])
    assert done.exit_code == 2
    assert message in " ".join(done.output.replace("│", " ").split())
