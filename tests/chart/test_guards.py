"""The chart's admission policies on a real API server: refused requests and allowed requests."""

import pytest

from scheduler.model import names
from scheduler.model.grant import Grant, grant_annotations
from scheduler.webhook.mutation import VOLUME
from tests.chart.installation import (
    NAMESPACE,
    PODS,
    SERVICE_ACCOUNT,
    Bearer,
    Installation,
    installed,
    pod,
    refusal,
)
from tests.chart.rendering import CHART, Json
from tests.testbed.api import Api, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.nodes import create_nodes
from workbench.cluster.mocked_nodes import gpu_nodes

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("helm_built")]
TAINT = {"key": "example.org/mine", "effect": "NoExecute"}
NO_EMPTY_GPU = {"key": names.TAINT_NO_EMPTY_GPU, "effect": "PreferNoSchedule"}
STARTUP = {"key": names.TAINT_STARTUP, "effect": "NoSchedule"}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "node-001", "uid": "u"}
GRANTED = {names.ANNOTATION_GPU: "GPU-1"}
FUNCTION = {names.LABEL_FUNCTION: "segmentation"}
SHARE = {names.RESOURCE_GPU_PERCENT: "10"}
NOT_ITS_BINDING = "only its own Bindings may have them"
IMMUTABLE = "must not change after a pod is"
WITHOUT_FUNCTION = "requests esg-scheduler.io/gpu-percent without a function"


def test_only_the_scheduler_s_binding_writes_a_grant(
    installation: Installation, cluster: ControlPlane
) -> None:
    """Creating or updating a pod or its status must not write it; other annotations may change."""
    api = cluster.api
    create_nodes(api, gpu_nodes(1, 1))
    forged = pod("forged", annotations=GRANTED)
    wait_until_refused("the scheduler's grant", api, "POST", PODS, forged)
    assert "the scheduler's grant" in refusal(api.create, forged)
    sound = api.create(pod("sound", annotations={"note": "1"}))
    path = api.path(sound)
    change = {"metadata": {"annotations": GRANTED}}
    assert "the scheduler's grant" in refusal(api.patch, path, change)
    assert "the scheduler's grant" in refusal(api.patch, f"{path}/status", change)
    with installation.user(f"{SERVICE_ACCOUNT}esg-scheduler") as scheduler:
        wait_until(lambda: not refusal(scheduler.get, path), what="the scheduler has its rights")
        scheduler.bind(sound, "node-000", annotations=GRANTED)
    assert api.get(path)["metadata"]["annotations"] == {"note": "1", **GRANTED}
    for annotations in ({names.ANNOTATION_GPU: "GPU-2"}, {names.ANNOTATION_GPU: None}):
        change = {"metadata": {"annotations": annotations}}
        assert "the scheduler's grant" in refusal(api.patch, path, change)
    api.patch(path, {"metadata": {"annotations": {"note": "2"}, "labels": {"a": "b"}}})
    api.patch(f"{path}/status", {"status": {"phase": "Running"}})
    assert api.get(path)["metadata"]["annotations"] == {"note": "2", **GRANTED}


