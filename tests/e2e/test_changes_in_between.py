"""Changes between two of kube-scheduler's steps, or while pods wait."""

import json

from tests.e2e.documents import API_VERSION, configuration, profile, workflow
from tests.e2e.harness import PODS, plan_on
from tests.testbed.api import wait_until
from tests.testbed.control_plane import API_SERVER
from tests.testbed.nodes import create_nodes
from tests.testbed.pods import function_pod
from workbench.cluster.mocked_nodes import gpu_inventory, gpu_nodes

DOCUMENTS = [
    profile("whole", configuration(100)),
    profile("large", configuration(60)),
    profile("part", configuration(40)),
]
BY_HAND = {"scheduler_name": "nobody"}
"""Options of pods that kube-scheduler ignores: the test calls the extender in its place."""
PROFILES = f"/apis/{API_VERSION}/functionprofiles"
WORKFLOWS = f"/apis/{API_VERSION}/namespaces/default/workflows"


def filter_call(pod, *nodes):
    return {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)}


def test_a_pod_recreated_between_filter_and_bind_is_not_bound_by_the_old_call(esg):
    """The Binding names a UID: the new pod of that name stays unbound and reserves nothing."""
    harness = esg(nodes=1, gpus=1, documents=DOCUMENTS)
    old = harness.create("pod", function="part", **BY_HAND)
    assert harness.call("filter", filter_call(old, "node-000"))["NodeNames"] == ["node-000"]
    harness.api.delete(f"{PODS}/pod", grace_s=0)
    recreated = function_pod("pod", function="part", annotations={"mock-run": "forever"})
    recreated["spec"]["schedulingGates"] = [{"name": "example.org/not-yet"}]
    uid = harness.api.create(recreated)["metadata"]["uid"]

    error = harness.bind(old, "node-000")

    assert error
    assert harness.node_of("pod") == ""
    assert harness.wait_agreement() == {}
    assert harness.metric_count("esg_bind_total", result="refused") == 1
    harness.api.patch(f"{PODS}/pod", {"spec": {"schedulingGates": []}})
    harness.wait_bound("pod")
    assert harness.pod("pod")["metadata"]["uid"] == uid
    assert harness.wait_agreement().keys() == {"default/pod"}


def test_a_pod_deleted_between_filter_and_bind_reserves_nothing(esg):
    """The bind call is refused, and the share is free for the next pod."""
    harness = esg(nodes=1, gpus=1, documents=DOCUMENTS)
    gone = harness.create("gone", function="whole", **BY_HAND)
    assert harness.call("filter", filter_call(gone, "node-000"))["NodeNames"] == ["node-000"]
    harness.api.delete(f"{PODS}/gone", grace_s=0)

    assert harness.bind(gone, "node-000")

    harness.create("next", function="whole")
    harness.wait_bound("next")
    assert harness.wait_agreement().keys() == {"default/next"}


def test_a_bind_call_is_repeated(esg):
    """A second call succeeds without a change; a call for another node is refused."""
    harness = esg(nodes=2, gpus=1, documents=DOCUMENTS)
    pod = harness.create("pod", function="part", **BY_HAND)

    assert harness.bind(pod, "node-000") == ""
    grant = harness.grant_of("pod")
    assert harness.bind(pod, "node-000") == ""
    assert "node-000" in harness.bind(pod, "node-001")

    assert harness.node_of("pod") == "node-000"
    assert harness.grant_of("pod") == grant
    assert harness.wait_agreement().keys() == {"default/pod"}


def test_a_bind_with_a_late_answer_is_reconciled_once(esg):
    """While the Binding's outcome is unknown, its share is reserved and no other node passes.

    A later call reconciles it, and the pod is bound once. With an owner Lease, an API server that
    does not answer may get no Binding at all: the Lease is renewed first.
    """
    harness = esg(
        nodes=2,
        gpus=1,
        documents=DOCUMENTS,
        environment={
            "ESG_API_TIMEOUT_S": "1",
            "ESG_ASSUMED_TTL_S": "3",
            "ESG_OWNER_LEASE_NAMESPACE": "",
        },
    )
    pod = harness.create("pod", function="whole", **BY_HAND)
    server = harness.plane.named(API_SERVER)
    # Opens a connection: on a new one the Binding would certainly not be sent.
    assert harness.explain("pod")["feasible_nodes"] == ["node-000", "node-001"]

    with server.paused():
        error = harness.bind(pod, "node-000")
        reservations = harness.snapshot_reservations()
        answer = harness.call("filter", filter_call(pod, "node-000", "node-001"))

    assert "did not answer in time" in error
    assert reservations.keys() == {"default/pod"}
    assert answer["NodeNames"] == ["node-000"]
    assert "is in progress" in answer["FailedAndUnresolvableNodes"]["node-001"]

    def bind_again():
        """Bind; on an error do as kube-scheduler does: write it into the pod."""
        if error := harness.bind(pod, "node-000"):
            condition = {"type": "PodScheduled", "status": "False", "message": error}
            harness.api.patch(f"{PODS}/pod/status", {"status": {"conditions": [condition]}})
        return not error

    wait_until(bind_again, what="the pod is bound", pause_s=0.2)
    assert harness.node_of("pod") == "node-000"
    assert harness.wait_agreement().keys() == {"default/pod"}


