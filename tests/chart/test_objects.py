"""Objects of the chart: minimum rights, unique names, and references that resolve."""

from pathlib import Path

import pytest

from tests.chart.rendering import (
    EVERYTHING,
    Json,
    RefusedError,
    containers,
    environment,
    one,
    pod_specs,
    render,
)

pytestmark = pytest.mark.usefixtures("helm_built")
BOTH = pytest.mark.parametrize("values", [[], [EVERYTHING]], ids=["defaults", "everything"])
MPS = "DaemonSet/mps"  # the supervisor of the MPS daemons
AGENT = "DaemonSet/agent"
SHUTDOWN_S = 15  # twice what both programs need, one after the other
# Roles that exist in every cluster.
CLUSTER_ROLES = {
    ("ClusterRole", "system:kube-scheduler"),
    ("ClusterRole", "system:volume-scheduler"),
    ("ClusterRole", "system:openshift:scc:nonroot-v2"),
    ("ClusterRole", "system:openshift:scc:privileged"),
    ("Role", "extension-apiserver-authentication-reader"),
}


@BOTH
def test_every_container_is_restricted(values: list[Path]) -> None:
    """Read-only root file system, no capabilities, no root; only the MPS supervisor is root.

    With resource claims the agent is, too: the kubelet's folders belong to root.
    """
    is_root = {MPS, AGENT} if values else {MPS}
    for name, container in containers(render(*values)):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True, name
        assert security["allowPrivilegeEscalation"] is False, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert security["capabilities"]["drop"] == ["ALL"], name
        assert security.get("runAsNonRoot", False) == (name not in is_root), name
        if name != MPS:
            assert "add" not in security["capabilities"], name


@BOTH
def test_only_the_daemon_set_uses_the_host(values: list[Path]) -> None:
    """It uses the host's process ids and folders; the agent mounts the MPS folder read-only."""
    objects = render(*values)
    for kind, spec in pod_specs(objects):
        assert "hostIPC" not in spec
        is_webhook = spec["serviceAccountName"].endswith("-webhook")
        assert spec.get("hostNetwork", False) == (is_webhook and bool(values))
        assert spec.get("hostPID", False) == (kind == "DaemonSet")
        paths = [v["hostPath"]["path"] for v in spec.get("volumes", []) if "hostPath" in v]
        assert bool(paths) == (kind == "DaemonSet")
    mounts = {m["name"]: m for m in dict(containers(objects))[AGENT]["volumeMounts"]}
    assert mounts["mps"]["readOnly"] is True


@BOTH
def test_every_container_has_requests_and_a_memory_limit(values: list[Path]) -> None:
    """The chart requests vCPUs but does not limit them: throttling delays the scheduler.

    The servers of all GPUs share a container: at a limit of its memory, all of them would end.
    """
    for name, container in containers(render(*values)):
        resources = container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys(), name
        limits = set() if name == "DaemonSet/mps" else {"memory"}
        assert resources.get("limits", {}).keys() == limits, name


@BOTH
def test_every_image_has_a_version(values: list[Path]) -> None:
    """Every image has a digest, or a tag that is a version."""
    for name, container in containers(render(*values)):
        image = container["image"]
        tag = image.rpartition("/")[2].partition(":")[2]
        assert "@sha256:" in image or tag[:1] in "v0123456789", name
        assert tag != "", name


@BOTH
def test_names_contain_release_and_namespace(values: list[Path]) -> None:
    """Two releases in two namespaces share no name and no reference."""
    first = without_certificate(render(*values, release="release-a", namespace="space-a"))
    second = without_certificate(render(*values, release="release-b", namespace="space-b"))
    renamed = repr(first).replace("release-a", "release-b").replace("space-a", "space-b")
    assert renamed == repr(second)
    for document in first:
        kind, name = document["kind"], document["metadata"]["name"]
        if kind != "CustomResourceDefinition":
            assert name.startswith("release-a-esg-scheduler"), kind


def without_certificate(objects: list[Json]) -> list[Json]:
    """Remove the certificate, which each rendering generates, and the checksum of the names."""
    for document in objects:
        if document["kind"] == "Secret":
            document["data"] = {}
        if document["kind"] == "MutatingWebhookConfiguration":
            for webhook in document["webhooks"]:
                webhook["clientConfig"].pop("caBundle", None)
        if document["kind"] == "Deployment":
            annotations = document["spec"]["template"]["metadata"].get("annotations", {})
            annotations.pop("checksum/config", None)
    return objects


