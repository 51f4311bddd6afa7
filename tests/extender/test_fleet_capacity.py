"""Configurations larger than every node are none: of this stage, and of every later one."""

from collections.abc import Iterable
from typing import Any

import pytest

from scheduler.model.documents import FunctionProfile
from tests.extender.factories import MODEL, bare_node, gpu, node, pod, workflow
from tests.extender.harness import Clock, Extender, embedded

Row = tuple[int, int, float]  # vCPU, MiB, ms of one request on a tenth of a GPU
DAEMON = [{"kind": "DaemonSet", "name": "exporter", "controller": True}]


def function(name: str, *rows: Row, percent: int = 10, model: str = MODEL) -> FunctionProfile:
    """A function of one request per batch."""
    configurations = [
        {"batch": 1, "cpu": cpu, "gpuPercent": percent + i, "latencyMs": ms, "memoryMib": mib}
        for i, (cpu, mib, ms) in enumerate(rows)
    ]
    spec = {"gpus": [{"model": model, "sparse": True, "configurations": configurations}]}
    return FunctionProfile.model_validate({"metadata": {"name": name}, "spec": spec})


def small_node(name: str, *, cpu: str = "16") -> dict[str, Any]:
    """A node with one GPU of 40 GiB."""
    whole = node(name, cpu=cpu, inventory="[]")
    inventory = str([gpu(0, name, memory_mib=40_960)]).replace("'", '"').replace("True", "true")
    whole["metadata"]["annotations"] = {"esg-scheduler.io/gpus": inventory}
    return whole


def planned(extender: Extender, pending: dict[str, Any]) -> list[tuple[int, int]]:
    """The vCPU and MiB of the candidates."""
    candidates = extender.explain(pending)["plan"]["candidates"]
    return [(candidate["cpu"], candidate["memory_mib"]) for candidate in candidates]


def refusal(extender: Extender, pending: dict[str, Any], *names: str) -> str:
    """The reason that filter gives for all these nodes, evictions being of no use."""
    answer = extender.filter(pending, *names)
    assert (answer["Error"], answer["NodeNames"], answer["FailedNodes"]) == ("", [], {})
    reasons = answer["FailedAndUnresolvableNodes"]
    assert set(reasons) == set(names)
    (reason,) = set(reasons.values())
    return reason


def running(cpu: str) -> dict[str, Any]:
    """A pod of another owner on node n1."""
    raw = pod(requests={"cpu": cpu})
    raw["spec"]["nodeName"] = "n1"
    return raw


def serving(documents: Iterable[Any], *nodes: dict[str, Any]) -> Any:
    return embedded(nodes=nodes, documents=documents, clock=Clock())


def test_cheaper_configurations_of_more_vcpus_than_any_node():
    """Six cheaper configurations of 32 vCPUs do not hide the one that fits."""
    rows = [(32, 4_000, 10.0 + i) for i in range(6)] + [(4, 4_000, 300.0)]
    documents = [function("f", *rows), workflow("w", 500, "f")]
    with serving(documents, node("n1"), node("n2")) as extender:
        pending = pod(workflow="w", stage="f")
        assert extender.place(pending, "n1")["plan"]["cpu"] == 4


def test_cheaper_configurations_of_more_memory_than_any_gpu():
    """Nor do six that need more memory than the GPUs have."""
    rows = [(1, 60_000, 10.0 + i) for i in range(6)] + [(1, 30_000, 300.0)]
    documents = [function("f", *rows), workflow("w", 500, "f")]
    with serving(documents, small_node("n1")) as extender:
        pending = pod(workflow="w", stage="f")
        assert extender.place(pending, "n1")["plan"]["memory_mib"] == 30_000


def test_later_stage_that_is_fast_on_absent_nodes_only():
    """The first stage plans with the time that the second one takes on the nodes there are."""
    second = function("b", (64, 4_000, 10.0), (4, 4_000, 450.0))
    first = function("a", (1, 4_000, 300.0), (1, 4_000, 40.0), percent=50)
    with serving([first, second, workflow("w", 600, "a", "b")], node("n1")) as extender:
        pending = pod(workflow="w", stage="a")
        grant = extender.place(pending, "n1")
        assert grant["plan"]["feasible"]
        assert grant["plan"]["stage_ms"] == 40.0
        assert grant["plan"]["path_ms"] == 490.0


