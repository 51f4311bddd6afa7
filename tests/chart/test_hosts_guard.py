"""Policies of deploy/guards.yaml on a real API server: what of its node a pod may have.

The chart renders that file from its own templates, so this tests both. No webhook runs here.
"""

from collections.abc import Iterator
from copy import deepcopy

import pytest
import yaml

from scheduler.model import names
from scheduler.webhook.ceilings import Ceilings
from scheduler.webhook.mutation import VOLUME, PodDefaults, mutate_pod, new_claim_name
from tests.chart import guards_file
from tests.chart.installation import PODS, pod, refusal
from tests.chart.rendering import Json
from tests.testbed import kubernetes_release
from tests.testbed.api import Api, wait_until
from tests.testbed.control_plane import ControlPlane

pytestmark = pytest.mark.e2e
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
ROOT = "/run/esg-scheduler/mps"
TENANT = "guarded"
TENANT_PODS = f"/api/v1/namespaces/{TENANT}/pods"
FUNCTION = {names.LABEL_FUNCTION: "segmentation"}
UNMASKED: Json = {"procMount": "Unmasked"}
PART = "or a part of it"
WHOLE = "a host folder that contains"
NEIGHBOURS = "may not have hostPID or hostIPC"
NOT_THE_GATEWAY = "only the gateway creates pods with the label esg-scheduler.io/pool"
FOREIGN_MOUNT = "only what the webhook mounts"
NO_HOST_PATH = "may not have hostPath volumes"
NO_HOST = "may not have hostPID, hostIPC or hostNetwork"
FOREIGN_CLAIM = "gives another pod its GPU"
NO_HOST_PORT = "may not have a hostPort, or a host in a probe"
NO_PROFILE = "may not be Unconfined"
NO_SYSCTL = "may set only the sysctls"
NO_PRIVILEGES = "may not be privileged, have a procMount, or add capabilities"


@pytest.fixture
def guarded(cluster: ControlPlane) -> Iterator[Api]:
    """Apply the policies, and a namespace whose creators of pods are not trusted.

    The API server reads all policies and bindings again when one changes. So those of the probed
    policy are created and deleted last: when they act, or act no more, so do all others.
    """
    api = cluster.api
    documents = list(yaml.safe_load_all(guards_file.PATH.read_text(encoding="utf-8")))
    documents.sort(key=lambda document: document["metadata"]["name"].endswith("-hosts"))
    probe = with_host_path(pod("probe"), ROOT)
    namespace = {"name": TENANT, "labels": {"esg-scheduler.io/tenant": "true"}}
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})
    for document in documents:
        api.apply(document)
    wait_until(lambda: PART in refused(api, PODS, probe), what="the policies act")
    yield api
    for document in documents:
        api.delete(api.path(document))
    wait_until(lambda: PART not in refused(api, PODS, probe), what="no policy acts any more")


def with_host_path(document: Json, path: str, name: str = "host") -> Json:
    """Add a hostPath volume that the first container mounts."""
    changed = deepcopy(document)
    changed["spec"].setdefault("volumes", []).append({"name": name, "hostPath": {"path": path}})
    mounts = changed["spec"]["containers"][0].setdefault("volumeMounts", [])
    mounts.append({"name": name, "mountPath": "/mounted"})
    return changed


def with_spec(document: Json, **fields: object) -> Json:
    """Set fields of the spec."""
    return {**document, "spec": {**document["spec"], **fields}}


def with_container(document: Json, kind: str, **fields: object) -> Json:
    """Add a container with these fields."""
    container = {"name": "added", "image": "i", **fields}
    return with_spec(document, **{kind: [*document["spec"].get(kind, []), container]})


def function_pod(name: str = "function", *, claim: str = "") -> Json:
    """Create a function pod as the webhook admits it, with a volume or a resource claim."""
    return mutate_pod(
        pod(name, labels=FUNCTION),
        0,
        Ceilings(cpu=1, gpu_percent=10, feasible=True),
        PodDefaults(mps_root=ROOT, resource_claims=bool(claim)),
        claim,
    )


