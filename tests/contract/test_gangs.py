"""Promises at filter to the members of a gang, which kube-scheduler filters before it binds one."""

import asyncio
from types import SimpleNamespace

import pytest

from scheduler.cluster.resource import trim_pod
from scheduler.extender.promises import BINDING_S, MEMBERS_MAX, PASS_S
from scheduler.planning.pods import describe
from tests.extender.factories import pod
from tests.extender.harness import Clock

PROMISED = "GPU shares are promised to pods that are placed now"


@pytest.fixture
def monotonic(extender):
    """Monotonic time of the service's state; it stands still until it is moved."""
    clock = Clock(1_000.0)
    extender.on_loop(setattr, extender.service.state, "monotonic", clock)
    return clock


@pytest.fixture
def gangs(extender, monotonic):
    """The service with n1 and n2 of two GPUs each."""
    return extender


def member(gang="g", function="whole", **options):
    """A pod of a gang, as kube-scheduler sends it to filter and preempt."""
    raw = pod(function, **options)
    raw["spec"]["schedulingGroup"] = {"podGroupName": gang}
    return raw


def passing(extender, raw, *nodes):
    answer = extender.filter(raw, *(nodes or ("n1",)))
    assert answer["Error"] == ""
    return answer["NodeNames"]


def refused_for_promise(extender, raw, *nodes):
    return PROMISED in extender.filter(raw, *(nodes or ("n1",)))["Error"]


def test_members_share_no_room_before_any_is_bound(gangs):
    """Three members on two GPUs: the third is refused, finally, and the ledger is empty."""
    assert [passing(gangs, member(), "n1") for _ in range(2)] == [["n1"], ["n1"]]
    answer = gangs.filter(member(), "n1")
    assert (answer["NodeNames"], answer["Error"], list(answer["FailedNodes"])) == ([], "", ["n1"])
    assert [gpu["pods"] for gpu in gangs.gpus("n1")] == [[], []]


def test_one_node_passes_for_a_member(gangs):
    """The promise is on the node that kube-scheduler must choose."""
    nodes = [passing(gangs, member(), "n1", "n2") for _ in range(4)]
    assert sorted(node for [node] in nodes) == ["n1", "n1", "n2", "n2"]
    assert gangs.filter(member(), "n1", "n2")["NodeNames"] == []


def test_without_a_group_nothing_is_promised(gangs):
    """Pods that are filtered and not bound take no room from one another; all nodes pass."""
    answers = [gangs.filter(pod("whole"), "n1", "n2") for _ in range(6)]
    assert answers == [answers[0]] * 6
    assert answers[0]["NodeNames"] == ["n1", "n2"]


@pytest.mark.parametrize("group", [None, {}, {"podGroupName": ""}, {"podGroupName": 7}, "g", []])
def test_what_names_no_group_is_no_gang(gangs, group):
    """A malformed field is left to the API server."""
    raws = [pod("whole") for _ in range(3)]
    for raw in raws:
        raw["spec"]["schedulingGroup"] = group
    assert [passing(gangs, raw) for raw in raws] == [["n1"]] * 3


def test_other_pods_are_told_to_retry_until_the_promises_end(gangs, monotonic):
    """The refusal is an error, after which kube-scheduler retries; no event would make it retry."""
    first = member()
    passing(gangs, first)
    passing(gangs, member())
    assert refused_for_promise(gangs, pod("whole"))
    monotonic.now_s += PASS_S - 0.01
    assert refused_for_promise(gangs, pod("tenth"))
    monotonic.now_s += 0.01
    assert passing(gangs, pod("whole")) == ["n1"]


def test_a_refusal_without_promises_stays_a_refusal(gangs):
    """A pod that would not fit anyway is refused as before, and kube-scheduler may preempt."""
    gangs.place(pod("whole"), "n1")
    gangs.place(pod("whole"), "n1")
    passing(gangs, member(), "n2")
    answer = gangs.filter(pod("whole"), "n1")
    assert (answer["Error"], list(answer["FailedNodes"])) == ("", ["n1"])


def test_a_nominated_pod_keeps_its_nomination(gangs):
    """An error would remove it."""
    for _ in range(2):
        passing(gangs, member())
    waiting = pod("whole")
    waiting["status"]["nominatedNodeName"] = "n1"
    answer = gangs.filter(waiting, "n1")
    assert (answer["Error"], list(answer["FailedNodes"])) == ("", ["n1"])


def test_a_member_that_comes_again_after_others_begins_a_new_pass(gangs):
    """The attempt before has failed: its promises take nothing from the gang itself."""
    members = [member() for _ in range(3)]
    for _ in range(3):
        assert [passing(gangs, raw) for raw in members] == [["n1"], ["n1"], []]


def test_a_member_twice_in_a_row_is_in_the_same_pass(gangs):
    """It is tried on its nominated node first, then on all; the others keep their promises."""
    first, second = member(), member()
    passing(gangs, first, "n1")
    assert passing(gangs, second, "n1") == ["n1"]
    assert passing(gangs, second, "n1", "n2") != []
    assert passing(gangs, second, "n2") == ["n2"]
    third = member()
    assert passing(gangs, third, "n1") == ["n1"]
    assert passing(gangs, member(), "n1") == []


