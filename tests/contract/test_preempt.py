"""Preempt: the meta form out whichever form came in, victims on one GPU, none without a victim."""

import pytest

from tests.extender.cases import pod


def full_node(extender, *functions, priority=0):
    """n1 with these functions bound on it, in order; their pods."""
    held = [pod(function, priority=priority) for function in functions]
    for each in held:
        extender.place(each, "n1")
    return held


def ask(extender, asked, victims, *, whole=False):
    """``victims``: pods by node."""
    meta = {
        name: {"Pods": [{"UID": p["metadata"]["uid"]} for p in pods], "NumPDBViolations": 1}
        for name, pods in victims.items()
    }
    full = {name: {"Pods": pods, "NumPDBViolations": 1} for name, pods in victims.items()}
    answer = extender.post(
        "preempt",
        {
            "Pod": asked,
            "NodeNameToVictims": full if whole else None,
            "NodeNameToMetaVictims": None if whole else meta,
        },
    )
    assert list(answer) == ["NodeNameToMetaVictims"]
    return answer["NodeNameToMetaVictims"]


def uids(*pods):
    return [{"UID": each["metadata"]["uid"]} for each in pods]


@pytest.mark.parametrize("whole", [False, True], ids=["meta victims", "whole victims"])
def test_enough_victims_are_kept_as_they_are(extender, whole):
    """Victims that free one GPU pass through; the count of budget violations stays theirs."""
    a, b, *_ = full_node(extender, "half", "half", "whole")
    answer = ask(extender, pod("whole", priority=10), {"n1": [a, b]}, whole=whole)
    assert {"n1": {"Pods": uids(a, b), "NumPDBViolations": 1}} == answer


def test_victims_on_two_gpus_are_completed_on_one(extender):
    """Two halves on two GPUs make no whole one: what else is on the nearest GPU is added."""
    a, b, c, _ = full_node(extender, "half", "half", "half", "half")
    (node, victims), *others = ask(extender, pod("whole", priority=10), {"n1": [a, c]}).items()
    assert (node, others) == ("n1", [])
    assert uids(a, c) == victims["Pods"][:2]
    added = victims["Pods"][2:]
    assert len(added) == 1
    gpus = [{p["uid"] for p in gpu["pods"]} for gpu in extender.gpus("n1")]
    chosen = {each["UID"] for each in victims["Pods"]}
    assert any(on_gpu <= chosen for on_gpu in gpus)
    assert uids(b) == added or added[0]["UID"] in gpus[1]


def test_equals_are_not_evicted(extender):
    """Pods of the same or a higher priority are no victims, so the node is no answer."""
    a, _, c, _ = full_node(extender, "half", "half", "half", "half", priority=10)
    assert ask(extender, pod("whole", priority=10), {"n1": [a]}) == {}
    assert ask(extender, pod("whole", priority=10), {"n1": [a, c]}) == {}


def test_the_least_important_goes_first(extender):
    """Of those that may go, the lowest priority is added."""
    low, high = pod("half", priority=1), pod("half", priority=5)
    extender.place(high, "n1")
    extender.place(low, "n1")
    extender.place(other := pod("whole", priority=50), "n1")
    answer = ask(extender, pod("half", priority=10), {"n1": []})
    assert uids(low) == answer["n1"]["Pods"]
    assert uids(other)[0] not in answer["n1"]["Pods"]


def test_no_node_without_a_victim(extender):
    """kube-scheduler takes a node without a victim for an error; a node with room is left out."""
    assert ask(extender, pod("half", priority=10), {"n1": [], "n2": []}) == {}


def test_unknown_and_gpuless_nodes_are_left_out(extender):
    """Evicting on them makes no room."""
    victim = pod("half")
    answer = ask(extender, pod("half", priority=10), {"ghost": [victim], "bare": [victim]})
    assert answer == {}


def test_a_pod_of_others_is_left_to_the_scheduler(extender):
    """For a pod without our labels the victims pass through, in the meta form."""
    victim = pod()
    answer = ask(extender, pod(priority=10), {"n1": [victim], "ghost": [victim]}, whole=True)
    expected = {"Pods": uids(victim), "NumPDBViolations": 1}
    assert {"n1": expected, "ghost": expected} == answer


def test_nobody_is_evicted_for_a_malformed_pod(extender):
    """A pod that cannot be planned gets no node, so no pod dies for it."""
    (victim,) = full_node(extender, "whole")
    broken = pod("half", priority=10, annotations={"rate": "fast"})
    assert ask(extender, broken, {"n1": [victim]}) == {}


@pytest.mark.parametrize(
    "question",
    [
        {"NodeNameToVictims": None, "NodeNameToMetaVictims": None},
        {"NodeNameToVictims": {}, "NodeNameToMetaVictims": {}},
        {},
    ],
    ids=["both nil", "both empty", "neither"],
)
def test_no_nodes_asked_none_answered(shared, question):
    """A question about no node has an empty answer."""
    answer = shared.post("preempt", {"Pod": pod("half")} | question)
    assert answer == {"NodeNameToMetaVictims": {}}


def test_preempt_changes_nothing(extender):
    """The victims hold their share until they are gone."""
    full_node(extender, "whole", "whole")
    before = extender.gpus("n1")
    victim = before[0]["pods"][0]
    answer = extender.post(
        "preempt",
        {
            "Pod": pod("whole", priority=10),
            "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": victim["uid"]}]}},
        },
    )
    assert answer["NodeNameToMetaVictims"]["n1"]["Pods"] == [{"UID": victim["uid"]}]
    assert before == extender.gpus("n1")
