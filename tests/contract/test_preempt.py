"""Preempt: the meta form for either request form, victims on one GPU, no node without a victim."""

import json

import pytest

from scheduler.cluster.resource import trim_pod
from tests.extender.factories import GROUP, gpu, node, pod

GUARDED = {"app": "guarded"}


def full_node(extender, *functions, priority=0, labels=None):
    """Bind these functions on n1 in order; return their pods."""
    held = [pod(function, priority=priority, labels=labels) for function in functions]
    for entry in held:
        extender.place(entry, "n1")
    return held


def ask(extender, pending, victims, *, whole=False):
    """``victims``: pods by node."""
    meta = {
        name: {"Pods": [{"UID": p["metadata"]["uid"]} for p in pods], "NumPDBViolations": 1}
        for name, pods in victims.items()
    }
    full = {name: {"Pods": pods, "NumPDBViolations": 1} for name, pods in victims.items()}
    answer = extender.post(
        "preempt",
        {
            "Pod": pending,
            "NodeNameToVictims": full if whole else None,
            "NodeNameToMetaVictims": None if whole else meta,
        },
    )
    assert list(answer) == ["NodeNameToMetaVictims"]
    return answer["NodeNameToMetaVictims"]


def guard(extender, *, allowed, namespace="default"):
    """Create a disruption budget of the pods with the label ``GUARDED``."""
    budget = {
        "metadata": {"namespace": namespace, "name": f"allows-{allowed}"},
        "spec": {"selector": {"matchLabels": GUARDED}},
        "status": {"disruptionsAllowed": allowed},
    }
    extender.on_loop(extender.service.disruption_budgets.upsert, budget)


def uids(*pods):
    return [{"UID": entry["metadata"]["uid"]} for entry in pods]


@pytest.mark.parametrize("whole", [False, True], ids=["meta victims", "whole victims"])
def test_enough_victims_are_kept_as_they_are(extender, whole):
    """Victims that free one GPU pass through."""
    a, b, *_ = full_node(extender, "half", "half", "whole")
    answer = ask(extender, pod("whole", priority=10), {"n1": [a, b]}, whole=whole)
    assert {"n1": {"Pods": uids(a, b), "NumPDBViolations": 0}} == answer


def test_victims_on_two_gpus_are_completed_on_one(extender):
    """Two halves on two GPUs are not a whole one: one is spared, and its GPU's neighbour is not."""
    a, _, c, _ = full_node(extender, "half", "half", "half", "half")
    answer = ask(extender, pod("whole", priority=10), {"n1": [a, c]})
    chosen = {entry["UID"] for entry in answer["n1"]["Pods"]}
    gpus = [{p["uid"] for p in gpu["pods"]} for gpu in extender.gpus("n1")]
    assert chosen in gpus
    assert answer["n1"]["Pods"][0]["UID"] in {a["metadata"]["uid"], c["metadata"]["uid"]}


@pytest.mark.parametrize(("cpu", "count"), [("7", 1), ("14", 2)])
def test_a_victim_on_another_gpu_is_spared_unless_its_vcpus_are_needed(extender, cpu, count):
    """The node has 16 vCPUs and two GPUs, each with a pod of 7; the least important one goes."""
    low, high = (pod("whole", requests={"cpu": "7"}, priority=p) for p in (1, 2))
    extender.place(low, "n1")
    extender.place(high, "n1")
    pending = pod("whole", requests={"cpu": cpu}, priority=10)
    answer = ask(extender, pending, {"n1": [high, low]})
    assert uids(high, low)[2 - count :] == answer["n1"]["Pods"]


def test_an_unhealthy_gpu_spares_no_victim(extender):
    """The node has no percent of it: kube-scheduler counts those of healthy GPUs alone."""
    gpus = json.dumps([gpu(0, "n1"), gpu(1, "n1"), gpu(2, "n1", healthy=False)])
    extender.on_loop(extender.service.state.nodes.upsert, node("n1", inventory=gpus))
    small, large = pod("tenth", priority=1), pod("whole", priority=2)
    extender.place(small, "n1")
    full_node(extender, "half", priority=50)
    extender.place(large, "n1")
    pending = pod("half", requests={f"{GROUP}/gpu-percent": "100"}, priority=10)
    answer = ask(extender, pending, {"n1": [large, small]})
    assert uids(large) == answer["n1"]["Pods"]