def with_claim(document: Json, entry: str, claim: str) -> Json:
    """Add a resource claim that the first container uses."""
    changed = deepcopy(document)
    claims = changed["spec"].setdefault("resourceClaims", [])
    claims.append({"name": entry, "resourceClaimName": claim})
    resources = changed["spec"]["containers"][0].setdefault("resources", {})
    resources.setdefault("claims", []).append({"name": entry})
    return changed


def refused(api: Api, path: str, document: Json) -> str:
    """Return the error of the pod's creation, which is a dry run; empty on success."""
    return refusal(api.request, "POST", path, document, query={"dryRun": "All"})


def test_no_expression_has_a_warning(guarded: Api) -> None:
    """The API server has type-checked the expressions of every policy."""
    for policy in guarded.items(POLICIES):
        path = f"{POLICIES}/{policy['metadata']['name']}"
        wait_until(
            lambda: "observedGeneration" in guarded.get(path).get("status", {}),  # noqa: B023
            what=f"{path} is checked",
        )
        assert "expressionWarnings" not in guarded.get(path)["status"].get("typeChecking", {})


def test_only_the_gateway_creates_pods_of_a_pool(guarded: Api, cluster: ControlPlane) -> None:
    """Others do where the namespace allows it; the label never changes afterwards."""
    account = f"system:serviceaccount:{guards_file.NAMESPACE}:{guards_file.RELEASE}-gateway"
    rbac = "rbac.authorization.k8s.io"
    guarded.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "gateway-creates-pods", "namespace": "default"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": account}],
        }
    )
    member = pod("member", labels={names.LABEL_POOL: names.POOL_MEMBER, **FUNCTION})
    holder = pod("holder", labels={names.LABEL_POOL: names.POOL_HOLDER})
    share = {names.RESOURCE_GPU_PERCENT: "10"}
    holder["spec"]["containers"][0]["resources"] = {"requests": share, "limits": share}
    gateway = cluster.api_as(cluster.client_certificate(account))
    for document in (member, holder):
        assert NOT_THE_GATEWAY in refused(guarded, PODS, document)
        wait_until(
            lambda: not refused(gateway, PODS, document),  # noqa: B023
            what="the gateway creates pods of a pool",
        )
    gateway.close()
    for name, labels in (("plain", {}), ("function", FUNCTION)):
        created = guarded.create(pod(name, labels=labels))
        for role in (names.POOL_MEMBER, names.POOL_HOLDER):
            change = {"metadata": {"labels": {names.LABEL_POOL: role}}}
            assert "must not change after a pod is" in refusal(
                guarded.patch, guarded.path(created), change
            )
    namespace = f"/api/v1/namespaces/{TENANT}"
    guarded.patch(namespace, {"metadata": {"labels": {f"{names.GROUP}/pools": "allow"}}})
    wait_until(
        lambda: not refused(guarded, TENANT_PODS, member), what="the namespace allows members"
    )


def test_pods_of_measurements_are_in_namespaces_for_them(guarded: Api) -> None:
    """The pod states its own memory, so an administrator allows it; the label never changes."""
    measured = pod("measured", labels={names.LABEL_MEASUREMENT: names.MEASURED, **FUNCTION})
    wait_until(
        lambda: "states its own share" in refused(guarded, TENANT_PODS, measured),
        what="the policy is in force",
    )
    created = guarded.create(pod("of-a-profile", labels=FUNCTION))
    change = {"metadata": {"labels": {names.LABEL_MEASUREMENT: names.MEASURED}}}
    assert "must not change after" in refusal(guarded.patch, guarded.path(created), change)
    allowed = {"metadata": {"labels": {f"{names.GROUP}/measurements": "allow"}}}
    guarded.patch(f"/api/v1/namespaces/{TENANT}", allowed)
    wait_until(
        lambda: not refused(guarded, TENANT_PODS, measured), what="the namespace allows them"
    )