def test_a_binding_of_another_client_may_not_have_a_grant(
    installation: Installation, cluster: ControlPlane
) -> None:
    """The API server merges a Binding's metadata into its pod, so a policy refuses grants in it."""
    api = cluster.api
    create_nodes(api, gpu_nodes(1, 1))
    unbound = api.create(pod("unbound", labels={"note": "1"}))
    forged = binding(unbound, annotations=GRANTED)
    wait_until_refused(NOT_ITS_BINDING, api, "POST", f"{PODS}/unbound/binding", forged)
    for key, value in grant_annotations(Grant("GPU-1", 10, 1000, 1, {})).items():
        forged = binding(unbound, annotations={key: value, "note": "2"})
        for path in (f"{PODS}/unbound/binding", PODS.replace("/pods", "/bindings")):
            assert NOT_ITS_BINDING in refusal(api.request, "POST", path, forged)
    for label in (
        *(names.LABEL_WORKFLOW, names.LABEL_FUNCTION, names.LABEL_STAGE, names.LABEL_POOL),
        *(names.LABEL_MEASUREMENT, names.LABEL_GATEWAY_GROUP),
    ):
        assert "not by a Binding" in refusal(
            api.request, "POST", f"{PODS}/unbound/binding", binding(unbound, labels={label: "x"})
        )
    api.bind(unbound, "node-000", annotations={"note": "2"})
    assert api.get(f"{PODS}/unbound")["metadata"]["annotations"] == {"note": "2"}
    # The older path without a grant, and a writer that the operator has listed.
    plain = api.create(pod("plain"))
    api.request("POST", PODS.replace("/pods", "/bindings"), binding(plain))
    assert api.get(f"{PODS}/plain")["spec"]["nodeName"] == "node-000"
    restored = api.create(pod("restored"))
    writers = f"guards.grantWriters={{{user_name(api)}}}"
    installation.helm("upgrade", str(CHART), "--no-hooks", "--set", writers)
    wait_until(
        lambda: not refusal(api.bind, restored, "node-000", annotations=GRANTED),
        what="the listed writer may write grants",
    )
    assert api.get(f"{PODS}/restored")["metadata"]["annotations"] == GRANTED


def test_labels_of_function_pods_are_immutable(cluster: ControlPlane) -> None:
    """They cannot be added, changed or removed; Kubernetes' own updates of pods work."""
    api = cluster.api
    create_nodes(api, gpu_nodes(1, 1))
    labels = {names.LABEL_WORKFLOW: "w", names.LABEL_STAGE: "s"}
    api.create(pod("plain"))
    annotations = {names.ANNOTATION_CONTAINER: "main"}
    function_pod = api.create(pod("function", labels=labels, annotations=annotations))
    with installed(cluster):
        wait_until_refused(
            IMMUTABLE, api, "PATCH", f"{PODS}/plain", {"metadata": {"labels": FUNCTION}}
        )
        for name, key, value in [
            *(("plain", key, "new") for key in (*labels, names.LABEL_FUNCTION)),
            *(("function", key, "another") for key in labels),
            *(("function", key, None) for key in labels),
        ]:
            change = {"metadata": {"labels": {key: value}}}
            for path in (f"{PODS}/{name}", f"{PODS}/{name}/status"):
                assert IMMUTABLE in refusal(api.patch, path, change)
        path = f"{PODS}/function"
        for container in ("side", None):
            change = {"metadata": {"annotations": {names.ANNOTATION_CONTAINER: container}}}
            assert "because that container has the GPU" in refusal(api.patch, path, change)
        api.patch(path, {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}})
        api.bind(function_pod, "node-000")
        wait_until(lambda: api.get(path)["status"]["phase"] == "Running", what="the pod is Running")
        api.patch(path, {"metadata": {"finalizers": ["example.org/mine"]}})
        api.delete(path, grace_s=0)
        api.patch(path, {"metadata": {"finalizers": None}})
        wait_until(lambda: not api.exists(path), what="the pod is deleted")


def test_a_pod_that_requests_a_share_must_name_its_function(
    installation: Installation, cluster: ControlPlane
) -> None:
    """The rule holds for every container, and for requests and limits; other pods are admitted."""
    api = cluster.api
    requesting = pod("requesting")
    requesting["spec"]["containers"][0]["resources"] = {"limits": SHARE}
    wait_until_refused(WITHOUT_FUNCTION, api, "POST", PODS, requesting)
    for kind in ("containers", "initContainers"):
        for resources in ({"limits": SHARE}, {"requests": SHARE, "limits": SHARE}):
            requesting = pod("requesting", labels={names.LABEL_STAGE: "s"})
            container = {"name": "requests", "image": "i", "resources": resources}
            requesting["spec"].setdefault(kind, []).append(container)
            assert WITHOUT_FUNCTION in refusal(api.create, requesting)
            # With the label the webhook decides; none is running here.
            requesting["metadata"]["labels"] = FUNCTION
            assert "failed calling webhook" in refusal(api.create, requesting)
    zero = {names.RESOURCE_GPU_PERCENT: "0", "cpu": "1"}
    requesting = pod("zero")
    requesting["spec"]["containers"][0]["resources"] = {"limits": zero}
    api.create(requesting)
    api.create(pod("plain"))