@pytest.mark.parametrize(("allowed", "violations"), [(0, 2), (1, 1), (2, 0)])
def test_violations_are_those_of_the_victims_that_remain(extender, allowed, violations):
    """Three victims are proposed and one is spared: it violates no budget."""
    a, b, c, _ = full_node(extender, "half", "half", "half", "half", labels=GUARDED)
    guard(extender, allowed=allowed)
    guard(extender, allowed=0, namespace="elsewhere")
    answer = ask(extender, pod("whole", priority=10), {"n1": [a, b, c]})
    assert {"n1": {"Pods": uids(a, b), "NumPDBViolations": violations}} == answer


def test_added_victims_count_as_violations(extender):
    """kube-scheduler counted what it proposed; the added victim violates a budget, too."""
    full_node(extender, "half", "half", "half", "half", labels=GUARDED)
    guard(extender, allowed=0)
    answer = ask(extender, pod("whole", priority=10), {"n1": []})
    assert len(answer["n1"]["Pods"]) == answer["n1"]["NumPDBViolations"] == 2


def test_a_victim_that_violates_no_budget_goes_first(extender):
    """Even if it is more important; the guarded pod and its neighbour remain."""
    full_node(extender, "half", labels=GUARDED)
    (free,) = full_node(extender, "half", priority=5)
    full_node(extender, "whole", priority=50)
    guard(extender, allowed=0)
    answer = ask(extender, pod("half", priority=10), {"n1": []})
    assert {"n1": {"Pods": uids(free), "NumPDBViolations": 0}} == answer


def test_a_gpu_whose_pods_violate_no_budget_is_preferred(extender):
    """The pods of the other GPU are as important."""
    full_node(extender, "whole", labels=GUARDED)
    (free,) = full_node(extender, "whole", priority=1)
    guard(extender, allowed=0)
    answer = ask(extender, pod("whole", priority=10), {"n1": []})
    assert {"n1": {"Pods": uids(free), "NumPDBViolations": 0}} == answer


def test_the_most_important_victim_is_first(extender):
    """kube-scheduler reads the highest priority from the first victim, an added one or not."""
    low, high = pod("half", priority=1), pod("half", priority=5)
    extender.place(low, "n1")
    extender.place(high, "n1")
    full_node(extender, "whole", priority=50)
    answer = ask(extender, pod("whole", priority=10), {"n1": [low]})
    assert uids(high, low) == answer["n1"]["Pods"]


def test_equals_are_not_evicted(extender):
    """Pods of the same or a higher priority are not victims, so the node is not in the answer."""
    a, _, c, _ = full_node(extender, "half", "half", "half", "half", priority=10)
    assert ask(extender, pod("whole", priority=10), {"n1": [a]}) == {}
    assert ask(extender, pod("whole", priority=10), {"n1": [a, c]}) == {}


def test_the_least_important_goes_first(extender):
    """The victim of lowest priority is added."""
    low, high = pod("half", priority=1), pod("half", priority=5)
    extender.place(high, "n1")
    extender.place(low, "n1")
    extender.place(second := pod("whole", priority=50), "n1")
    answer = ask(extender, pod("half", priority=10), {"n1": []})
    assert uids(low) == answer["n1"]["Pods"]
    assert uids(second)[0] not in answer["n1"]["Pods"]


def test_a_pod_that_has_vanished_is_no_victim(extender):
    """kube-scheduler has no such pod; its share is free after its grace period, not before."""
    a, vanished = full_node(extender, "half", "half")
    full_node(extender, "whole", priority=20)
    raw = trim_pod(extender.stored_pod(vanished))
    extender.on_loop(extender.service.state.pods.delete, raw)
    assert ask(extender, pod("whole", priority=10), {"n1": [a]}) == {}
    answer = ask(extender, pod("half", priority=10), {"n1": [a, vanished]})
    assert uids(a)[0] in answer["n1"]["Pods"]