def test_the_folder_of_the_daemons_is_for_function_pods_alone(guarded: Api) -> None:
    """However the path is written; agents, in their own namespace, and other folders may."""
    for path in (
        *(ROOT, f"{ROOT}/", f"{ROOT}/GPU-1", f"{ROOT}/GPU-1/pipe", "//run/esg-scheduler///mps"),
        *(f"/var{ROOT}/GPU-1", f"/proc/1/root{ROOT}", "/run/./esg-scheduler/mps"),
    ):
        for document in (pod("plain"), function_pod()):
            assert PART in refused(guarded, PODS, with_host_path(document, path)), path
    assert PART in refused(guarded, PODS, with_host_path(pod("plain"), ROOT, VOLUME))
    agents = PODS.replace("/default/", f"/{guards_file.NAMESPACE}/")
    assert refused(guarded, agents, with_host_path(pod("agent"), ROOT)) == ""
    for path in ("/", "/run", f"{ROOT}-other", "/data", "/var/lib/kubelet"):
        assert refused(guarded, PODS, with_host_path(pod("plain"), path)) == "", path


def test_a_function_pod_has_no_more_of_its_node(guarded: Api) -> None:
    """It passes as the webhook admits it, but not with host namespaces or the daemons' parents."""
    sound = function_pod()
    assert refused(guarded, PODS, sound) == ""
    kubelet = ("/var/lib", "/var/lib/kubelet", "/var/lib/kubelet/pods", "/var/lib//kubelet/plugins")
    for path in ("/", "/.", "/run", "/./run", "/run/esg-scheduler/", "/var/run", "/proc", *kubelet):
        assert WHOLE in refused(guarded, PODS, with_host_path(sound, path)), path
    for path in ("/data/models", "/var/lib/models", "/var/lib/kubelet-models"):
        assert refused(guarded, PODS, with_host_path(sound, path)) == "", path
    for field in ("hostPID", "hostIPC"):
        assert NEIGHBOURS in refused(guarded, PODS, with_spec(sound, **{field: True})), field
        assert refused(guarded, PODS, with_spec(pod("plain"), **{field: True})) == "", field
    for mount in (
        {"name": VOLUME, "mountPath": "/all"},
        {"name": VOLUME, "mountPath": "/all", "subPath": "GPU-2"},
        {"name": VOLUME, "mountPath": "/all", "subPathExpr": "$(ESG_GPU)"},
    ):
        for kind in ("containers", "initContainers"):
            foreign = with_container(sound, kind, volumeMounts=[mount])
            assert FOREIGN_MOUNT in refused(guarded, PODS, foreign), (kind, mount)


