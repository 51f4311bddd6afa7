"""What changes between two of kube-scheduler's steps, or while pods wait."""

import json
import os
import signal

from tests.e2e.bed import PODS, plan_on
from tests.e2e.documents import API_VERSION, configuration, profile, workflow
from tests.testbed.api import wait_until
from tests.testbed.nodes import create_nodes, gpu_inventory, gpu_nodes
from tests.testbed.pods import function_pod

DOCUMENTS = [
    profile("whole", configuration(100)),
    profile("large", configuration(60)),
    profile("part", configuration(40)),
]
BY_HAND = {"scheduler_name": "nobody"}
"""Pods that kube-scheduler leaves to the test, which calls the extender in its place."""
PROFILES = f"/apis/{API_VERSION}/functionprofiles"
WORKFLOWS = f"/apis/{API_VERSION}/namespaces/default/workflows"


def asked(pod, *nodes):
    return {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)}


def test_a_pod_recreated_between_filter_and_bind_is_not_bound_by_the_old_call(esg):
    """The Binding is for a UID: the heir of the name is left alone, and nothing is held for it."""
    bed = esg(nodes=1, gpus=1, documents=DOCUMENTS)
    old = bed.create("pod", function="part", **BY_HAND)
    assert bed.call("filter", asked(old, "node-000"))["NodeNames"] == ["node-000"]
    bed.api.delete(f"{PODS}/pod", grace_s=0)
    heir = function_pod("pod", function="part", annotations={"mock-run": "forever"})
    heir["spec"]["schedulingGates"] = [{"name": "example.org/not-yet"}]
    uid = bed.api.create(heir)["metadata"]["uid"]

    error = bed.bind(old, "node-000")

    assert error
    assert bed.node_of("pod") == ""
    assert bed.wait_agreement() == {}
    assert bed.metric("esg_bind_total", result="refused") == 1
    bed.api.patch(f"{PODS}/pod", {"spec": {"schedulingGates": []}})
    bed.wait_bound("pod")
    assert bed.pod("pod")["metadata"]["uid"] == uid
    assert bed.wait_agreement().keys() == {"default/pod"}


def test_a_pod_deleted_between_filter_and_bind_holds_nothing(esg):
    """The bind call is refused, and the share is free for the next."""
    bed = esg(nodes=1, gpus=1, documents=DOCUMENTS)
    gone = bed.create("gone", function="whole", **BY_HAND)
    assert bed.call("filter", asked(gone, "node-000"))["NodeNames"] == ["node-000"]
    bed.api.delete(f"{PODS}/gone", grace_s=0)

    assert bed.bind(gone, "node-000")

    bed.create("next", function="whole")
    bed.wait_bound("next")
    assert bed.wait_agreement().keys() == {"default/next"}


def test_a_bind_call_is_repeated(esg):
    """The second call finds the first one done; another node is refused; the grant stays."""
    bed = esg(nodes=2, gpus=1, documents=DOCUMENTS)
    pod = bed.create("pod", function="part", **BY_HAND)

    assert bed.bind(pod, "node-000") == ""
    grant = bed.grant_of("pod")
    assert bed.bind(pod, "node-000") == ""
    assert "node-000" in bed.bind(pod, "node-001")

    assert bed.node_of("pod") == "node-000"
    assert bed.grant_of("pod") == grant
    assert bed.wait_agreement().keys() == {"default/pod"}


def test_a_bind_that_is_answered_too_late_is_settled_once(esg):
    """While nobody knows whether the Binding landed, its share is held and no other node offered.

    A later call ends it, and the pod is bound once.
    """
    bed = esg(
        nodes=2,
        gpus=1,
        documents=DOCUMENTS,
        environment={"ESG_API_TIMEOUT_S": "1", "ESG_ASSUMED_TTL_S": "3"},
    )
    pod = bed.create("pod", function="whole", **BY_HAND)
    server = bed.plane._named("kube-apiserver").pid
    # Leaves a connection open: on a new one the Binding would certainly not have been sent.
    assert bed.explain("pod")["nodes_that_hold_it"] == ["node-000", "node-001"]

    os.kill(server, signal.SIGSTOP)
    try:
        error = bed.bind(pod, "node-000")
        held = bed.snapshot_holds()
        answer = bed.call("filter", asked(pod, "node-000", "node-001"))
    finally:
        os.kill(server, signal.SIGCONT)

    assert "did not answer in time" in error
    assert held.keys() == {"default/pod"}
    assert answer["NodeNames"] == ["node-000"]
    assert "is under way" in answer["FailedAndUnresolvableNodes"]["node-001"]
    wait_until(lambda: bed.bind(pod, "node-000") == "", what="the pod is bound", pause_s=0.2)
    assert bed.node_of("pod") == "node-000"
    assert bed.wait_agreement().keys() == {"default/pod"}


