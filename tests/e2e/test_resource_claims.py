"""Resource claims (DRA) on a real API server and kube-scheduler: delivery by the node agent.

The second half shows what the API server and kube-scheduler do with claims that an extender
allocates; ADR 35 rests on it. KWOK plays the kubelets, which in a cluster call the agent.
"""

import json
from collections import Counter
from itertools import count

import pytest

from scheduler.model.names import RESOURCE_CLAIM
from tests.e2e.conftest import USER
from tests.e2e.documents import configuration, profile, workflow
from tests.e2e.harness import PODS
from tests.testbed import kubernetes_release
from tests.testbed.api import ApiError, wait_until
from tests.testbed.audit import Right
from tests.testbed.extender import wait_extender
from tests.testbed.nodes import create_nodes
from tests.testbed.pods import function_pod
from tests.testbed.scheduler_config import render
from workbench.cluster.mocked_nodes import gpu_nodes

GROUP = "resource.k8s.io"
ROOT = f"/apis/{GROUP}/v1"
CLAIMS = f"{ROOT}/namespaces/default/resourceclaims"
VERSION = {"apiVersion": f"{GROUP}/v1"}
DRIVER = "shares.example.org"
RIGHTS = {
    "resourceclaims": ["create", "get", "list", "watch"],
    "resourceclaims/status": ["patch"],
    "resourceclaims/binding": ["patch"],  # from Kubernetes 1.36 on
}
MINOR = kubernetes_release.minor()
CONSUMABLE = pytest.mark.skipif(
    MINOR < 36,
    reason="consumable capacity is on from Kubernetes 1.36: ESG_TEST_KUBERNETES=1.36.3",
)
numbers = count()