def test_pods_of_tenants_have_nothing_of_their_node(guarded: Api) -> None:
    """The webhook's volume is the only exception, and only in a function pod."""
    assert refused(guarded, TENANT_PODS, function_pod()) == ""
    assert refused(guarded, TENANT_PODS, pod("plain")) == ""
    for field in ("hostPID", "hostIPC"):
        assert NO_HOST in refused(guarded, TENANT_PODS, with_spec(pod("plain"), **{field: True}))
    contexts: list[Json] = [
        {"privileged": True},
        {"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}},
        *([UNMASKED] if stores_proc_mount(guarded) else []),
    ]
    for document in (pod("plain"), function_pod()):
        assert NO_HOST_PATH in refused(guarded, TENANT_PODS, with_host_path(document, "/data"))
        network = with_spec(document, hostNetwork=True)
        assert NO_HOST in refused(guarded, TENANT_PODS, network)
        for kind in ("containers", "initContainers"):
            for context in contexts:
                container = with_container(document, kind, securityContext=context)
                if "procMount" in context:
                    container["spec"]["hostUsers"] = False
                assert NO_PRIVILEGES in refused(guarded, TENANT_PODS, container), context
            ordinary = with_container(
                document, kind, securityContext={"capabilities": {"add": ["CHOWN"]}}
            )
            assert refused(guarded, TENANT_PODS, ordinary) == ""


CONTEXTS: list[Json] = [
    {"seLinuxOptions": {"type": "spc_t"}},
    {"seLinuxOptions": {"user": "system_u"}},
    {"seLinuxOptions": {"role": "system_r"}},
    {"seccompProfile": {"type": "Unconfined"}},
    {"appArmorProfile": {"type": "Unconfined"}},
]
SOUND_CONTEXTS: list[Json] = [
    {"seLinuxOptions": {"type": "container_t", "level": "s0:c1,c2"}},
    {"seccompProfile": {"type": "RuntimeDefault"}},
    {"seccompProfile": {"type": "Localhost", "localhostProfile": "own.json"}},
    {"appArmorProfile": {"type": "RuntimeDefault"}},
]
HOST_PORT: Json = {"ports": [{"containerPort": 80, "hostPort": 80}]}
ELSEWHERE: Json = {"port": 80, "host": "10.0.0.1"}
HANDLERS: list[Json] = [
    *({probe: {"httpGet": ELSEWHERE}} for probe in ("livenessProbe", "readinessProbe")),
    {"startupProbe": {"tcpSocket": ELSEWHERE}},
    *({"lifecycle": {hook: {"httpGet": ELSEWHERE}}} for hook in ("postStart", "preStop")),
    {"lifecycle": {"preStop": {"tcpSocket": ELSEWHERE}}},
]
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/main"


def test_pods_of_tenants_keep_to_the_level_baseline(guarded: Api) -> None:
    """Pod Security refuses the same pods in a namespace of that level, and admits the same."""
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    namespace = {"name": "baseline", "labels": labels}
    guarded.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})
    baseline_pods = "/api/v1/namespaces/baseline/pods"
    plain = pod("plain")
    kinds = ("containers", "initContainers")
    context_refused = [with_spec(plain, securityContext=context) for context in CONTEXTS]
    context_refused += [
        with_container(plain, kind, securityContext=context)
        for kind in kinds
        for context in CONTEXTS
    ]
    context_refused.append(pod("plain", annotations={APP_ARMOR: "unconfined"}))
    rows = [(document, NO_PROFILE) for document in context_refused]
    rows += [(with_container(plain, kind, **HOST_PORT), NO_HOST_PORT) for kind in kinds]
    if kubernetes_release.minor() >= 34:  # before, the level baseline has no such rule
        rows += [(with_container(plain, "containers", **h), NO_HOST_PORT) for h in HANDLERS]
    for name in ("kernel.msgmax", "net.core.somaxconn"):
        sysctl = {"sysctls": [{"name": name, "value": "1"}]}
        rows.append((with_spec(plain, securityContext=sysctl), NO_SYSCTL))
    for document, message in rows:
        assert message in refused(guarded, TENANT_PODS, document), document
        assert 'violates PodSecurity "baseline' in refused(guarded, baseline_pods, document)
        assert refused(guarded, PODS, document) == ""
    sysctl = {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}
    own: Json = {"ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": 80}}}
    admitted = [
        with_spec(plain, securityContext=sysctl),
        with_container(plain, "containers", **own),
    ]
    for context in SOUND_CONTEXTS:
        admitted.append(with_spec(plain, securityContext=context))
        admitted += [with_container(plain, kind, securityContext=context) for kind in kinds]
    for document in admitted:
        for path in (TENANT_PODS, baseline_pods):
            assert refused(guarded, path, document) == "", document


def stores_proc_mount(api: Api) -> bool:
    """Tell if the API server stores the field: before Kubernetes 1.33 it drops it by default."""
    document = with_container(pod("plain"), "containers", securityContext=UNMASKED)
    stored: Json = api.request(
        "POST", PODS, with_spec(document, hostUsers=False), query={"dryRun": "All"}
    )
    context: Json = stored["spec"]["containers"][-1].get("securityContext", {})
    return context.get("procMount") == UNMASKED["procMount"]


