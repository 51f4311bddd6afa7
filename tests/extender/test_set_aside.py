"""One object that cannot be taken in hides nothing: neither others, nor what it has itself."""

import json

import pytest
from structlog.testing import capture_logs

from tests.extender.factories import gpu, node, pod

GRANT = {"gpu": "GPU-n1-0", "gpu-percent": "50", "gpu-memory": "0=4000M", "batch": "1"}


def bound(name="half"):
    raw = pod("half", annotations=GRANT)
    raw["metadata"] |= {"name": name, "uid": name}
    raw["spec"]["nodeName"] = "n1"
    return raw


@pytest.fixture
def fail_for(extender, monkeypatch):
    """Let a method of the state fail for one object."""

    def failing(owner, method, name):
        original = getattr(owner, method)

        def maybe(item, *arguments, **named):
            metadata = item["metadata"] if isinstance(item, dict) else None
            if (metadata["name"] if metadata else item.name) == name:
                raise ArithmeticError("a defect")
            return original(item, *arguments, **named)

        monkeypatch.setattr(owner, method, maybe)

    return failing


def test_share_counts_whatever_fails_in_the_statistics(extender, fail_for):
    """The GPU would be promised twice."""
    state = extender.service.state
    fail_for(state.tracker, "observe", "half")
    with pytest.raises(ArithmeticError):
        extender.on_loop(state.pods.upsert, bound())
    assert state.ledger.reservation("half").gpu_percent == 50


@pytest.mark.replaces
def test_defect_of_one_pod_hides_no_other_of_a_list(extender, fail_for):
    """The rest of the list counts, and the log names the pod."""
    state = extender.service.state
    fail_for(state.ledger, "confirm", "bad")
    with capture_logs() as logged:
        extender.on_loop(state.pods.replace, [bound("first"), bound("bad"), bound("last")])
    assert state.ledger.reservation("first")
    assert state.ledger.reservation("last")
    assert [(line["kind"], line["name"]) for line in logged] == [("pod", "bad")]


@pytest.mark.replaces
def test_defect_of_one_node_hides_no_other_of_a_list(extender, fail_for):
    """The rest of the list counts, and the node keeps its last state."""
    state = extender.service.state
    before = set(state.ledger.node_names())
    fail_for(state.ledger, "set_node", "n1")
    with capture_logs() as logged:
        extender.on_loop(state.nodes.replace, [node("n1"), node("new")])
    assert set(state.ledger.node_names()) == {"n1", "new"} != before
    assert [(line["kind"], line["name"]) for line in logged] == [("node", "n1")]


def test_gpu_of_one_uuid_on_two_nodes_is_reported_for_each(extender):
    """A GPU that moved may be over-committed on both nodes: each has its own log line, once."""
    state = extender.service.state
    inventory = json.dumps([gpu(0, "n1")])
    for name in ("n1", "moved-to"):
        extender.on_loop(state.nodes.upsert, node(name, inventory=inventory))
        for number in range(3):
            raw = bound(f"{name}-{number}")
            raw["spec"]["nodeName"] = name
            extender.on_loop(state.pods.upsert, raw)
    with capture_logs() as logged:
        for _ in range(2):
            extender.on_loop(extender.service._report_overcommits)
    assert {line["node"] for line in logged} == {"n1", "moved-to"}
    assert len(logged) == 2


def test_gpu_of_two_nodes_gets_no_pod_and_says_why(extender):
    """The refusal, an Event on each node and the gauge name the conflict, once each."""
    service = extender.service
    inventory = json.dumps([gpu(0, "n1")])
    for name in ("n1", "renamed"):
        extender.on_loop(service.state.nodes.upsert, node(name, inventory=inventory))
    answer = extender.filter(pod("half"), "n1", "renamed")
    assert not answer["NodeNames"]
    refusals = answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"]
    assert "GPU 0 is known as a GPU of renamed, too" in refusals["n1"]
    assert "GPU 0 is known as a GPU of n1, too" in refusals["renamed"]
    with capture_logs() as logged:
        for _ in range(2):
            extender.on_loop(service._report_name_conflicts)
    assert sorted(line["node"] for line in logged) == ["n1", "renamed"]
    extender.on_loop(service.refresh_gauges)
    assert service.metrics.name_conflicts._value.get() == 1
    extender.on_loop(service.state.nodes.delete, node("n1"))
    assert extender.filter(pod("half"), "renamed")["NodeNames"] == ["renamed"]
