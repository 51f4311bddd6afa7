"""The chart's policies on a real API server: what they refuse, and that they let pass all else."""

import pytest

from scheduler.model import names
from scheduler.model.pod import Grant, grant_annotations
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
from tests.testbed.nodes import create_nodes, gpu_nodes

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("helm_is_there")]
TAINT = {"key": "example.org/mine", "effect": "NoExecute"}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "node-001", "uid": "u"}
GRANTED = {names.ANNOTATION_GPU: "GPU-1"}
FUNCTION = {names.LABEL_FUNCTION: "segmentation"}
SHARE = {names.RESOURCE_GPU_PERCENT: "10"}
NOT_BOUND_SO = "only its own Bindings may have them"
SETTLED = "must not change after a pod is"
UNNAMED = "requests esg-scheduler.io/gpu-percent without a function"


def test_a_grant_is_written_by_a_binding_and_by_nobody_else(
    installation: Installation, cluster: ControlPlane
) -> None:
    """Not by its creator, not afterwards, not by way of the status; all else may be changed."""
    api = cluster.api
    create_nodes(api, gpu_nodes(1, 1))
    forged = pod("forged", annotations=GRANTED)
    wait_until_refused("the scheduler's grant", api, "POST", PODS, forged)
    assert "the scheduler's grant" in refusal(api.create, forged)
    made = api.create(pod("sound", annotations={"note": "1"}))
    path = api.path(made)
    change = {"metadata": {"annotations": GRANTED}}
    assert "the scheduler's grant" in refusal(api.patch, path, change)
    assert "the scheduler's grant" in refusal(api.patch, f"{path}/status", change)
    with installation.user(f"{SERVICE_ACCOUNT}esg-scheduler") as scheduler:
        wait_until(lambda: not refusal(scheduler.get, path), what="its rights")
        scheduler.bind(made, "node-000", annotations=GRANTED)
    assert api.get(path)["metadata"]["annotations"] == {"note": "1", **GRANTED}
    for other in ({names.ANNOTATION_GPU: "GPU-2"}, {names.ANNOTATION_GPU: None}):
        change = {"metadata": {"annotations": other}}
        assert "the scheduler's grant" in refusal(api.patch, path, change)
    api.patch(path, {"metadata": {"annotations": {"note": "2"}, "labels": {"a": "b"}}})
    api.patch(f"{path}/status", {"status": {"phase": "Running"}})
    assert api.get(path)["metadata"]["annotations"] == {"note": "2", **GRANTED}


def test_whoever_else_binds_grants_nothing(
    installation: Installation, cluster: ControlPlane
) -> None:
    """The API server merges a Binding into its pod: by all rights one may bind, and not grant."""
    api = cluster.api
    create_nodes(api, gpu_nodes(1, 1))
    made = api.create(pod("made", labels={"note": "1"}))
    forged = binding(made, annotations=GRANTED)
    wait_until_refused(NOT_BOUND_SO, api, "POST", f"{PODS}/made/binding", forged)
    for key, value in grant_annotations(Grant("GPU-1", 10, 1000, 1, {})).items():
        forged = binding(made, annotations={key: value, "note": "2"})
        for path in (f"{PODS}/made/binding", PODS.replace("/pods", "/bindings")):
            assert NOT_BOUND_SO in refusal(api.request, "POST", path, forged)
    for label in (names.LABEL_WORKFLOW, names.LABEL_FUNCTION, names.LABEL_STAGE):
        assert "not by a Binding" in refusal(
            api.request, "POST", f"{PODS}/made/binding", binding(made, labels={label: "x"})
        )
    api.bind(made, "node-000", annotations={"note": "2"})
    assert api.get(f"{PODS}/made")["metadata"]["annotations"] == {"note": "2"}
    # The older way, without anything of ours, and the way of those whom the operator has named.
    other = api.create(pod("other"))
    api.request("POST", PODS.replace("/pods", "/bindings"), binding(other))
    assert api.get(f"{PODS}/other")["spec"]["nodeName"] == "node-000"
    restored = api.create(pod("restored"))
    installation.helm("upgrade", str(CHART), "--set", "guards.grantWriters={admin}")
    wait_until(
        lambda: not refusal(api.bind, restored, "node-000", annotations=GRANTED),
        what="the writer that was named may",
    )
    assert api.get(f"{PODS}/restored")["metadata"]["annotations"] == GRANTED


