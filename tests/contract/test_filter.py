"""Filter by the types of k8s.io/kube-scheduler/extender/v1: keys, forms, nodes and reasons."""

import re

import pytest

from tests.extender.factories import node, nodes_and_documents, pod
from tests.extender.harness import embedded

KEYS = ["Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"]


def objects(*names):
    """A NodeList as kube-scheduler sends it when the extender is not nodeCacheCapable."""
    return {"metadata": {"resourceVersion": "7"}, "items": [node(name, 2) for name in names]}


def ask(extender, pending, *, nodes=None, names=None):
    return extender.post("filter", {"Pod": pending, "Nodes": nodes, "NodeNames": names})


def test_keys_are_the_go_field_names(shared):
    """Go finds its fields only under their own names; all five are always there."""
    assert list(shared.filter(pod("half"), "n1")) == KEYS


def test_names_are_answered_with_names(shared):
    """A request with names gets names, in its order, and no Nodes."""
    answer = shared.filter(pod("half"), "n2", "bare", "n1")
    assert answer["NodeNames"] == ["n2", "n1"]
    assert answer["Nodes"] is None
    assert answer["Error"] == ""


def test_objects_are_answered_with_objects(shared):
    """A request with objects gets those that pass, unchanged down to fields that are not read."""
    node_list = objects("n2", "bare", "n1")
    answer = ask(shared, pod("half"), nodes=node_list)
    assert node_list | {"items": [node_list["items"][0], node_list["items"][2]]} == answer["Nodes"]
    assert answer["NodeNames"] is None
    assert list(answer["FailedAndUnresolvableNodes"]) == ["bare"]


def test_names_win_where_both_are_given(shared):
    """The names count where both forms are sent; the answer has their form."""
    answer = ask(shared, pod("half"), nodes=objects("n1", "n2"), names=["n2"])
    assert answer["NodeNames"] == ["n2"]
    assert answer["Nodes"] is None


@pytest.mark.parametrize(
    ("nodes", "names", "expected_nodes", "expected_names"),
    [
        pytest.param(None, None, None, [], id="neither form"),
        pytest.param(None, [], None, [], id="no names"),
        pytest.param({"items": []}, None, {"items": []}, None, id="no objects"),
        pytest.param({"items": None}, None, {"items": []}, None, id="a nil list of objects"),
    ],
)
def test_no_nodes_asked_none_answered(shared, nodes, names, expected_nodes, expected_names):
    """A request without nodes has an answer, not an error."""
    answer = ask(shared, pod("half"), nodes=nodes, names=names)
    assert dict(zip(KEYS, [expected_nodes, expected_names, {}, {}, ""], strict=True)) == answer


def test_a_repeated_name_is_answered_once(shared):
    """kube-scheduler would count a node twice if it were named twice."""
    assert shared.filter(pod("half"), "n1", "n2", "n1")["NodeNames"] == ["n1", "n2"]


def test_a_repeated_object_is_answered_once(shared):
    """The same for whole objects."""
    answer = ask(shared, pod("half"), nodes=objects("n1", "n1", "n2"))
    assert [item["metadata"]["name"] for item in answer["Nodes"]["items"]] == ["n1", "n2"]


def test_unknown_nodes_are_unresolvable(shared):
    """No eviction makes a node known; a template node of the autoscaler is no error either."""
    answer = shared.filter(pod("half"), "n1", "not-there")
    assert answer["NodeNames"] == ["n1"]
    assert answer["FailedNodes"] == {}
    reasons = answer["FailedAndUnresolvableNodes"]
    assert reasons == {"not-there": "the node is not known to the extender (yet)"}


def test_every_node_is_told_once_and_none_is_made_up(shared):
    """Each node of the request passes or has one reason; no other node is named."""
    names = ["n1", "ghost", "bare", "n2", "GHOST"]
    answer = shared.filter(pod("whole"), *names)
    answered = [*answer["NodeNames"], *answer["FailedNodes"], *answer["FailedAndUnresolvableNodes"]]
    assert sorted(names) == sorted(answered)