def test_an_ephemeral_container_cannot_access_other_gpus(cluster: ControlPlane) -> None:
    """It may not mount the folder of the MPS daemons or be privileged; a plain one is allowed."""
    api = cluster.api
    folder = {"name": VOLUME, "emptyDir": {}}
    for document in (pod("function", labels=FUNCTION), pod("plain")):
        document["spec"]["volumes"] = [folder]
        api.create(document)
    mounting = debugging(volumeMounts=[{"name": VOLUME, "mountPath": "/all"}])
    privileged = debugging(securityContext={"privileged": True})
    with installed(cluster):
        path = f"{PODS}/function/ephemeralcontainers"
        wait_until_refused("may not mount", api, "PATCH", path, mounting)
        assert "may not mount" in refusal(api.patch, path, mounting)
        assert "may not be privileged" in refusal(api.patch, path, privileged)
        hidden = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
        api.patch(path, debugging(env=[hidden], securityContext={"privileged": False}))
        assert api.get(f"{PODS}/function")["spec"]["ephemeralContainers"][0]["name"] == "debug"
        api.patch(f"{PODS}/plain/ephemeralcontainers", privileged)


def test_an_agent_may_change_inventory_capacity_and_its_taints_of_its_own_node_only(
    installation: Installation, cluster: ControlPlane
) -> None:
    """Its token names its node; every other field of the node is refused."""
    api = cluster.api
    create_nodes(api, gpu_nodes(2, 1))
    account = "esg-scheduler-agent"
    home = {**pod("agent"), "spec": {**pod("")["spec"], "nodeName": "node-000"}}
    home["spec"]["serviceAccountName"] = account
    home["metadata"]["namespace"] = NAMESPACE
    token = installation.token(account, pod=api.create(home))
    own, foreign = "/api/v1/nodes/node-000", "/api/v1/nodes/node-001"
    inventory = {"metadata": {"annotations": {names.ANNOTATION_GPUS: "[]"}}}
    shares = {names.RESOURCE_GPU_PERCENT: "0"}
    agent = Bearer(cluster, token)

    def refused() -> str:
        return agent.patch(foreign, inventory)

    wait_until(lambda: "may not change node" in refused(), what="rights and policy are in effect")
    assert 'the agent of node "node-000" may not change node "node-001"' in refused()
    assert agent.patch(own, inventory) == ""
    assert (
        agent.patch(f"{own}/status", {"status": {"capacity": shares, "allocatable": shares}}) == ""
    )
    written = api.get(own)
    assert written["metadata"]["annotations"][names.ANNOTATION_GPUS] == "[]"
    assert written["status"]["allocatable"][names.RESOURCE_GPU_PERCENT] == "0"
    for path, change, message in [
        (own, {"metadata": {"annotations": {"other": "1"}}}, "annotations other than"),
        (own, {"metadata": {"labels": {"other": "1"}}}, "spec or labels"),
        (own, {"metadata": {"ownerReferences": [OWNER]}}, "owners or finalizers"),
        (own, {"metadata": {"finalizers": ["example.org/mine"]}}, "owners or finalizers"),
        (own, {"spec": {"unschedulable": True}}, "spec or labels"),
        (own, {"spec": {"taints": [TAINT]}}, "only add and remove the taint"),
        (own, {"spec": {"taints": [STARTUP]}}, "only add and remove the taint"),
        (own, {"spec": {"taints": [{**NO_EMPTY_GPU, "effect": "NoExecute"}]}}, "only add and"),
        (f"{own}/status", {"status": {"capacity": {"cpu": "1"}}}, "capacity other than"),
        (
            f"{own}/status",
            {"status": {"allocatable": {"cpu": None}}},
            "allocatable resources",
        ),
        (f"{foreign}/status", {"status": {"capacity": shares}}, "may not change node"),
    ]:
        assert message in agent.patch(path, change), change
    api.patch(own, {"spec": {"taints": [TAINT, STARTUP]}})
    for removed in ([STARTUP], [STARTUP, NO_EMPTY_GPU]):
        assert "only add and remove" in agent.patch(own, {"spec": {"taints": removed}})
    for allowed in ([TAINT, STARTUP, NO_EMPTY_GPU], [TAINT, NO_EMPTY_GPU], [TAINT]):
        assert agent.patch(own, {"spec": {"taints": allowed}}) == ""
    assert api.get(own)["spec"]["taints"] == [TAINT]
    changes = [change for change in STATUS_OF_THE_KUBELET if is_stored(api, own, change)]
    assert len(changes) >= len(STATUS_OF_THE_KUBELET) - 2  # Kubernetes 1.30 lacks two
    for change in changes:
        error = agent.patch(f"{own}/status", {"status": change})
        assert "may not change its node's status other than GPU shares" in error, change
    assert api.get(own)["status"]["allocatable"][names.RESOURCE_GPU_PERCENT] == "0"
    events = "/api/v1/namespaces/default/events"
    own_only = "may write Events of its own node"
    wait_until(
        lambda: own_only in agent.create(events, event("Node", "node-001")),
        what="the policy of Events is in effect",
    )
    assert agent.create(events, event("Node", "node-000")) == ""
    assert agent.create(events, event("Pod", "function")) == ""
    for refused_event in (
        event("Node", "node-001"),
        event("Deployment", "any"),
        event("Pod", "function", component="kubelet"),
    ):
        assert own_only in agent.create(events, refused_event)
    agent.close()
    unbound = Bearer(cluster, installation.token(account))  # without a pod it names no node
    assert "may not change node" in unbound.patch(own, inventory)
    unbound.close()
    api.patch(own, {"metadata": {"labels": {"admin": "may"}}})