def test_a_node_goes_and_another_comes(esg):
    """A node takes its holds out of the picture and brings them back; waiting pods go elsewhere."""
    bed = esg(nodes=2, gpus=1, documents=DOCUMENTS)
    for name in ("one", "other", "waits"):
        bed.create(name, function="whole")
        if name != "waits":
            bed.wait_bound(name)
    bed.wait_why("waits", "nodes are available")
    lost, kept = bed.node_of("one"), bed.node_of("other")

    bed.api.delete(f"/api/v1/nodes/{lost}")
    wait_until(lambda: bed.snapshot_holds().keys() == {"default/other"}, what="its hold is gone")
    assert bed.gpus(lost) == []

    # It returns, as after a restart of its machine, and its pod is still bound to it.
    create_nodes(bed.api, [node for node in gpu_nodes(2, 1) if node["metadata"]["name"] == lost])
    assert bed.wait_agreement().keys() == {"default/one", "default/other"}
    assert bed.node_of("waits") == ""

    bed.api.delete(f"/api/v1/nodes/{lost}")
    bed.api.delete(f"{PODS}/one", grace_s=0)
    create_nodes(bed.api, gpu_nodes(1, 1, name_prefix="new"))
    bed.wait_bound("waits")
    assert bed.node_of("waits") == "new-000"
    assert bed.node_of("other") == kept
    assert bed.wait_agreement().keys() == {"default/other", "default/waits"}


def test_a_gpu_falls_ill_and_recovers(esg):
    """Nothing more is put on an unhealthy GPU; what runs there keeps its share."""
    bed = esg(nodes=1, gpus=2, documents=DOCUMENTS)
    first, second = [gpu["uuid"] for gpu in gpu_inventory("node-000", 2)]
    bed.create("before", function="part")
    bed.wait_bound("before")
    assert bed.grant_of("before")["gpu"] == first

    set_unhealthy(bed, {0})
    for name in ("meanwhile-0", "meanwhile-1"):
        bed.create(name, function="part")
        bed.wait_bound(name)
        assert bed.grant_of(name)["gpu"] == second
    bed.create("later", function="part")
    bed.wait_why("later", "GPU 1: 20 percent free, 40 percent asked")
    set_unhealthy(bed, {0, 1})
    assert bed.pod("before")["status"]["phase"] == "Running"
    assert len(bed.wait_agreement()) == 3
    bed.wait_why("later", "its GPUs of a fitting model are unhealthy (GPU 0, 1)")

    set_unhealthy(bed, {1})
    bed.wait_bound("later")
    assert bed.grant_of("later")["gpu"] == first
    assert len(bed.wait_agreement()) == 4


def set_unhealthy(bed, indices):
    """What the agent writes, and has been read when this returns."""
    inventory = gpu_inventory("node-000", 2, unhealthy=frozenset(indices))
    notes = {"esg-scheduler.io/gpus": json.dumps(inventory)}
    bed.api.patch("/api/v1/nodes/node-000", {"metadata": {"annotations": notes}})
    wait_until(
        lambda: {gpu["index"] for gpu in bed.gpus("node-000") if not gpu["healthy"]} == indices,
        what=f"GPUs {indices} known to be unhealthy",
    )


def test_a_profile_changes_while_a_pod_waits(esg):
    """The pod is bound by the profile as it is then, into room that was too small before.

    kube-scheduler does not watch our documents: the pod is tried again at the next event of the
    cluster, here the end of an ordinary pod.
    """
    bed = esg(nodes=1, gpus=1, documents=DOCUMENTS)
    bed.api.create(function_pod("plain", resources={"cpu": "1"}))
    bed.create("holds", function="large")
    bed.wait_bound("plain", "holds")
    bed.create("waits", function="large")
    bed.wait_why("waits", "40 percent free, 60 percent asked")

    changed = profile("large", configuration(30, memory_mib=3_000, latency_ms=250))
    bed.api.patch(f"{PROFILES}/large", {"spec": changed["spec"]})
    wait_until(
        lambda: bed.explain("waits")["nodes_that_hold_it"] == ["node-000"], what="profile known"
    )
    bed.api.delete(f"{PODS}/plain")

    bed.wait_bound("waits")
    grant = bed.grant_of("waits")
    assert (grant["gpu-percent"], grant["gpu-memory"]) == ("30", "0=3000M")
    assert (plan_on(grant)["gpu_percent"], plan_on(grant)["stage_ms"]) == (30, 250)
    assert plan_on(bed.grant_of("holds"))["gpu_percent"] == 60
    assert {name: hold[1] for name, hold in bed.wait_agreement().items()} == {
        "default/holds": 60,
        "default/waits": 30,
    }


def test_a_workflow_is_deleted_and_comes_again(esg):
    """Its pods wait, told what is missing, and are bound when it is there."""
    document = workflow("flow", "part")
    bed = esg(nodes=1, gpus=1, documents=[*DOCUMENTS, document])
    bed.api.delete(f"{WORKFLOWS}/flow")
    wait_until(lambda: not bed.get("/v1/snapshot").json()["workflows"], what="it is gone here too")
    bed.create("pod", workflow="flow", stage="part")

    told = bed.wait_why("pod", "flow")

    assert "workflow" in told.lower()
    assert bed.explain("pod")["error"] in told
    bed.api.create(document)
    bed.wait_bound("pod")
    assert plan_on(bed.grant_of("pod"))["gpu_percent"] == 40