def test_a_full_node_is_failed_with_numbers(extender):
    """A node that eviction could free is in FailedNodes; its reason has the amounts."""
    for _ in range(2):
        extender.place(pod("half"), "n1")
    extender.place(pod("half"), "n1")
    answer = extender.filter(pod("whole"), "n1", "n2")
    assert answer["NodeNames"] == ["n2"]
    # The first candidate that any node holds decides, so n1 is told what that one asks.
    reason = answer["FailedNodes"]["n1"]
    assert reason == "GPU 1: 50 percent free, 100 percent asked; 76,896 MiB free, 4,000 asked"


def test_a_node_without_vcpus_is_failed_with_numbers(shared):
    """The same for vCPUs."""
    greedy = pod("half", requests={"cpu": "17"})
    reason = shared.filter(greedy, "n1")["FailedNodes"]["n1"]
    assert reason == "16 vCPU free, 17 asked"


def test_every_failed_node_has_a_number(extender):
    """On a full cluster each FailedNodes reason has numbers."""
    for name in ("n1", "n1", "n2", "n2"):
        extender.place(pod("whole"), name)
    failed = extender.filter(pod("tenth"), "n1", "n2", "bare")["FailedNodes"]
    assert list(failed) == ["n1", "n2"]
    assert all(
        re.search(r"\d+ percent free, 10 percent asked", reason) for reason in failed.values()
    )


def test_filter_changes_nothing(extender):
    """Ten calls reserve nothing: the whole cluster is still free."""
    before = extender.gpus("n1")
    for _ in range(10):
        assert extender.filter(pod("whole"), "n1")["NodeNames"] == ["n1"]
    assert before == extender.gpus("n1")


@pytest.mark.parametrize("form", ["names", "objects"])
def test_a_pod_of_others_passes_untouched(shared, form):
    """A pod without our labels passes on every node of the request, known or not."""
    names = ["n1", "bare", "ghost"]
    pending = objects(*names)
    if form == "names":
        answer = ask(shared, pod(), names=names)
        expected = {"Nodes": None, "NodeNames": names}
    else:
        answer = ask(shared, pod(), nodes=pending)
        expected = {"Nodes": pending, "NodeNames": None}
    rest = {"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}
    assert expected | rest == answer


def test_fewer_nodes_where_that_is_set():
    """With ESG_FILTER_NODES_MAX=1 the best node alone passes, and it is the one scored highest."""
    with embedded(**nodes_and_documents(), filter_nodes_max=1) as extender:
        pending = pod("half")
        scores = {s["Host"]: s["Score"] for s in extender.prioritize(pending, "n1", "n2", "bare")}
        answer = extender.filter(pending, "n1", "n2", "bare")
    assert [max(scores, key=scores.__getitem__)] == answer["NodeNames"]
    assert answer["Error"] == ""


def test_the_time_left_decides_the_share(extender, clock):
    """Early a pod is planned the cheap share, late the fast one, by the service's clock.

    The budget is the remaining time without the margin that the objective needs.
    """

    def planned(arrived_s_ago):
        at = clock.now_s - arrived_s_ago
        arrival = f"2027-01-15T08:00:{at - 1_800_000_000:06.3f}Z"
        pending = pod(workflow="lone-stage", stage="elastic", annotations={"arrival": arrival})
        extender.filter(pending, "n1")
        return extender.explain(pending)["plan"]

    clock.now_s += 30
    early, late = planned(0.05), planned(0.35)
    assert (early["feasible"], early["candidates"][0]["gpu_percent"]) == (True, 20)
    assert (late["feasible"], late["candidates"][0]["gpu_percent"]) == (True, 90)
    assert early["margin_ratio"] == late["margin_ratio"] == pytest.approx(0.122, abs=1e-3)
    assert early["budget_ms"] == pytest.approx(450 / (1 + early["margin_ratio"]))
    assert late["budget_ms"] == pytest.approx(150 / (1 + late["margin_ratio"]))