def test_ephemeral_containers_have_nothing_of_their_node(guarded: Api) -> None:
    """In a tenant's pod they are not privileged; in a function pod they hide the GPUs, too."""
    hidden = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    for name, document in (("plain", pod("plain")), ("function", function_pod())):
        guarded.request("POST", TENANT_PODS, document)
        path = f"{TENANT_PODS}/{name}/ephemeralcontainers"
        try:
            for context, message in (
                ({"privileged": True}, "may not be privileged"),
                ({"capabilities": {"add": ["SYS_PTRACE"]}}, "may not be privileged"),
                *((context, NO_PROFILE) for context in CONTEXTS),
            ):
                change = debugging(env=[hidden], securityContext=context)
                assert message in refusal(guarded.patch, path, change), context
            guarded.patch(path, debugging(env=[hidden]))
        finally:
            guarded.delete(f"{TENANT_PODS}/{name}", grace_s=0)


@pytest.mark.parametrize(
    "variables",
    [
        [],
        [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        [{"name": "NVIDIA_VISIBLE_DEVICES", "value": ""}],
        [
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"},
        ],
        [
            {
                "name": "NVIDIA_VISIBLE_DEVICES",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
            }
        ],
    ],
)
def test_an_ephemeral_container_may_not_request_gpus(guarded: Api, variables: list[Json]) -> None:
    """Its image may request all GPUs of the node, so its environment must hide them."""
    guarded.create(function_pod("debugged"))
    path = f"{PODS}/debugged"
    try:
        error = refusal(guarded.patch, f"{path}/ephemeralcontainers", debugging(env=variables))
        assert "needs the variable NVIDIA_VISIBLE_DEVICES=void" in error
    finally:
        guarded.delete(path, grace_s=0)


def test_annotations_of_devices_are_part_of_a_grant(guarded: Api) -> None:
    """Those of the container toolkit: nobody changes them on a function pod, or binds with them."""
    key = "nvidia.cdi.k8s.io/container.main"
    change = {"metadata": {"annotations": {key: "nvidia.com/gpu=all"}}}
    message = "the annotations nvidia.cdi.k8s.io/ of a function pod"
    for document in (function_pod("of-a-function"), pod("plain")):
        guarded.create(document)
    try:
        path = f"{PODS}/of-a-function"
        assert message in refusal(guarded.patch, path, change)
        assert message in refusal(guarded.patch, f"{path}/status", change)
        forged = function_pod("forged")
        forged["metadata"]["annotations"] = change["metadata"]["annotations"]
        assert message in refused(guarded, PODS, forged)
        error = refusal(guarded.bind, guarded.get(path), "n", annotations={key: "n/g=all"})
        assert "only its own Bindings may have them" in error
        guarded.patch(f"{PODS}/plain", change)
    finally:
        for name in ("of-a-function", "plain"):
            guarded.delete(f"{PODS}/{name}", grace_s=0)


@pytest.mark.skipif(
    kubernetes_release.minor() < 34, reason="an API server before 1.34 drops resource claims"
)
def test_the_claim_of_a_function_pod_is_its_own(guarded: Api) -> None:
    """Another pod that names it would get the CDI device of the first one's GPU; others may."""
    owner = function_pod("owner", claim=new_claim_name())
    assert refused(guarded, PODS, owner) == ""
    [entry] = owner["spec"]["resourceClaims"]
    for document in (pod("thief"), function_pod("thief"), function_pod(claim=new_claim_name())):
        thief = with_claim(document, "other", entry["resourceClaimName"])
        assert FOREIGN_CLAIM in refused(guarded, PODS, thief)
        assert refused(guarded, PODS, with_claim(document, "other", "esg-of-a-user")) == ""
    # Without a request, which another policy refuses: the API server reports either.
    unlabelled = with_claim(pod("thief"), entry["name"], entry["resourceClaimName"])
    assert FOREIGN_CLAIM in refused(guarded, PODS, unlabelled)


def debugging(**container: object) -> Json:
    """Patch by which `kubectl debug` adds a container to a pod."""
    return {"spec": {"ephemeralContainers": [{"name": "debug", "image": "i", **container}]}}