def test_a_lost_slo_is_lost_from_the_first_stage_on():
    """If the later stage is too slow on all nodes, the first stage's plan is not feasible."""
    second = function("b", (64, 4_000, 10.0), (4, 4_000, 450.0))
    documents = [function("a", (1, 4_000, 40.0)), second, workflow("w", 200, "a", "b")]
    with serving(documents, node("n1")) as extender:
        pending = pod(workflow="w", stage="a")
        plan = extender.place(pending, "n1")["plan"]
        assert not plan["feasible"]
        assert "the fastest completion takes 490.0 ms" in plan["message"]


def test_what_daemons_take_is_no_capacity():
    """A DaemonSet's pod makes a node of 16 vCPUs one of 15.9; a pod that ends does not."""
    documents = [function("f", (16, 4_000, 10.0), (15, 4_000, 20.0))]
    with serving(documents, node("n1")) as extender:
        pending = pod("f")
        extender.filter(pending, "n1")
        assert planned(extender, pending) == [(16, 4_000), (15, 4_000)]
        passing, daemon = running("8"), running("100m")
        daemon["metadata"]["ownerReferences"] = DAEMON
        extender.create(passing)
        assert planned(extender, pending) == [(16, 4_000), (15, 4_000)]
        extender.create(daemon)
        assert planned(extender, pending) == [(15, 4_000)]
        extender.finish(daemon)
        assert planned(extender, pending) == [(16, 4_000), (15, 4_000)]


def test_the_pods_other_containers_count():
    """A sidecar takes vCPUs of the node, for this stage and no other."""
    first = function("a", (16, 4_000, 10.0), (15, 4_000, 20.0), percent=50)
    second = function("b", (16, 4_000, 10.0))
    with serving([first, second, workflow("w", 500, "a", "b")], node("n1")) as extender:
        pending = pod(workflow="w", stage="a")
        pending["spec"]["containers"].append(
            {"name": "side", "resources": {"requests": {"cpu": "250m"}}}
        )
        extender.filter(pending, "n1")
        assert planned(extender, pending) == [(15, 4_000)]


def test_a_full_node_removes_nothing():
    """Capacity is the size of a node, not what is free on it."""
    documents = [function("f", (16, 4_000, 10.0)), function("g", (8, 4_000, 10.0))]
    with serving(documents, node("n1")) as extender:
        extender.place(pod("g"), "n1")
        answer = extender.filter(pod("f"), "n1")
        assert answer["FailedNodes"] == {"n1": "8 vCPU free, 16 asked"}


def test_a_larger_node_joins():
    """The plan follows the fleet."""
    documents = [function("f", (32, 4_000, 10.0), (4, 4_000, 300.0))]
    with serving(documents, node("n1")) as extender:
        pending = pod("f")
        extender.filter(pending, "n1")
        assert planned(extender, pending) == [(4, 4_000)]
        nodes = extender.service.state.nodes
        extender.on_loop(nodes.upsert, node("n2", cpu="32"))
        assert planned(extender, pending) == [(32, 4_000), (4, 4_000)]
        extender.on_loop(nodes.delete, node("n2"))
        assert planned(extender, pending) == [(4, 4_000)]


@pytest.mark.parametrize(
    ("stage", "because"),
    [("b", "stage b: no node can hold function b"), ("a", "stage b: no node can hold function b")],
    ids=["the stage", "the stage before it"],
)
def test_no_node_is_large_enough(stage, because):
    """Filter says of every node which function, what it needs at least, and the largest node."""
    documents = [
        function("a", (1, 4_000, 10.0)),
        function("b", (64, 4_000, 10.0), (32, 6_000, 20.0)),
        workflow("w", 500, "a", "b"),
    ]
    with serving(documents, small_node("n1"), small_node("n2"), bare_node("bare")) as extender:
        pending = pod(workflow="w", stage=stage)
        reason = refusal(extender, pending, "n1", "n2")
        assert reason == (
            f"{because}: its smallest configuration takes 32 vCPU, 11 percent GPU and 6,000 MiB on "
            f"{MODEL}, and the largest node with that GPU has 16 vCPU and 39,936 MiB"
        )
        assert set(extender.explain(pending)["infeasible_nodes"]) == {"n1", "n2", "bare"}
        assert "no node can hold function b" in extender.bind(pending, "n1")
        assert extender.prioritize(pending, "n1") == [{"Host": "n1", "Score": 0}]