@BOTH
def test_every_reference_resolves(values: list[Path]) -> None:
    """Accounts, roles, ConfigMaps, Secrets, policies, and the webhook's Service exist."""
    objects = render(*values)
    existing = {(o["kind"], o["metadata"]["name"]) for o in objects} | CLUSTER_ROLES
    # cert-manager creates the Secret of a Certificate.
    existing |= {("Secret", o["spec"]["secretName"]) for o in objects if o["kind"] == "Certificate"}
    existing.add(("Secret", "gateway-certificate"))  # of the user
    references = set()
    for document in objects:
        if "roleRef" in document:
            references.add((document["roleRef"]["kind"], document["roleRef"]["name"]))
            references |= {(s["kind"], s["name"]) for s in document["subjects"]}
        for webhook in document.get("webhooks", []):
            references.add(("Service", webhook["clientConfig"]["service"]["name"]))
        if document["kind"] == "ValidatingAdmissionPolicyBinding":
            references.add(("ValidatingAdmissionPolicy", document["spec"]["policyName"]))
    for _, spec in pod_specs(objects):
        references.add(("ServiceAccount", spec["serviceAccountName"]))
        for volume in spec.get("volumes", []):
            if "configMap" in volume:
                references.add(("ConfigMap", volume["configMap"]["name"]))
            if "secret" in volume:
                references.add(("Secret", volume["secret"]["secretName"]))
    assert references <= existing


@BOTH
def test_selectors_and_ports_match_pods_of_the_chart(values: list[Path]) -> None:
    """Every selector matches the pods of one template, and every port is one of theirs.

    Ports are numbers, because before 1.32 a Service cannot resolve a sidecar's port name.
    """
    objects = render(*values)
    templates = [
        document["spec"].get("template", document)
        for document in objects
        if document["kind"] in {"Deployment", "DaemonSet", "Job", "Pod"}
    ]

    def selected_ports(selector: Json) -> set[int]:
        [spec] = [
            t["spec"] for t in templates if selector.items() <= t["metadata"]["labels"].items()
        ]
        return {
            port["containerPort"]
            for container in [*spec.get("initContainers", []), *spec["containers"]]
            for port in container.get("ports", [])
        }

    for document in objects:
        spec = document.get("spec", {})
        if document["kind"] == "Service":
            assert {port["targetPort"] for port in spec["ports"]} <= selected_ports(
                spec["selector"]
            )
        if document["kind"] in {"NetworkPolicy", "PodDisruptionBudget"}:
            ports = selected_ports(spec.get("podSelector", spec.get("selector"))["matchLabels"])
            assert {port["port"] for r in spec.get("ingress", []) for port in r["ports"]} <= ports
        if document["kind"] == "ServiceMonitor":
            selector = spec["selector"]["matchLabels"]
            ports = [
                {port["name"] for port in s["spec"]["ports"]}
                for s in objects
                if s["kind"] == "Service" and selector.items() <= s["metadata"]["labels"].items()
            ]
            assert ports  # those of all groups of gateways
            endpoints = {endpoint["port"] for endpoint in spec["endpoints"]}
            assert all(endpoints <= named for named in ports)


@BOTH
def test_probes_use_ports_that_listen_outside_the_pod(values: list[Path]) -> None:
    """The kubelet probes named ports; the extender's own port listens on the loopback only."""
    by_name = dict(containers(render(*values)))
    extender, webhook, agent = (
        by_name[name] for name in ("Deployment/extender", "Deployment/webhook", AGENT)
    )
    for container, settings in (
        (extender, {"health": "ESG_HEALTH_PORT"}),
        (webhook, {"health": "ESG_HEALTH_PORT", "webhook": "ESG_WEBHOOK_PORT"}),
        (agent, {"health": "ESG_AGENT_PORT"}),
    ):
        named = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
        variables = environment(container)
        assert named == {name: variables[setting] for name, setting in settings.items()}
        probes = [probe for key, probe in container.items() if key.endswith("Probe")]
        assert {probe["httpGet"]["port"] for probe in probes} <= named.keys()
        assert len(probes) >= 2
    assert environment(extender)["ESG_HOST"] == "127.0.0.1"


