"""Pools: slices that holders have, and members that run in them and hold no percent."""

import json
from dataclasses import replace

import pytest

from scheduler.extender.replay import replay
from tests.extender.factories import GROUP, pod

SHARE = f"{GROUP}/gpu-percent"
DELETED = {"deletionTimestamp": "2027-01-15T08:00:00Z"}


def holder(percent=50, cpu="4", **changed):
    """Create the holder of a slice."""
    return pod(labels={f"{GROUP}/pool": "holder"}, requests={"cpu": cpu, SHARE: percent}, **changed)


def member(function="tenth", percent=10, **changed):
    """Create a member, as the webhook mutates one."""
    return pod(
        function,
        labels={f"{GROUP}/pool": "member"},
        requests={"cpu": "0", SHARE: "0"},
        annotations={"configuration": json.dumps({"batch": 1, "cpu": 1, "gpuPercent": percent})},
        **changed,
    )


def seen(extender, bound, **metadata):
    """Have the watch show the bound pod, changed."""
    raw = extender.stored_pod(bound)
    raw = raw | {"metadata": raw["metadata"] | metadata}
    extender.on_loop(extender.service.state.pods.upsert, raw)


def place(extender, pending, node):
    """Place the pod, and have the watch show it."""
    grant = extender.place(pending, node)
    seen(extender, pending)
    return grant


def refusal(extender, pending, node="n1"):
    answer = extender.filter(pending, node)
    assert answer["NodeNames"] == []
    return (answer["FailedNodes"] | answer["FailedAndUnresolvableNodes"])[node]


def test_a_holder_has_percent_and_vcpus_and_nothing_else(extender):
    """No memory and no MPS client; its grant says that it holds a slice."""
    grant = place(extender, holder(60), "n1")
    assert grant["pool"] == "holder"
    assert (grant["gpu_percent"], grant["memory_mib"], grant["plan"]["cpu"]) == (60, 0, 4)
    [first, second] = extender.gpus("n1")
    assert (first["free_percent"], second["free_percent"]) == (40, 100)
    assert first["free_memory_mib"] == second["free_memory_mib"]
    arrays = extender.service.state.ledger.fleet.arrays
    assert set(arrays.gpu_free_clients[:4].tolist()) == {48}


def test_a_member_has_memory_and_a_client_and_no_percent(extender):
    """Its annotations say its own percent, which its process gets from MPS."""
    place(extender, holder(50), "n1")
    grant = place(extender, member("half", 50), "n1")
    assert (grant["pool"], grant["gpu_percent"], grant["memory_mib"]) == ("member", 50, 4000)
    [gpu, _] = extender.gpus("n1")
    assert (gpu["free_percent"], gpu["free_memory_mib"]) == (50, 81_920 - 1_024 - 4_000)
    fleet = extender.service.state.ledger.fleet
    assert fleet.arrays.gpu_free_clients[fleet.gpu_row("n1", "GPU-n1-0")] == 47
    assert fleet.arrays.node_free_cpu_milli[fleet.node_row["n1"]] == 16_000 - 4_000


def test_members_above_a_hundred_percent_are_in_one_slice(extender):
    """Twelve processes of half a GPU share one half."""
    place(extender, holder(50), "n1")
    for _ in range(12):
        place(extender, member("half", 50), "n1")
    assert [gpu["free_percent"] for gpu in extender.gpus("n1")] == [50, 100]
    assert place(extender, pod("half"), "n1")["gpu_percent"] == 50


def test_a_member_is_bound_to_a_node_whose_vcpus_holders_have(extender):
    """Its runs have those of its slice, so it needs none beside them."""
    place(extender, holder(50, "16"), "n1")
    assert place(extender, member("half", 50), "n1")["pool"] == "member"


def test_members_are_spread_by_their_function(extender):
    """The GPU with the fewest members of the function comes first, then the most free memory."""
    slices = {}
    for node in ("n1", "n1", "n2"):
        place(extender, pending := holder(50), node)
        slices[extender.explain(pending)["granted"]["gpu"]] = node
    assert len(slices) == 3
    place(extender, member("half", 50), "n2")
    answer = {s["Host"]: s["Score"] for s in extender.prioritize(member("half", 50), "n1", "n2")}
    assert answer == {"n1": 10, "n2": 9}
    first = place(extender, member("half", 50), "n1")["gpu"]
    second = place(extender, member("half", 50), "n1")["gpu"]
    assert {first, second} == {"GPU-n1-0", "GPU-n1-1"}
    scores = extender.prioritize(member("tenth", 10), "n1", "n2")
    assert [score["Score"] for score in scores] == [10, 10]