STATUS_OF_THE_KUBELET: list[Json] = [
    {"addresses": []},
    {"conditions": []},
    {"daemonEndpoints": {"kubeletEndpoint": {"Port": 4711}}},
    {"features": {"supplementalGroupsPolicy": True}},
    {"images": [{"names": ["example.org/not-there:1"], "sizeBytes": 1}]},
    {"nodeInfo": {"kubeletVersion": "v9.9.9"}},
    {"phase": "Terminated"},
    {"runtimeHandlers": [{"name": "another"}]},
    {"volumesAttached": [{"name": "v", "devicePath": "/dev/v"}]},
    {"volumesInUse": ["v"]},
]


def is_stored(api: Api, node: str, change: Json) -> bool:
    """Return true if this release of Kubernetes stores the change; it drops unknown fields."""
    before = api.get(node)["status"]
    after = api.request(
        "PATCH", f"{node}/status", {"status": change},
        content_type="application/merge-patch+json", query={"dryRun": "All"},
    )["status"]  # fmt: skip
    return any(after.get(field) != before.get(field) for field in change)


def wait_until_refused(message: str, api: Api, method: str, path: str, body: Json) -> None:
    """Wait until a policy refuses the request; it is sent as a dry run, which changes nothing."""
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"

    def refused() -> bool:
        options = {"content_type": kind, "query": {"dryRun": "All"}}
        return message in refusal(api.request, method, path, body, **options)

    wait_until(refused, what="the policy is in effect")


def user_name(api: Api) -> str:
    """Return the name by which the API server knows the client."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    name: str = api.request("POST", path, review)["status"]["userInfo"]["username"]
    return name


def binding(target: Json, **metadata: Json) -> Json:
    """Binding of the pod to the first node."""
    identity = {key: target["metadata"][key] for key in ("name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {**identity, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-000"},
    }


def event(kind: str, name: str, component: str = "esg-scheduler") -> Json:
    """Event on an object of the namespace default."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "event-"},
        "involvedObject": {"kind": kind, "name": name, "namespace": "default"},
        "reason": "Test",
        "source": {"component": component},
    }


def debugging(**container: object) -> Json:
    """Patch by which `kubectl debug` adds a container to a pod."""
    return {"spec": {"ephemeralContainers": [{"name": "debug", "image": "i", **container}]}}