@BOTH
def test_the_webhook_shares_nothing_with_the_extender(values: list[Path]) -> None:
    """Any pod may call it, so it has its own pods and account, and no right to write."""
    objects = render(*values)
    specs = {
        document["metadata"]["name"]: document["spec"]["template"]["spec"]
        for document in objects
        if document["kind"] == "Deployment" and "gateway" not in document["metadata"]["name"]
    }
    assert [name.endswith("-webhook") for name in specs].count(True) == 1
    for name, spec in specs.items():
        arguments = [c.get("args") for c in [*spec.get("initContainers", []), *spec["containers"]]]
        assert (["webhook"] in arguments) == name.endswith("-webhook")
        assert (["serve"] in arguments) != name.endswith("-webhook")
        mounts_key = any("secret" in volume for volume in spec["volumes"])
        assert mounts_key == name.endswith("-webhook")
    account = one(objects, "Deployment", "-webhook")["spec"]["template"]["spec"][
        "serviceAccountName"
    ]
    roles = {
        document["roleRef"]["name"]
        for document in objects
        if "roleRef" in document and account in {s["name"] for s in document["subjects"]}
    }
    rules = [rule for o in objects if o["metadata"]["name"] in roles for rule in o.get("rules", [])]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"list", "watch"}


@BOTH
def test_kube_scheduler_restarts_if_its_extender_stays_unhealthy(values: list[Path]) -> None:
    """The restart releases the lease; kube-scheduler's readiness is its own."""
    by_name = dict(containers(render(*values)))
    scheduler, extender = (by_name[f"Deployment/{n}"] for n in ("kube-scheduler", "extender"))
    liveness = scheduler["livenessProbe"]["httpGet"]
    assert liveness["path"] == extender["readinessProbe"]["httpGet"]["path"]
    assert str(liveness["port"]) == environment(extender)["ESG_HEALTH_PORT"]
    assert scheduler["readinessProbe"]["httpGet"]["port"] == "scheduler"


@BOTH
def test_a_terminating_replica_serves_until_api_servers_notice(values: list[Path]) -> None:
    """They call it for some seconds more, and a failed call refuses a pod."""
    spec = one(render(*values), "Deployment", "-webhook")["spec"]["template"]["spec"]
    [webhook] = spec["containers"]
    drain_s = webhook["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert 0 < drain_s <= spec["terminationGracePeriodSeconds"] - SHUTDOWN_S


@BOTH
def test_every_pod_selects_linux_nodes(values: list[Path]) -> None:
    """A cluster may have Windows nodes, which cannot start these images."""
    for kind, spec in pod_specs(render(*values)):
        assert spec["nodeSelector"]["kubernetes.io/os"] == "linux", kind


@pytest.mark.parametrize("key", ["nodeSelector", "tolerations", "affinity"])
def test_pods_of_webhook_gateway_and_hooks_are_placed_like_the_scheduler(key: str) -> None:
    """Other nodes may refuse pods, or may not reach the API server."""
    specs = list(pod_specs(render(EVERYTHING)))
    placements = [spec[key] for kind, spec in specs if kind in {"Pod", "Job", "Deployment"}]
    assert placements == [placements[0]] * 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kubernetes", "image", "readiness"),
    [
        ("1.30.14", "v1.30.14", "/healthz"),
        ("1.33", "v1.33.0", "/readyz"),
        ("v1.33.5-gke.1", "v1.33.5", "/readyz"),
        ("1.31.2-gke.1384000", "v1.31.2", "/readyz"),
        ("v1.36.0+k3s1", "v1.36.0", "/readyz"),
    ],
)
def test_kube_scheduler_is_the_cluster_s_own_version(
    kubernetes: str, image: str, readiness: str
) -> None:
    """Its tag has no vendor suffix, and always a patch version (Argo CD reports the minor only).

    The probe uses the path that the version has.
    """
    container = dict(containers(render(kubernetes=kubernetes)))["Deployment/kube-scheduler"]
    assert container["image"] == f"registry.k8s.io/kube-scheduler:{image}"
    assert container["readinessProbe"]["httpGet"]["path"] == readiness


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kubernetes", "tag", "is_switched_off"),
    [
        ("1.32.9", "", False),  # it does not know the gate, or has it off
        ("1.33", "", True),
        ("v1.36.0+k3s1", "", True),
        ("1.37.0", "", False),  # the gate may be gone
        ("1.36.0", "v1.32.1", False),
        ("1.32.0", "v1.34.1-vendor.2", True),
        ("1.34.0", "v1.34.1_built.here", True),
        ("1.34.0", "latest", False),
    ],
)
def test_preemption_is_synchronous(kubernetes: str, tag: str, *, is_switched_off: bool) -> None:
    """An asynchronous one may forget the pod that preempts for five minutes."""
    values = {"scheduler": {"kubeScheduler": {"tag": tag}}}
    rendered = dict(containers(render(kubernetes=kubernetes, **values)))
    command = rendered["Deployment/kube-scheduler"]["command"]
    assert ("--feature-gates=SchedulerAsyncPreemption=false" in command) is is_switched_off