@pytest.mark.parametrize(
    ("slice_percent", "cpu", "reason"),
    [
        (40, "4", "GPU 0: the slice has 40 percent and 4 vCPU, 50 percent and 1 vCPU asked"),
        (None, "4", "no slice of the pod's pool on this node"),
    ],
)
def test_a_member_that_no_slice_holds_is_refused_in_numbers(extender, slice_percent, cpu, reason):
    """The percent of a batch is at most that of the slice."""
    if slice_percent:
        place(extender, holder(slice_percent, cpu), "n1")
    assert refusal(extender, member("half", 50)) == reason
    assert reason in extender.bind(member_of(extender, "half", 50), "n1")


def member_of(extender, function, percent):
    """Create a member in the cluster, for a bind call without a filter call."""
    pending = member(function, percent)
    extender.create(pending)
    return pending


def test_a_slice_of_another_namespace_is_none(extender):
    """One pool of each namespace: it has one dispatcher."""
    foreign = holder(50)
    foreign["metadata"]["namespace"] = "other"
    place(extender, foreign, "n1")
    assert "no slice" in refusal(extender, member())


def of_group(pending, group="a"):
    """Give a pod the label of a group of gateways."""
    pending["metadata"]["labels"][f"{GROUP}/gateway-group"] = group
    return pending


def test_a_slice_of_another_group_is_none(extender):
    """Each group of a namespace has its pool, and the gateways without a group have one."""
    place(extender, of_group(holder(50)), "n1")
    for foreign in (member(), of_group(member(), "b")):
        assert "no slice of the pod's pool" in refusal(extender, foreign)
        extender.create(foreign)
        assert "no slice" in extender.bind(foreign, "n1")
    assert place(extender, of_group(member()), "n1")["group"] == "a"


def test_groups_share_a_gpu_up_to_a_hundred_percent(extender):
    """Each has a slice of it, and the sum of the slices is what the GPU has."""
    for group, percent in (("a", 60), ("b", 40)):
        place(extender, of_group(holder(percent), group), "n2")
        place(extender, of_group(member("tenth", 10), group), "n2")
    place(extender, pod("whole"), "n2")
    assert [gpu["free_percent"] for gpu in extender.gpus("n2")] == [0, 0]
    refused = refusal(extender, of_group(holder(20), "c"), "n2")
    assert "GPU 1: 0 percent free, 20 percent asked" in refused
    slices = extender.service.state.ledger.pools.slices()
    assert {(s.pool.group, s.percent, s.members, s.gpu_uuid) for s in slices} == {
        ("a", 60, 1, "GPU-n2-0"),
        ("b", 40, 1, "GPU-n2-0"),
    }


def test_a_member_evicts_no_holder_of_another_group(extender):
    """That frees no memory; the process of the other group does."""
    place(extender, of_group(holder(50, priority=100)), "n1")
    place(extender, of_group(holder(50, priority=0), "b"), "n1")
    victims = []
    while extender.filter(waiting := of_group(member(priority=10)), "n1")["NodeNames"]:
        victims.append(of_group(member(priority=1), "b"))
        place(extender, victims[-1], "n1")
    evicted = preempt(extender, waiting)
    assert len(evicted) == 1
    assert evicted[0] in {victim["metadata"]["uid"] for victim in victims}


def test_the_group_is_that_of_the_binding(extender):
    """A label that changes moves nothing to another pool, whose dispatcher knows no earlier run."""
    place(extender, held := of_group(holder(50)), "n1")
    labels = extender.stored_pod(held)["metadata"]["labels"]
    seen(extender, held, labels=labels | {f"{GROUP}/gateway-group": "b"})
    assert extender.filter(of_group(member(), "b"), "n1")["NodeNames"] == []
    assert extender.filter(of_group(member()), "n1")["NodeNames"] == ["n1"]


def test_a_holder_whose_binding_is_under_way_takes_no_member(extender):
    """The Binding may be refused; so the cluster has to show the holder bound."""
    extender.place(pending := holder(50), "n1")
    ledger = extender.service.state.ledger
    if not ledger.reservation(pending["metadata"]["uid"]).confirmed:
        assert "not seen bound yet" in refusal(extender, member())
    seen(extender, pending)
    assert extender.filter(member(), "n1")["NodeNames"] == ["n1"]


def leave_memory_for_one_member(extender, node):
    """Fill GPU 0 of the node, which has a slice, with members but for one of 4,000 MiB."""
    place(extender, holder(50), node)
    for _ in range(19):
        place(extender, member(), node)


def pass_one_node(extender):
    """Have filter pass the best node alone, which is the default."""
    state = extender.service.state
    settings = state.settings.model_copy(update={"filter_nodes_max": 1})
    extender.on_loop(setattr, state, "settings", settings)


def test_a_member_whose_binding_is_under_way_has_its_place(extender):
    """The Binding may arrive, although the cluster has not shown it."""
    leave_memory_for_one_member(extender, "n1")
    extender.place(member(), "n1")
    assert "896 MiB free, 4,000 asked" in refusal(extender, member())