def test_no_node_without_a_victim(extender):
    """kube-scheduler treats a node without victims as an error; a node with room is left out."""
    assert ask(extender, pod("half", priority=10), {"n1": [], "n2": []}) == {}


def test_unknown_and_gpuless_nodes_are_left_out(extender):
    """Eviction frees nothing there."""
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
    """A pod that cannot be planned gets no node, so no pod is evicted for it."""
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
    """A request without nodes has an empty answer."""
    answer = shared.post("preempt", {"Pod": pod("half")} | question)
    assert answer == {"NodeNameToMetaVictims": {}}


@pytest.fixture
def halves(extender):
    """Bind two pods on each GPU of n1; return those of the first GPU, then the others."""
    pods = full_node(extender, "half", "half", "half", "half")
    by_uid = {entry["metadata"]["uid"]: entry for entry in pods}
    first, second = extender.gpus("n1")
    return [[by_uid[held["uid"]] for held in gpu["pods"]] for gpu in (first, second)]


def test_a_repeated_call_names_the_victims_that_remain(extender, halves):
    """One has ended, and kube-scheduler does not see yet that the other one terminates."""
    (a, b), others = halves
    high = pod("whole", priority=10)
    assert ask(extender, high, {"n1": [a, b]})["n1"]["Pods"] == uids(a, b)
    assert ask(extender, high, {"n1": others})["n1"]["Pods"] == uids(a, b)
    extender.finish(b)
    for _ in range(2):
        assert ask(extender, high, {"n1": others})["n1"]["Pods"] == uids(a)


def test_a_call_after_the_end_of_all_victims_names_none_once(extender, halves):
    """kube-scheduler's cache may be late; if it needs more, by its own sums, it calls again."""
    (a, b), others = halves
    high = pod("whole", priority=10)
    assert ask(extender, high, {"n1": [a, b]})["n1"]["Pods"] == uids(a, b)
    extender.finish(a)
    extender.finish(b)
    assert ask(extender, high, {"n1": others}) == {}
    assert ask(extender, high, {"n1": others})["n1"]["Pods"]


def test_a_repeated_call_stays_on_the_node_where_victims_have_ended(extender, halves):
    """The first call named two nodes, and kube-scheduler evicts on one."""
    (a, b), _ = halves
    on_n2 = pod("whole")
    extender.place(on_n2, "n2")
    high = pod("whole", priority=10)
    answer = ask(extender, high, {"n1": [a, b], "n2": [on_n2]})
    assert answer.keys() == {"n1", "n2"}
    extender.finish(a)
    assert list(ask(extender, high, {"n1": [b], "n2": [on_n2]})) == ["n1"]
    extender.finish(b)
    assert ask(extender, high, {"n1": [], "n2": [on_n2]}) == {}


def test_a_repeated_call_names_no_other_node(extender, halves):
    """The victims of the first call are being evicted; those of another node would be too many."""
    (a, b), _ = halves
    on_n2 = pod("whole")
    extender.place(on_n2, "n2")
    high = pod("whole", priority=10)
    assert list(ask(extender, high, {"n1": [a, b]})) == ["n1"]
    assert list(ask(extender, high, {"n2": [on_n2], "n1": [a, b]})) == ["n1"]
    assert list(ask(extender, high, {"n2": [on_n2]})) == ["n2"]


def test_a_choice_that_suffices_no_longer_is_not_repeated(extender, halves):
    """A more important pod has taken what one of the victims had."""
    (a, b), others = halves
    high = pod("whole", priority=10)
    assert ask(extender, high, {"n1": [a, b]})["n1"]["Pods"] == uids(a, b)
    extender.finish(b)
    extender.place(pod("half", priority=20), "n1")
    assert ask(extender, high, {"n1": others})["n1"]["Pods"] == uids(*others)


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