def document(kind, name, spec, **metadata):
    return {**VERSION, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def grant(api, rules, user=USER):
    """Bind a role with these rules to the user."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "claims"}
    root = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "claims"}}
    rules = [
        {"apiGroups": [GROUP], "resources": [resource], "verbs": verbs}
        for resource, verbs in rules.items()
    ]
    api.apply({**root, "kind": "ClusterRole", "rules": rules})
    subjects = [{"apiGroup": role["apiGroup"], "kind": "User", "name": user}]
    api.apply({**root, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": subjects})


@pytest.fixture
def api(cluster):
    """The API server; claims and what belongs to them are deleted afterwards."""
    if MINOR < 34:
        pytest.skip("resource.k8s.io/v1 is served from Kubernetes 1.34 on")
    yield cluster.api
    for path in ("resourceslices", "deviceclasses"):
        cluster.api.delete(f"{ROOT}/{path}")
    cluster.api.delete(f"{PODS}", grace_s=0)
    cluster.api.delete(f"{ROOT}/namespaces/default/resourceclaimtemplates")
    cluster.api.delete(CLAIMS)
    wait_until(lambda: not cluster.api.items(CLAIMS), what="all claims are deleted")
    # Last: a running extender may still write claims, and logs a missing right.
    for path in ("clusterroles", "clusterrolebindings"):
        cluster.api.delete(f"/apis/rbac.authorization.k8s.io/v1/{path}/claims")


# -- the delivery --------------------------------------------------------------------------------


@pytest.fixture
def delivered(esg, api):
    """A scheduler whose extender writes claims, and a function that creates such a pod."""
    grant(api, RIGHTS)
    documents = [profile("f", configuration(20, latency_ms=60)), workflow("w", "f")]
    harness = esg(nodes=1, gpus=1, documents=documents, environment={"ESG_RESOURCE_CLAIMS": "true"})

    def create(name, **annotations):
        pod = function_pod(name, workflow="w", stage="f", annotations=annotations)
        claim = f"esg-{next(numbers)}"
        pod["spec"]["resourceClaims"] = [{"name": RESOURCE_CLAIM, "resourceClaimName": claim}]
        pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": RESOURCE_CLAIM}]
        return api.create(pod), f"{CLAIMS}/{claim}"

    return harness, create


def test_a_pod_with_a_claim_is_bound_and_its_claim_goes_with_it(delivered):
    """The scheduler's profile is unmodified; the claim is reserved for the pod alone."""
    harness, create = delivered
    pod, claim = create("a", **{"mock-run": "forever"})
    harness.wait_bound("a")
    [user] = harness.api.get(claim)["status"]["reservedFor"]
    assert user["uid"] == pod["metadata"]["uid"]
    assert harness.grant_of("a")["gpu-percent"] == "20"
    harness.api.delete(f"{PODS}/a", grace_s=0)
    wait_until(lambda: not harness.api.exists(claim), what="the claim of a deleted pod is deleted")


def test_the_claim_of_an_ended_pod_is_deleted(delivered):
    """The pod may stay for long after its end: Kubernetes' own controller deletes the claim."""
    harness, create = delivered
    _, claim = create("a", **{"mock-run": "forever"})
    harness.wait_bound("a")
    harness.end("a", phase="Succeeded")
    wait_until(lambda: not harness.api.exists(claim), what="the claim of an ended pod is deleted")


def test_a_lost_reservation_is_made_again(delivered):
    """kube-scheduler takes it back after a refused bind, and makes it at the next attempt.

    Of a bound pod, Kubernetes' controller makes it.
    """
    harness, create = delivered
    node = "/api/v1/nodes/node-000"
    harness.api.patch(node, {"spec": {"unschedulable": True}})
    pod, claim = create("a", **{"mock-run": "forever"})
    wait_until(lambda: "unschedulable" in harness.refusal_of("a"), what="the pod waits")
    change = {"status": {"reservedFor": []}}
    harness.api.patch(f"{claim}/status", change)
    harness.api.patch(node, {"spec": {"unschedulable": None}})
    harness.wait_bound("a")
    [user] = harness.api.get(claim)["status"]["reservedFor"]
    assert user["uid"] == pod["metadata"]["uid"]
    harness.api.patch(f"{claim}/status", change)
    wait_until(lambda: harness.api.get(claim)["status"].get("reservedFor"), what="it is reserved")


def test_a_claim_deleted_before_its_pod_has_started_is_written_again(delivered):
    """kube-scheduler does not try a pod without its claim, and the kubelet does not start it."""
    harness, create = delivered
    node = "/api/v1/nodes/node-000"
    harness.api.patch(node, {"spec": {"unschedulable": True}})
    _, claim = create("a", **{"mock-run": "forever"})
    wait_until(lambda: "unschedulable" in harness.refusal_of("a"), what="the pod waits")
    earlier = harness.api.get(claim)["metadata"]["uid"]
    harness.api.delete(claim)
    wait_until(
        lambda: reserved_claim_uid(harness.api, claim) not in {"", earlier},
        what="it is written again",
    )
    harness.api.patch(node, {"spec": {"unschedulable": None}})
    harness.wait_bound("a")
    assert harness.metric_count("esg_resource_claims_unwritten") == 0


@pytest.mark.parametrize("writes", [1, 2])
def test_an_extender_that_dies_after_a_write_leaves_nothing_half(delivered, writes):
    """The next process completes a claim, and binds a pod whose claim is complete; once."""
    harness, create = delivered
    node = "/api/v1/nodes/node-000"
    harness.api.patch(node, {"spec": {"unschedulable": True}})
    _, claim = create("a", **{"mock-run": "forever"})
    wait_until(lambda: "unschedulable" in harness.refusal_of("a"), what="the pod waits")
    harness.extender.kill()
    written = harness.api.get(claim)
    if writes == 1:
        harness.api.request("PUT", f"{claim}/status", {**written, "status": {"reservedFor": []}})
        harness.api.request("PUT", f"{claim}/status", {**harness.api.get(claim), "status": {}})
        assert "allocation" not in harness.api.get(claim)["status"]
    harness.extender.start()
    wait_extender(harness.extender, port=harness.port)
    harness.api.patch(node, {"spec": {"unschedulable": None}})
    harness.wait_bound("a")
    final = harness.api.get(claim)
    assert final["metadata"]["uid"] == written["metadata"]["uid"]
    assert final["status"]["allocation"] == written["status"]["allocation"]
    assert harness.wait_agreement().keys() == {"default/a"}


def reserved_claim_uid(api, path):
    """Return the UID of a claim; empty if it does not exist, or is not reserved."""
    claims = api.items(CLAIMS, fieldSelector=f"metadata.name={path.rpartition('/')[2]}")
    reserved = [claim for claim in claims if claim.get("status", {}).get("reservedFor")]
    return reserved[0]["metadata"]["uid"] if reserved else ""


def test_a_claim_costs_two_writes(delivered, cluster):
    """The extender sends no other: nothing of the pod's claim changes at its bind."""
    harness, create = delivered
    earlier = len(cluster.audit_log.read_text(encoding="utf-8").splitlines())
    pods = 5
    for number in range(pods):
        create(f"p{number}")
    wait_until(
        lambda: not any(
            "nodeName" not in pod["spec"] for pod in harness.api.items(PODS)
        ),
        what="all pods are bound",
    )  # fmt: skip
    reads = {"get", "list", "watch"}
    writes = [
        right
        for right in requests_of(cluster, earlier)
        if right.group == GROUP and right.verb not in reads
    ]
    expected = {
        Right(GROUP, "resourceclaims", "create"): pods,
        Right(GROUP, "resourceclaims/status", "patch"): pods,
    }
    assert Counter(writes) == expected


def requests_of(cluster, after_lines):
    """Return the requests of the extender in their order."""
    rights = []
    for line in cluster.audit_log.read_text(encoding="utf-8").splitlines()[after_lines:]:
        event = json.loads(line)
        target = event.get("objectRef") or {}
        if event["user"]["username"] == USER:
            parts = (target.get("resource", ""), target.get("subresource"))
            resource = "/".join(part for part in parts if part)
            rights.append(Right(target.get("apiGroup", ""), resource, event["verb"]))
    return rights


@pytest.mark.skipif(MINOR < 36, reason="Kubernetes 1.36 asks for the right `binding`")
def test_the_right_to_patch_the_status_is_not_enough(api, cluster):
    """Allocation and reservation need the verb on resourceclaims/binding, too."""
    grant(api, {"resourceclaims/status": ["patch"]})
    claim = api.create(document("ResourceClaim", "c", devices()))
    path = f"{CLAIMS}/{claim['metadata']['name']}/status"
    restricted = cluster.api_as(cluster.client_certificate(USER))
    change = {"status": {"allocation": allocation("n")}}

    def refusal():
        try:
            restricted.patch(path, change)
        except ApiError as error:
            return str(error)
        return ""

    wait_until(lambda: "resourceclaims/binding" in refusal(), what="the missing right is named")
    grant(api, RIGHTS)
    wait_until(lambda: not refusal(), what="the claim is allocated")
    restricted.close()


# -- allocation by an extender: what ADR 35 decided against --------------------------------------


def devices(percent=0):
    """Create the spec of a claim for a share of a GPU."""
    request = {"deviceClassName": "shares"}
    if percent:
        request["capacity"] = {"requests": {"percent": str(percent)}}
    return {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}


def allocation(node, percent=50, device="gpu-0", share=1):
    result = {
        "request": "gpu",
        "driver": DRIVER,
        "pool": node,
        "device": device,
    }
    if MINOR >= 36:
        result["shareID"] = f"00000000-0000-4000-8000-{share:012}"
        result["consumedCapacity"] = {"percent": str(percent)}
    return {"devices": {"results": [result]}}


def reference(pod):
    return {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}


def publish(api, node, gpus):
    """Publish a node's GPUs with 100 percent each, for several claims at a time."""
    policy = {"default": "100", "validRange": {"min": "1", "step": "1"}}
    gpu = {
        "allowMultipleAllocations": True,
        "capacity": {"percent": {"value": "100", "requestPolicy": policy}},
    }
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{number}", **gpu} for number in range(gpus)],
    }
    api.create(document("ResourceSlice", node, spec))
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    api.create(document("DeviceClass", "shares", {"selectors": [selector]}))