def test_a_node_is_deleted_and_another_is_created(esg):
    """Reservations leave and return with their node; waiting pods run on another node."""
    harness = esg(nodes=2, gpus=1, documents=DOCUMENTS)
    for name in ("one", "other", "waits"):
        harness.create(name, function="whole")
        if name != "waits":
            harness.wait_bound(name)
    harness.wait_refused("waits", "nodes are available")
    lost, remaining = harness.node_of("one"), harness.node_of("other")

    harness.api.delete(f"/api/v1/nodes/{lost}")
    wait_until(
        lambda: harness.snapshot_reservations().keys() == {"default/other"},
        what="its reservation is removed",
    )
    assert harness.gpus(lost) == []

    # It returns, as after a restart of its machine; its pod is still bound to it.
    create_nodes(
        harness.api, [node for node in gpu_nodes(2, 1) if node["metadata"]["name"] == lost]
    )
    assert harness.wait_agreement().keys() == {"default/one", "default/other"}
    assert harness.node_of("waits") == ""

    harness.api.delete(f"/api/v1/nodes/{lost}")
    harness.api.delete(f"{PODS}/one", grace_s=0)
    create_nodes(harness.api, gpu_nodes(1, 1, name_prefix="new"))
    harness.wait_bound("waits")
    assert harness.node_of("waits") == "new-000"
    assert harness.node_of("other") == remaining
    assert harness.wait_agreement().keys() == {"default/other", "default/waits"}


def test_a_gpu_becomes_unhealthy_and_recovers(esg):
    """An unhealthy GPU gets no new pod; its running pods keep their shares."""
    harness = esg(nodes=1, gpus=2, documents=DOCUMENTS)
    first, second = [gpu["uuid"] for gpu in gpu_inventory("node-000", 2)]
    harness.create("before", function="part")
    harness.wait_bound("before")
    assert harness.grant_of("before")["gpu"] == first

    set_unhealthy(harness, {0})
    for name in ("meanwhile-0", "meanwhile-1"):
        harness.create(name, function="part")
        harness.wait_bound(name)
        assert harness.grant_of(name)["gpu"] == second
    harness.create("later", function="part")
    harness.wait_refused("later", "GPU 1: 20 percent free, 40 percent asked")
    set_unhealthy(harness, {0, 1})
    wait_until(lambda: harness.pod("before")["status"]["phase"] == "Running", what="before runs")
    assert len(harness.wait_agreement()) == 3
    harness.wait_refused("later", "its GPUs of a fitting model are unhealthy (GPU 0, 1)")

    set_unhealthy(harness, {1})
    harness.wait_bound("later")
    assert harness.grant_of("later")["gpu"] == first
    assert len(harness.wait_agreement()) == 4


def set_unhealthy(harness, indices):
    """Write the agent's annotation; return when the extender has read it."""
    inventory = gpu_inventory("node-000", 2, unhealthy=frozenset(indices))
    notes = {"esg-scheduler.io/gpus": json.dumps(inventory)}
    harness.api.patch("/api/v1/nodes/node-000", {"metadata": {"annotations": notes}})
    wait_until(
        lambda: {gpu["index"] for gpu in harness.gpus("node-000") if not gpu["healthy"]} == indices,
        what=f"GPUs {indices} known to be unhealthy",
    )


def test_a_profile_changes_while_a_pod_waits(esg):
    """The new profile binds the pod to a share that was too small before.

    kube-scheduler does not watch custom resources: it retries the pod at the next event of the
    cluster, here the end of an ordinary pod.
    """
    harness = esg(nodes=1, gpus=1, documents=DOCUMENTS)
    harness.api.create(function_pod("plain", resources={"cpu": "1"}))
    harness.create("holds", function="large")
    harness.wait_bound("plain", "holds")
    harness.create("waits", function="large")
    harness.wait_refused("waits", "40 percent free, 60 percent asked")

    changed = profile("large", configuration(30, memory_mib=3_000, latency_ms=250))
    harness.api.patch(f"{PROFILES}/large", {"spec": changed["spec"]})
    wait_until(
        lambda: harness.explain("waits")["feasible_nodes"] == ["node-000"], what="profile known"
    )
    harness.api.delete(f"{PODS}/plain")

    harness.wait_bound("waits")
    grant = harness.grant_of("waits")
    assert (grant["gpu-percent"], grant["gpu-memory"]) == ("30", "0=3000M")
    assert (plan_on(grant)["gpu_percent"], plan_on(grant)["stage_ms"]) == (30, 250)
    assert plan_on(harness.grant_of("holds"))["gpu_percent"] == 60
    assert {name: hold[1] for name, hold in harness.wait_agreement().items()} == {
        "default/holds": 60,
        "default/waits": 30,
    }


def test_a_workflow_is_deleted_and_recreated(esg):
    """Its pods wait with a message that names it, and are bound when it exists again."""
    document = workflow("flow", "part")
    harness = esg(nodes=1, gpus=1, documents=[*DOCUMENTS, document])
    harness.api.delete(f"{WORKFLOWS}/flow")
    wait_until(
        lambda: not harness.get("/v1/snapshot").json()["workflows"],
        what="the extender has no workflow",
    )
    harness.create("pod", workflow="flow", stage="part")

    message = harness.wait_refused("pod", "flow")

    assert "workflow" in message.lower()
    assert harness.explain("pod")["error"] in message
    harness.api.create(document)
    harness.wait_bound("pod")
    assert plan_on(harness.grant_of("pod"))["gpu_percent"] == 40