def test_the_labels_of_a_function_pod_are_settled_at_its_creation(cluster: ControlPlane) -> None:
    """None comes, changes or goes; and all that Kubernetes itself does to pods works."""
    api = cluster.api
    create_nodes(api, gpu_nodes(1, 1))
    labels = {names.LABEL_WORKFLOW: "w", names.LABEL_STAGE: "s"}
    api.create(pod("plain"))
    ours = api.create(pod("ours", labels=labels, annotations={names.ANNOTATION_CONTAINER: "main"}))
    with installed(cluster):
        wait_until_refused(
            SETTLED, api, "PATCH", f"{PODS}/plain", {"metadata": {"labels": FUNCTION}}
        )
        for name, key, value in [
            *(("plain", key, "new") for key in (*labels, names.LABEL_FUNCTION)),
            *(("ours", key, "another") for key in labels),
            *(("ours", key, None) for key in labels),
        ]:
            change = {"metadata": {"labels": {key: value}}}
            for path in (f"{PODS}/{name}", f"{PODS}/{name}/status"):
                assert SETTLED in refusal(api.patch, path, change)
        path = f"{PODS}/ours"
        for container in ("side", None):
            change = {"metadata": {"annotations": {names.ANNOTATION_CONTAINER: container}}}
            assert "for that container gets the GPU" in refusal(api.patch, path, change)
        api.patch(path, {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}})
        api.bind(ours, "node-000")
        wait_until(
            lambda: api.get(path)["status"]["phase"] == "Running", what="its kubelet tells of it"
        )
        api.patch(path, {"metadata": {"finalizers": ["example.org/mine"]}})
        api.delete(path, grace_s=0)
        api.patch(path, {"metadata": {"finalizers": None}})
        wait_until(lambda: not api.exists(path), what="it is gone")


def test_a_share_is_asked_for_by_pods_that_say_what_they_run(
    installation: Installation, cluster: ControlPlane
) -> None:
    """In whichever container and however; what asks for nothing of ours is made as ever."""
    api = cluster.api
    asking = pod("asking")
    asking["spec"]["containers"][0]["resources"] = {"limits": SHARE}
    wait_until_refused(UNNAMED, api, "POST", PODS, asking)
    for kind in ("containers", "initContainers"):
        for resources in ({"limits": SHARE}, {"requests": SHARE, "limits": SHARE}):
            asking = pod("asking", labels={names.LABEL_STAGE: "s"})
            asks = {"name": "asks", "image": "i", "resources": resources}
            asking["spec"].setdefault(kind, []).append(asks)
            assert UNNAMED in refusal(api.create, asking)
            # With the label it is for the webhook to say, which nobody answers here.
            asking["metadata"]["labels"] = FUNCTION
            assert "failed calling webhook" in refusal(api.create, asking)
    zero = {names.RESOURCE_GPU_PERCENT: "0", "cpu": "1"}
    asking = pod("nothing")
    asking["spec"]["containers"][0]["resources"] = {"limits": zero}
    api.create(asking)
    api.create(pod("plain"))


def test_an_ephemeral_container_sees_no_other_gpu(cluster: ControlPlane) -> None:
    """Neither by the folder of the daemons nor as a privileged one; a plain one comes in."""
    api = cluster.api
    folder = {"name": VOLUME, "emptyDir": {}}
    for each in (pod("ours", labels=FUNCTION), pod("other")):
        each["spec"]["volumes"] = [folder]
        api.create(each)
    mounts = debugging(volumeMounts=[{"name": VOLUME, "mountPath": "/all"}])
    privileged = debugging(securityContext={"privileged": True})
    with installed(cluster):
        path = f"{PODS}/ours/ephemeralcontainers"
        wait_until_refused("may not mount", api, "PATCH", path, mounts)
        assert "may not mount" in refusal(api.patch, path, mounts)
        assert "may not be privileged" in refusal(api.patch, path, privileged)
        api.patch(path, debugging(securityContext={"privileged": False}))
        assert api.get(f"{PODS}/ours")["spec"]["ephemeralContainers"][0]["name"] == "debug"
        api.patch(f"{PODS}/other/ephemeralcontainers", privileged)


