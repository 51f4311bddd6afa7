"""Prioritize: a bare array with one integer score, 0 to 10, for every node of the request."""

import pytest

from tests.extender.factories import node, pod


def test_a_bare_array_of_host_and_score(shared):
    """Go decodes a HostPriorityList: an array, its keys capitalised, its scores int64."""
    answer = shared.client.post("/prioritize", json={"Pod": pod("half"), "NodeNames": ["n1"]})
    assert [list(entry) for entry in answer.json()] == [["Host", "Score"]]
    assert b"." not in answer.content


@pytest.mark.parametrize("form", ["names", "objects"])
@pytest.mark.parametrize(
    "pending", [pod("half"), pod(), pod("unheard-of")], ids=lambda p: str(p["metadata"]["labels"])
)
def test_every_node_once_in_range(shared, form, pending):
    """For any pod, each node of the request has one score of 0 to 10, and no other node has one."""
    names = ["n1", "ghost", "n2", "bare", "n1"]
    objects = {"items": [node(name) for name in names]}
    question = {"NodeNames": names} if form == "names" else {"Nodes": objects}
    scores = shared.post("prioritize", {"Pod": pending, **question})
    assert [entry["Host"] for entry in scores] == ["n1", "ghost", "n2", "bare"]
    assert all(type(entry["Score"]) is int and 0 <= entry["Score"] <= 10 for entry in scores)


def test_no_nodes_no_scores(shared):
    """An empty request has an empty array for an answer."""
    assert shared.prioritize(pod("half")) == []


def test_a_node_that_cannot_hold_the_pod_has_no_score(shared):
    """A node that filter would refuse has 0, one that holds the pod has more."""
    scores = {
        entry["Host"]: entry["Score"] for entry in shared.prioritize(pod("whole"), "n1", "bare")
    }
    assert scores["bare"] == 0
    assert scores["n1"] > 0


def test_the_predecessors_node_scores_highest(extender):
    """A successor stage prefers the node with the output of its predecessor."""
    first = pod(workflow="chain", stage="half", request="r1")
    extender.place(first, "n2")
    extender.finish(first)
    second = pod(workflow="chain", stage="elastic", request="r1")
    scores = {entry["Host"]: entry["Score"] for entry in extender.prioritize(second, "n1", "n2")}
    assert scores["n2"] == 10
    assert scores["n1"] < 10


def test_a_pod_of_others_is_indifferent(shared):
    """A pod without our labels leaves the choice to kube-scheduler's own scores."""
    scores = shared.prioritize(pod(), "n1", "bare", "ghost")
    assert {entry["Score"] for entry in scores} == {0}