def test_members_that_are_filtered_before_a_bind_share_no_place(extender):
    """kube-scheduler filters the next pod while the bind call of the last one waits (ADR 52)."""
    leave_memory_for_one_member(extender, "n1")
    pass_one_node(extender)
    first, second = member(), member()
    assert extender.filter(first, "n1")["NodeNames"] == ["n1"]
    answer = extender.filter(second, "n1")
    assert answer["NodeNames"] == []
    assert "promised to pods that are placed now; retrying" in answer["Error"]
    assert extender.filter(first, "n1")["NodeNames"] == ["n1"]
    assert extender.bind(first, "n1") == ""
    assert "896 MiB free, 4,000 asked" in refusal(extender, second)


def test_a_member_takes_the_place_that_no_other_is_promised(extender):
    """None of the bind calls is refused."""
    for node in ("n1", "n2"):
        leave_memory_for_one_member(extender, node)
    pass_one_node(extender)
    members = [member(), member()]
    nodes = [extender.filter(pending, "n1", "n2")["NodeNames"] for pending in members]
    assert sorted(nodes) == [["n1"], ["n2"]]
    assert [
        extender.bind(pending, *node) for pending, node in zip(members, nodes, strict=True)
    ] == ["", ""]


def test_a_promise_to_a_member_takes_no_percent(extender):
    """It runs in the percent of its slice."""
    place(extender, holder(50), "n1")
    assert extender.filter(member("half", 50), "n1")["NodeNames"] == ["n1"]
    assert place(extender, pod("half"), "n1")["gpu"] == "GPU-n1-0"


def test_a_refused_bind_ends_the_promise(extender):
    """A member that is tried again later keeps nobody away meanwhile."""
    leave_memory_for_one_member(extender, "n1")
    first = member()
    assert extender.filter(first, "n1")["NodeNames"] == ["n1"]
    assert "n2" in extender.bind(first, "n2")
    assert extender.filter(member(), "n1")["NodeNames"] == ["n1"]


def test_a_terminating_holder_takes_no_member_and_keeps_its_share(extender):
    """Also when its container has ended: batches may run in its slice for its grace period."""
    place(extender, ending := holder(50), "n1")
    seen(extender, ending, **DELETED)
    assert "the slice ends" in refusal(extender, member())
    assert "the slice ends" in extender.bind(member_of(extender, "tenth", 10), "n1")
    assert [gpu["free_percent"] for gpu in extender.gpus("n1")] == [50, 100]
    extender.finish(ending)
    assert "the slice ends" in refusal(extender, member())
    assert [gpu["free_percent"] for gpu in extender.gpus("n1")] == [50, 100]


def test_a_vanished_holder_takes_no_member_and_keeps_its_share_for_its_grace(extender):
    """Nobody has shown its end: batches may run in its slice (ADR 43)."""
    place(extender, gone := holder(50), "n1")
    extender.on_loop(extender.service.state.pods.vanish, gone["metadata"]["uid"])
    assert "the slice ends" in refusal(extender, member())
    assert [gpu["free_percent"] for gpu in extender.gpus("n1")] == [50, 100]


def test_a_pool_has_one_slice_of_a_gpu(extender):
    """A second holder goes to another GPU, and is refused where there is none."""
    grants = [place(extender, holder(30), "n1") for _ in range(2)]
    assert {grant["gpu"] for grant in grants} == {"GPU-n1-0", "GPU-n1-1"}
    assert "the pool has a slice of GPU" in refusal(extender, holder(30))


def test_a_holder_of_a_gpu_model_has_no_other(extender):
    """The annotation names the model."""
    named = holder(30)
    named["metadata"]["annotations"][f"{GROUP}/gpu-model"] = "Tesla T4"
    assert "its GPUs are NVIDIA A100-SXM4-80GB; the plan fits on Tesla T4" in refusal(
        extender, named
    )


def test_the_grant_decides_and_not_the_label(extender):
    """Labels may change after the Binding: a reserved pod stays one, whatever they say."""
    place(extender, reserved := pod("half"), "n1")
    labels = extender.stored_pod(reserved)["metadata"]["labels"]
    seen(extender, reserved, labels=labels | {f"{GROUP}/pool": "member"})
    assert [gpu["free_percent"] for gpu in extender.gpus("n1")] == [50, 100]
    place(extender, held := holder(30), "n1")
    seen(extender, held, labels={})
    assert extender.filter(member(), "n1")["NodeNames"] == ["n1"]