def pod_of(claim, scheduler="nobody", **source):
    """Create a pod with a claim or a template of claims."""
    source = source or {"resourceClaimName": claim}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": claim},
        "spec": {
            "schedulerName": scheduler,
            "resourceClaims": [{"name": "gpu", **source}],
            "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
        },
    }


def set_status(api, claim, **status):
    """Replace the status of a claim; return the claim."""
    path = f"{CLAIMS}/{claim['metadata']['name']}"
    return api.request("PUT", f"{path}/status", {**api.get(path), "status": status})


@CONSUMABLE
def test_the_api_server_does_not_count_capacity(api):
    """It stores an allocation of 500 % of a device that does not exist."""
    claim = api.create(document("ResourceClaim", "c", devices()))
    stored = set_status(api, claim, allocation=allocation("nowhere", 500, "gpu-9"))
    [result] = stored["status"]["allocation"]["devices"]["results"]
    assert result["consumedCapacity"] == {"percent": "500"}


def test_another_gpu_takes_two_further_writes(api):
    """An allocation is immutable: a client that chooses another GPU clears it first."""
    claim = api.create(document("ResourceClaim", "c", devices()))
    pod = api.create(pod_of("c"))
    users = [reference(pod)]
    with pytest.raises(ApiError, match="may not be specified when `allocated` is not set"):
        set_status(api, claim, reservedFor=users)
    set_status(api, claim, allocation=allocation("n"), reservedFor=users)
    with pytest.raises(ApiError, match=r"immutable|cannot be modified once set"):
        set_status(api, claim, allocation=allocation("m"), reservedFor=users)
    set_status(api, claim)
    set_status(api, claim, allocation=allocation("m"), reservedFor=users)