def test_an_older_kubernetes_is_refused() -> None:
    """Versions before 1.30 have no ValidatingAdmissionPolicy to protect grants."""
    with pytest.raises(RefusedError, match="kubeVersion"):
        render(kubernetes="1.29.9")


@pytest.mark.slow
def test_parts_can_be_disabled() -> None:
    """A disabled agent has no objects; with MPS disabled the agent does not require it."""
    objects = render(
        agent={"enabled": False}, guards={"enabled": False}, networkPolicy={"enabled": False}
    )
    kinds = {o["kind"] for o in objects}
    assert not kinds & {"DaemonSet", "NetworkPolicy", "ValidatingAdmissionPolicy"}
    assert not [o for o in objects if o["metadata"]["name"].endswith("-agent")]
    assert not [o for o in render(cleanUp=False, upgradeCrds=False) if o["kind"] == "Job"]
    without_mps = dict(containers(render(mps={"enabled": False})))
    assert MPS not in without_mps
    assert environment(without_mps[AGENT])["ESG_AGENT_REQUIRE_MPS"] == "false"


@pytest.mark.slow
def test_a_single_replica_does_not_block_a_drain() -> None:
    """A PodDisruptionBudget of one replica would block it."""
    for part, suffix in (("scheduler", "-scheduler"), ("webhook", "-webhook")):
        objects = render(**{part: {"replicas": 1}})
        [budget] = [o for o in objects if o["kind"] == "PodDisruptionBudget"]
        assert not budget["metadata"]["name"].endswith(suffix)


@pytest.mark.slow
def test_priority_classes_can_be_disabled_or_allowed_by_a_quota() -> None:
    """Some clusters restrict the system priority classes to kube-system."""
    none = {"priorityClassName": ""}
    for _, spec in pod_specs(render(scheduler=none, agent=none)):
        assert "priorityClassName" not in spec
    quota = one(render(criticalPodsQuota=20), "ResourceQuota")
    named = {s["priorityClassName"] for _, s in pod_specs(render()) if "priorityClassName" in s}
    assert named <= set(quota["spec"]["scopeSelector"]["matchExpressions"][0]["values"])


@pytest.mark.slow
def test_check_limits_uses_the_chart_s_image_and_user() -> None:
    """The check runs as the one user of functions, which the MPS daemons know too."""
    chosen = render(webhook={"checkLimits": True}, settings={"mps_uid": 2_000_000_000})
    by_name = dict(containers(chosen))
    variables = environment(by_name["Deployment/webhook"])
    assert variables["ESG_MPS_CHECK_IMAGE"] == by_name[AGENT]["image"]
    assert variables["ESG_MPS_UID"] == environment(by_name["DaemonSet/mps"])["ESG_AGENT_MPS_UID"]
    default = dict(containers(render()))["Deployment/webhook"]
    assert "ESG_MPS_CHECK_IMAGE" not in environment(default)
    with pytest.raises(RefusedError, match=r"checkLimits needs settings\.mps_uid"):
        render(webhook={"checkLimits": True}, settings={"mps_uid": 0})


@pytest.mark.slow
@pytest.mark.parametrize(
    "peers",
    [[], [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]],
)
def test_metrics_are_open_to_the_listed_peers_only(peers) -> None:
    """`helm test` may read them too; only the webhook is open to all."""
    objects = render(networkPolicy={"metricsFrom": peers})
    for name in ("esg-scheduler", "-webhook", "-agent"):
        rules = one(objects, "NetworkPolicy", name)["spec"]["ingress"]
        [port_rule] = [rule for rule in rules if rule["ports"][0]["port"] in {8889, 8890}]
        *listed, test = port_rule["from"]
        assert listed == peers
        labels = test["podSelector"]["matchLabels"]
        assert labels["app.kubernetes.io/component"] == "test"
        assert [rule for rule in rules if "from" not in rule] == [
            rule for rule in rules if rule["ports"][0]["port"] == 8443
        ]


def test_a_default_installation_has_no_agent_on_any_node() -> None:
    """Nodes opt in by a label that nothing but an operator sets."""
    selector = one(render(), "DaemonSet")["spec"]["template"]["spec"]["nodeSelector"]
    assert selector["esg-scheduler.io/shared"] == "true"