def test_the_pass_that_promised_the_bound_node_counts(gangs):
    """kube-scheduler passes over the gang for each rack, then binds it in one of them."""
    members = [member() for _ in range(2)]
    for rack in ("n1", "n2"):
        assert [passing(gangs, raw, rack) for raw in members] == [[rack], [rack]]
    assert refused_for_promise(gangs, pod("whole"), "n1", "n2")
    assert gangs.bind(members[0], "n1") == ""
    assert passing(gangs, pod("whole"), "n1", "n2") == ["n2"]
    assert refused_for_promise(gangs, pod("whole"), "n1")
    assert gangs.bind(members[1], "n1") == ""


def test_the_others_keep_their_promises_after_the_first_bind(gangs, monotonic):
    """A member may wait for volumes; a member that is filtered again is alone."""
    members = [member(function="half") for _ in range(4)]
    for raw in members:
        passing(gangs, raw)
    assert gangs.bind(members[0], "n1") == ""
    monotonic.now_s += BINDING_S - 0.01
    assert passing(gangs, members[1]) == ["n1"]
    assert refused_for_promise(gangs, pod("half"))
    monotonic.now_s += PASS_S
    assert passing(gangs, pod("half")) == ["n1"]
    assert [gangs.bind(raw, "n1") for raw in members[1:]] == ["", "", ""]


def test_a_bound_gang_leaves_no_promise(gangs):
    """The rest of the GPU is free for others at once."""
    members = [member(function="half") for _ in range(2)]
    for raw in members:
        passing(gangs, raw)
    for raw in members:
        assert gangs.bind(raw, "n1") == ""
    assert passing(gangs, pod("whole")) == ["n1"]


def test_a_bind_respects_promises(gangs):
    """A pod that was filtered before the gang, and is bound after it, must not break the gang."""
    early = pod("whole")
    passing(gangs, early)
    members = [member(), member()]
    for raw in members:
        passing(gangs, raw)
    assert "node n1" in gangs.bind(early, "n1")
    assert [gangs.bind(raw, "n1") for raw in members] == ["", ""]


@pytest.mark.parametrize("end", ["deleted", "bound by another process"])
def test_a_member_that_does_not_wait_any_more_has_no_promise(gangs, end):
    """Its promise ends with it, once the watch is as new as the filter call."""
    gone = member()
    gone["metadata"]["resourceVersion"] = "7"
    passing(gangs, gone, "n1")
    passing(gangs, member(), "n1")
    assert refused_for_promise(gangs, pod("whole"))
    if end == "deleted":
        gangs.delete(gone)
    else:
        bound = trim_pod(gone | {"spec": gone["spec"] | {"nodeName": "n2"}})
        gangs.on_loop(gangs.service.state.pods.upsert, bound)
    assert passing(gangs, pod("whole")) == ["n1"]


def test_a_gang_that_meets_another_ones_promise_gives_its_own_up(gangs):
    """An error ends the attempt of the whole gang, so that two gangs do not wait for each other."""
    for _ in range(3):
        passing(gangs, member("first"), "n1", "n2")
    assert passing(gangs, member("second"), "n1", "n2") != []
    assert refused_for_promise(gangs, member("second"), "n1", "n2")
    assert passing(gangs, pod("whole"), "n1", "n2") != []


def test_the_same_name_in_another_namespace_is_another_gang(gangs):
    """A PodGroup belongs to a namespace."""
    members = [member(), member()]
    members[1]["metadata"]["namespace"] = "other"
    passing(gangs, members[0])
    passing(gangs, members[1])
    assert refused_for_promise(gangs, member())


def test_preempt_sees_promises(gangs):
    """A victim's share helps no pod that needs what is promised beside it, too."""
    low = pod("half", priority=0)
    gangs.place(low, "n1")
    gangs.place(pod("whole", priority=20), "n1")
    high = pod("whole", priority=10)
    victims = {"n1": {"Pods": [{"UID": low["metadata"]["uid"]}], "NumPDBViolations": 0}}
    call = {"Pod": high, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    passing(gangs, member(function="half"))
    assert gangs.post("preempt", call)["NodeNameToMetaVictims"] == {}
    gangs.on_loop(gangs.service.scheduler.promises.clear)
    assert gangs.post("preempt", call)["NodeNameToMetaVictims"] == victims


def test_a_new_owner_starts_without_promises(gangs, monkeypatch):
    """Another process may have placed the gangs meanwhile."""
    for _ in range(2):
        passing(gangs, member())
    assert refused_for_promise(gangs, pod("whole"))
    service = gangs.service

    async def take_over():
        return 0.0

    monkeypatch.setattr(service, "_voider", SimpleNamespace(take_over=take_over))
    assert asyncio.run(service._take_over()) == 0.0
    assert passing(gangs, pod("whole")) == ["n1"]


@pytest.mark.slow
def test_promises_are_bounded(gangs):
    """A client that invents gangs and members costs a bounded number of them."""
    promises = gangs.service.scheduler.promises

    def flood():
        for number in range(MEMBERS_MAX + 100):
            promises.begin(describe(member(f"g{number % 7}", function="tenth")))
        return promises.member_count()

    assert gangs.on_loop(flood) <= MEMBERS_MAX