@pytest.mark.parametrize(
    ("labels", "requests", "annotations", "problem"),
    [
        ({"pool": "owner"}, {}, {}, "pool: 'owner' must be holder or member"),
        ({"pool": "holder", "function": "half"}, {"cpu": 2, SHARE: 50}, {}, "runs no function"),
        ({"pool": "holder"}, {"cpu": 2}, {}, "from 1 to 100; set esg-scheduler.io/gpu-percent (0)"),
        ({"pool": "holder"}, {SHARE: 50}, {}, "1 or more; set cpu (0)"),
        ({"pool": "member"}, {SHARE: 0}, {}, "set the label esg-scheduler.io/function"),
        ({"pool": "member", "function": "half"}, {SHARE: 0}, {}, "set the annotation"),
        (
            {"pool": "member", "function": "half"},
            {SHARE: 50},
            {"configuration": '{"batch": 1, "cpu": 1, "gpuPercent": 50}'},
            "remove its request esg-scheduler.io/gpu-percent (50)",
        ),
    ],
)  # fmt: skip
def test_a_wrong_pod_of_a_pool_is_refused_with_its_remedy(
    extender, labels, requests, annotations, problem
):
    """The message says what is wrong, where, and what to do."""
    wrong = pod(
        labels={f"{GROUP}/{name}": value for name, value in labels.items()},
        requests=requests,
        annotations=annotations,
    )
    assert problem in extender.filter(wrong, "n1")["Error"]


def preempt(extender, pending, *victims):
    """Call preempt for node n1 with these victims; return the UIDs of the answer."""
    meta = {"Pods": [{"UID": v["metadata"]["uid"]} for v in victims], "NumPDBViolations": 0}
    answer = extender.post("preempt", {"Pod": pending, "NodeNameToMetaVictims": {"n1": meta}})[
        "NodeNameToMetaVictims"
    ]
    return [victim["UID"] for victim in answer.get("n1", {}).get("Pods", [])]


def test_preemption_for_percent_evicts_a_holder_and_spares_its_members(extender):
    """A member frees no percent, even if it is the least important."""
    for _ in range(2):
        place(extender, pod("whole", priority=0), "n2")
    place(extender, pod("whole", priority=100), "n1")
    place(extender, held := holder(100, priority=1), "n1")
    place(extender, member("half", 50, priority=0), "n1")
    victims = preempt(extender, pod("whole", priority=10), held)
    assert victims == [held["metadata"]["uid"]]
    assert preempt(extender, pod("whole", priority=10)) == [held["metadata"]["uid"]]


def test_a_member_does_not_evict_its_own_holder(extender):
    """Its slice would go with it."""
    place(extender, held := holder(100, priority=0), "n1")
    assert preempt(extender, member(priority=10), held) == []


def test_a_snapshot_replays_the_decision_for_a_member(extender):
    """Slices are part of it, and which of them end."""
    place(extender, holder(40), "n1")
    place(extender, ending := holder(50), "n1")
    seen(extender, ending, **DELETED)
    extender.create(pending := member("half", 50))
    [explanation] = replay(extender.get("/v1/snapshot"))
    assert explanation["infeasible_nodes"] == extender.explain(pending)["infeasible_nodes"]
    assert explanation["infeasible_nodes"]["n1"] == (
        "GPU 0: the slice has 40 percent and 4 vCPU, 50 percent and 1 vCPU asked; "
        "GPU 1: the slice ends, or its holder is not seen bound yet"
    )


def test_a_snapshot_replays_a_holder_whose_binding_is_under_way(extender):
    """Its slice takes no member yet, as in the live service."""
    extender.place(pending := holder(50), "n1")
    ledger = extender.service.state.ledger
    bound = ledger.reservation(pending["metadata"]["uid"])
    extender.on_loop(ledger.adopt, replace(bound, assumed_at_s=0.0))
    waiting = member()
    extender.create(waiting)
    live = extender.explain(waiting)
    assert "not seen bound yet" in live["infeasible_nodes"]["n1"]
    [explanation] = replay(extender.get("/v1/snapshot"))
    assert explanation == live


def test_a_snapshot_replays_the_slices_of_groups(extender):
    """A slice is that of its group there, too."""
    place(extender, of_group(holder(50)), "n1")
    extender.create(own := of_group(member("half", 50)))
    extender.create(foreign := member("half", 50))
    replayed = {e["uid"]: e for e in replay(extender.get("/v1/snapshot"))}
    for pending, nodes in ((own, ["n1"]), (foreign, [])):
        assert replayed[pending["metadata"]["uid"]]["feasible_nodes"] == nodes
        assert extender.explain(pending)["feasible_nodes"] == nodes


def test_slices_are_in_the_metrics(extender):
    """Percent of each slice, and its members."""
    place(extender, holder(50), "n1")
    place(extender, member(), "n1")
    text = extender.client.get("/metrics").text
    labels = '{namespace="default",group="",node="n1",gpu="GPU-n1-0"}'
    assert f"esg_gpu_slice_ratio{labels} 0.5\n" in text
    assert f"esg_gpu_slice_members{labels} 1\n" in text