def test_a_claim_from_a_template_makes_earlier_bindings_void(api):
    """The controller writes the claim's name into the pod's status: the pod has a new version."""
    api.create(document("ResourceClaimTemplate", "t", {"spec": devices()}))
    pod = api.create(pod_of("p", resourceClaimTemplateName="t"))
    create_nodes(api, gpu_nodes(1, 0))
    wait_until(
        lambda: api.get(f"{PODS}/p")["status"].get("resourceClaimStatuses"),
        what="the controller has created the claim",
    )
    metadata = {key: pod["metadata"][key] for key in ("name", "uid", "resourceVersion")}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"kind": "Node", "name": "node-000"},
    }
    with pytest.raises(ApiError, match="Precondition failed: ResourceVersion"):
        api.request("POST", f"{PODS}/p/binding", binding)


@CONSUMABLE
@pytest.mark.parametrize("restarted", [False, True])
def test_kube_scheduler_counts_what_an_extender_has_allocated(api, cluster, restarted):
    """Another profile's pod gets the other GPU, or none; a restart changes nothing."""
    config = render(
        kubeconfig=cluster.scheduler_kubeconfig,
        extender_port=None,
        scheduler_names=["shares"],
    )
    scheduler = cluster.start_scheduler(config)
    create_nodes(api, gpu_nodes(1, 0))
    publish(api, "node-000", 2)
    for number, percent in enumerate((60, 80)):
        claim = api.create(document("ResourceClaim", f"c{number}", devices()))
        pod = api.create(pod_of(f"c{number}"))
        granted = allocation("node-000", percent, f"gpu-{number}", share=number)
        set_status(api, claim, allocation=granted, reservedFor=[reference(pod)])
    if restarted:
        scheduler.stop()
        cluster.start_scheduler(config)
    api.create(document("ResourceClaim", "fits", devices(40)))
    api.create(pod_of("fits", "shares"))
    wait_until(lambda: api.get(f"{PODS}/fits")["spec"].get("nodeName"), what="the pod is bound")
    [result] = api.get(f"{CLAIMS}/fits")["status"]["allocation"]["devices"]["results"]
    assert result["device"] == "gpu-0"
    api.create(document("ResourceClaim", "waits", devices(40)))
    api.create(pod_of("waits", "shares"))
    wait_until(
        lambda: "cannot allocate all claims" in message(api, "waits"), what="the pod is refused"
    )


def message(api, name):
    """Return the message of the pod's condition PodScheduled; empty without one."""
    conditions = api.get(f"{PODS}/{name}")["status"].get("conditions", [])
    return "".join(c.get("message", "") for c in conditions if c["type"] == "PodScheduled")