def test_an_agent_writes_to_its_own_node_and_of_it_what_it_should(
    installation: Installation, cluster: ControlPlane
) -> None:
    """Its token says which node that is; the inventory and the capacity are all that it changes."""
    api = cluster.api
    create_nodes(api, gpu_nodes(2, 1))
    account = "esg-scheduler-agent"
    home = {**pod("agent"), "spec": {**pod("")["spec"], "nodeName": "node-000"}}
    home["spec"]["serviceAccountName"] = account
    home["metadata"]["namespace"] = NAMESPACE
    token = installation.token(account, pod=api.create(home))
    own, other = "/api/v1/nodes/node-000", "/api/v1/nodes/node-001"
    inventory = {"metadata": {"annotations": {names.ANNOTATION_GPUS: "[]"}}}
    has = {names.RESOURCE_GPU_PERCENT: "0"}
    agent = Bearer(cluster, token)

    def refused() -> str:
        return agent.patch(other, inventory)

    wait_until(lambda: "may not change node" in refused(), what="rights and policy work")
    assert 'the agent of node "node-000" may not change node "node-001"' in refused()
    assert agent.patch(own, inventory) == ""
    assert agent.patch(f"{own}/status", {"status": {"capacity": has, "allocatable": has}}) == ""
    written = api.get(own)
    assert written["metadata"]["annotations"][names.ANNOTATION_GPUS] == "[]"
    assert written["status"]["allocatable"][names.RESOURCE_GPU_PERCENT] == "0"
    for path, change, told in [
        (own, {"metadata": {"annotations": {"other": "1"}}}, "no annotation but"),
        (own, {"metadata": {"labels": {"other": "1"}}}, "no spec and no labels"),
        (own, {"metadata": {"ownerReferences": [OWNER]}}, "no owners and no finalizers"),
        (own, {"metadata": {"finalizers": ["example.org/mine"]}}, "no owners and no finalizers"),
        (own, {"spec": {"unschedulable": True}}, "no spec and no labels"),
        (own, {"spec": {"taints": [TAINT]}}, "no spec and no labels"),
        (f"{own}/status", {"status": {"capacity": {"cpu": "1"}}}, "no capacity but"),
        (f"{own}/status", {"status": {"allocatable": {"cpu": None}}}, "nothing allocatable but"),
        (f"{other}/status", {"status": {"capacity": has}}, "may not change node"),
    ]:
        assert told in agent.patch(path, change), change
    for change in STATUS_OF_THE_KUBELET:
        told = agent.patch(f"{own}/status", {"status": change})
        assert "nothing of its node's status but" in told, change
    assert api.get(own)["status"]["allocatable"][names.RESOURCE_GPU_PERCENT] == "0"
    agent.close()
    stranger = Bearer(cluster, installation.token(account))  # a token of no pod names no node
    assert "may not change node" in stranger.patch(own, inventory)
    stranger.close()
    api.patch(own, {"metadata": {"labels": {"others": "may"}}})


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


def wait_until_refused(told: str, api: Api, method: str, path: str, body: Json) -> None:
    """Until the policy works that refuses this; before it does, nothing is changed by asking."""
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"

    def refused() -> bool:
        asked = {"content_type": kind, "query": {"dryRun": "All"}}
        return told in refusal(api.request, method, path, body, **asked)

    wait_until(refused, what="the policy works")


def binding(bound: Json, **metadata: Json) -> Json:
    """A Binding of the pod to the first node."""
    facts = {key: bound["metadata"][key] for key in ("name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {**facts, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-000"},
    }


def debugging(**container: object) -> Json:
    """The change by which `kubectl debug` adds a container to a pod."""
    return {"spec": {"ephemeralContainers": [{"name": "debug", "image": "i", **container}]}}
