"""The GPU that an eviction frees is held for its preemptor, before pods of no higher priority."""

import copy

import pytest

from scheduler.cluster.resource import trim_pod
from scheduler.ledger.reservation import Reservation
from tests.extender.factories import pod


@pytest.fixture
def preempted(extender):
    """GPU 0 of n1 has a pod that is evicted for `high`, GPU 1 another; return both first ones."""
    low, neighbour = pod("whole", priority=0), pod("whole", priority=20)
    extender.place(low, "n1")
    extender.place(neighbour, "n1")
    high = pod("whole", priority=10, requests={"cpu": "1"})
    assert extender.filter(high, "n1")["NodeNames"] == []
    meta = {"n1": {"Pods": [{"UID": low["metadata"]["uid"]}], "NumPDBViolations": 0}}
    answer = extender.post(
        "preempt",
        {"Pod": high, "NodeNameToVictims": None, "NodeNameToMetaVictims": meta},
    )
    assert answer["NodeNameToMetaVictims"] == meta
    nominate(extender, high, "n1")
    return low, high


def nominate(extender, raw, node):
    """Write the node into the pod's status, as kube-scheduler does; None clears it."""
    raw = trim_pod(copy.deepcopy(raw) | {"status": {"nominatedNodeName": node}})
    extender.on_loop(extender.service.state.pods.upsert, raw)


@pytest.mark.parametrize("priority", [-5, 0, 10])
def test_freed_share_is_held_against_pods_of_no_higher_priority(extender, preempted, priority):
    """kube-scheduler retries the others too when the victim ends, and may do so first."""
    low, high = preempted
    extender.finish(low)
    half = pod("half", priority=priority)
    refused = extender.filter(half, "n1")
    assert refused["NodeNames"] == []
    assert "n1" in refused["FailedNodes"]
    assert extender.bind(half, "n1") != ""
    assert extender.place(high, "n1")["gpu_percent"] == 100


def test_pod_of_higher_priority_takes_it(extender, preempted):
    """The first one preempts again; its priority decides."""
    low, _ = preempted
    extender.finish(low)
    extender.place(pod("half", priority=11), "n1")


@pytest.mark.parametrize("end", ["not nominated", "nominated elsewhere", "deleted", "bound"])
def test_hold_ends(extender, preempted, end):
    """Nothing stays reserved for a pod that does not wait for this node."""
    low, high = preempted
    extender.finish(low)
    if end == "bound":
        extender.place(high, "n1")
        extender.finish(high)
    elif end == "deleted":
        extender.delete(high)
    else:
        nominate(extender, high, None if end == "not nominated" else "n2")
    extender.place(pod("half"), "n1")


def test_other_gpus_of_the_node_are_free(extender):
    """Only the GPU that preempt chose is held."""
    low, half = pod("whole"), pod("half")
    extender.place(low, "n1")
    extender.place(half, "n1")
    high = pod("whole", priority=10)
    assert extender.filter(high, "n1")["NodeNames"] == []
    meta = {"n1": {"Pods": [{"UID": low["metadata"]["uid"]}], "NumPDBViolations": 0}}
    extender.post(
        "preempt", {"Pod": high, "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}
    )
    nominate(extender, high, "n1")
    extender.finish(low)
    before = extender.gpus("n1")
    extender.place(pod("half"), "n1")
    assert extender.filter(pod("tenth"), "n1")["NodeNames"] == []
    assert extender.place(high, "n1")["gpu_percent"] == 100
    assert [gpu["uuid"] for gpu in before] == [gpu["uuid"] for gpu in extender.gpus("n1")]


def test_two_preemptors_do_not_get_the_same_gpu(extender, preempted):
    """The victims of the first one still run; each would hold its share against the other."""
    low, high = preempted
    second = pod("half", priority=10)
    meta = {"n1": {"Pods": [{"UID": low["metadata"]["uid"]}], "NumPDBViolations": 0}}
    answer = extender.post(
        "preempt", {"Pod": second, "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}
    )
    assert answer["NodeNameToMetaVictims"] == {}
    nominate(extender, second, "n1")
    extender.finish(low)
    extender.place(high, "n1")


def test_a_preemptor_that_is_being_bound_counts_once(extender):
    """Its reservation replaces what is held for it: others fit beside it at once."""
    low, high = pod("whole", priority=0), pod("half", priority=10)
    extender.place(low, "n1")
    extender.place(pod("whole", priority=20), "n1")
    assert extender.filter(high, "n1")["NodeNames"] == []
    meta = {"n1": {"Pods": [{"UID": low["metadata"]["uid"]}], "NumPDBViolations": 0}}
    arguments = {"Pod": high, "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}
    assert extender.post("preempt", arguments)["NodeNameToMetaVictims"] == meta
    nominate(extender, high, "n1")
    [gpu] = [
        gpu["uuid"]
        for gpu in extender.gpus("n1")
        if gpu["pods"][0]["uid"] == low["metadata"]["uid"]
    ]
    extender.finish(low)
    reservation = Reservation(
        uid=high["metadata"]["uid"],
        namespace="default",
        name=high["metadata"]["name"],
        node="n1",
        cpu_milli=1000,
        gpu_uuid=gpu,
        gpu_percent=50,
        memory_mib=1000,
    )
    extender.on_loop(extender.service.state.ledger.assume, reservation)
    assert extender.filter(pod("half"), "n1")["NodeNames"] == ["n1"]
