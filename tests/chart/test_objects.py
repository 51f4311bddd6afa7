"""What the chart makes: least rights, names of its own, and parts that find one another."""

from base64 import b64decode
from pathlib import Path

import pytest
from cryptography import x509

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

pytestmark = pytest.mark.usefixtures("helm_is_there")
BOTH = pytest.mark.parametrize("values", [[], [EVERYTHING]], ids=["defaults", "everything"])
ROOT = "DaemonSet/mps"
HOURS_OF_A_CERTIFICATE = 90 * 24  # of cert-manager's, where nothing else is asked for
ENDING_S = 15  # what both programs take at most, one after the other, and as much again
# What the cluster has already, and cert-manager makes.
OF_THE_CLUSTER = {
    ("ClusterRole", "system:kube-scheduler"),
    ("ClusterRole", "system:volume-scheduler"),
    ("Role", "extension-apiserver-authentication-reader"),
}


@BOTH
def test_every_container_is_confined(values: list[Path]) -> None:
    """No root, no rights, a root that is read alone. The keeper of MPS alone is root, of few."""
    for name, container in containers(render(*values)):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True, name
        assert security["allowPrivilegeEscalation"] is False, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert security["capabilities"]["drop"] == ["ALL"], name
        if name != ROOT:
            assert security["runAsNonRoot"] is True, name
            assert "add" not in security["capabilities"], name


def test_the_keeper_of_mps_has_the_rights_that_are_written_down() -> None:
    """Root, but never privileged; what is added here is to be told in the template too."""
    keeper = dict(containers(render()))[ROOT]
    assert "privileged" not in keeper["securityContext"]
    assert set(keeper["securityContext"]["capabilities"]["add"]) == {
        "SYS_ADMIN", "SETUID", "SETGID", "KILL", "DAC_OVERRIDE", "SYS_PTRACE",
    }  # fmt: skip


@BOTH
def test_the_host_is_touched_by_the_agents_alone(values: list[Path]) -> None:
    """The host's process ids and one folder of it, which the agent itself may only read."""
    objects = render(*values)
    for kind, spec in pod_specs(objects):
        assert not {"hostNetwork", "hostIPC"} & spec.keys()
        assert spec.get("hostPID", False) == (kind == "DaemonSet")
        paths = [v["hostPath"]["path"] for v in spec.get("volumes", []) if "hostPath" in v]
        assert bool(paths) == (kind == "DaemonSet")
    mounts = {m["name"]: m for m in dict(containers(objects))["DaemonSet/agent"]["volumeMounts"]}
    assert mounts["mps"]["readOnly"] is True


@BOTH
def test_every_container_has_a_limit_of_memory(values: list[Path]) -> None:
    """And says what it needs; vCPUs are not limited, for a throttled scheduler is a late one."""
    for name, container in containers(render(*values)):
        resources = container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys(), name
        assert resources["limits"].keys() == {"memory"}, name


@BOTH
def test_no_image_is_whatever_is_newest(values: list[Path]) -> None:
    """Each has a tag or a digest, and the tag is a version."""
    for name, container in containers(render(*values)):
        image = container["image"]
        tag = image.rpartition("/")[2].partition(":")[2]
        assert "@sha256:" in image or tag[:1] in "v0123456789", name
        assert tag != "", name


@BOTH
def test_what_loads_kernels_can_write_where_numba_keeps_its_cache(values: list[Path]) -> None:
    """The service does, and Numba refuses to without a folder to write to."""
    [extender] = [c for _, c in containers(render(*values)) if c.get("args") == ["serve"]]
    folder = environment(extender)["NUMBA_CACHE_DIR"]
    writable = [m["mountPath"] for m in extender["volumeMounts"] if not m.get("readOnly")]
    assert any(Path(folder).is_relative_to(path) for path in writable)


@BOTH
def test_all_names_are_the_release_s_own(values: list[Path]) -> None:
    """Another release in another namespace shares no name and refers to nothing of this one."""
    mine = without_certificate(render(*values, release="release-a", namespace="space-a"))
    other = without_certificate(render(*values, release="release-b", namespace="space-b"))
    told = repr(mine).replace("release-a", "release-b").replace("space-a", "space-b")
    assert told == repr(other)
    for each in mine:
        if each["kind"] != "CustomResourceDefinition":
            assert each["metadata"]["name"].startswith("release-a-esg-scheduler"), each["kind"]


def without_certificate(objects: list[Json]) -> list[Json]:
    """What is made anew each time is left out, and the checksum of what differs by its name."""
    left = []
    for each in objects:
        if each["kind"] == "Secret":
            each = {**each, "data": {}}  # noqa: PLW2901 - the object of this turn, made anew
        if each["kind"] == "MutatingWebhookConfiguration":
            for webhook in each["webhooks"]:
                webhook["clientConfig"].pop("caBundle", None)
        if each["kind"] == "Deployment":
            each["spec"]["template"]["metadata"]["annotations"].pop("checksum/config")
        left.append(each)
    return left


@BOTH
def test_whatever_is_referred_to_is_there(values: list[Path]) -> None:
    """Accounts, roles, ConfigMaps, Secrets, and the Service that the API server calls."""
    objects = render(*values)
    there = {(each["kind"], each["metadata"]["name"]) for each in objects} | OF_THE_CLUSTER
    there |= {("Secret", e["spec"]["secretName"]) for e in objects if e["kind"] == "Certificate"}
    asked = set()
    for each in objects:
        if "roleRef" in each:
            asked.add((each["roleRef"]["kind"], each["roleRef"]["name"]))
            asked |= {(s["kind"], s["name"]) for s in each["subjects"]}
        for webhook in each.get("webhooks", []):
            asked.add(("Service", webhook["clientConfig"]["service"]["name"]))
        if each["kind"] == "ValidatingAdmissionPolicyBinding":
            asked.add(("ValidatingAdmissionPolicy", each["spec"]["policyName"]))
    for _, spec in pod_specs(objects):
        asked.add(("ServiceAccount", spec["serviceAccountName"]))
        for volume in spec.get("volumes", []):
            if "configMap" in volume:
                asked.add(("ConfigMap", volume["configMap"]["name"]))
            if "secret" in volume:
                asked.add(("Secret", volume["secret"]["secretName"]))
    assert asked <= there


@BOTH
def test_services_and_policies_mean_pods_and_ports_that_there_are(values: list[Path]) -> None:
    """Each selector takes the pods of one template, and each port is one of theirs.

    Ports are told by number: before 1.32 a Service does not find a sidecar's by its name.
    """
    objects = render(*values)
    ports = {
        (kind, port["containerPort"])
        for kind, spec in pod_specs(objects)
        for container in [*spec.get("initContainers", []), *spec["containers"]]
        for port in container.get("ports", [])
    }
    labels = {
        each["kind"]: each["spec"].get("template", each)["metadata"]["labels"]
        for each in objects
        if each["kind"] in {"Deployment", "DaemonSet", "Job", "Pod"}
    }

    def taken(selector: Json) -> str:
        [kind] = [k for k, has in labels.items() if selector.items() <= has.items()]
        return kind

    for each in objects:
        if each["kind"] == "Service":
            kind = taken(each["spec"]["selector"])
            assert {(kind, p["targetPort"]) for p in each["spec"]["ports"]} <= ports
        if each["kind"] == "NetworkPolicy":
            kind = taken(each["spec"]["podSelector"]["matchLabels"])
            let_in = {(kind, p["port"]) for rule in each["spec"]["ingress"] for p in rule["ports"]}
            assert let_in <= ports
        if each["kind"] == "ServiceMonitor":
            wanted = each["spec"]["selector"]["matchLabels"]
            [service] = [
                s
                for s in objects
                if s["kind"] == "Service" and wanted.items() <= s["metadata"]["labels"].items()
            ]
            assert [e["port"] for e in each["spec"]["endpoints"]] == [
                p["name"] for p in service["spec"]["ports"]
            ]


@BOTH
def test_probes_ask_what_listens_outside(values: list[Path]) -> None:
    """The kubelet is not in the pod: it asks named ports, and never the extender's own."""
    all_of_them = dict(containers(render(*values)))
    extender = all_of_them["Deployment/extender"]
    told = environment(extender)
    named = {port["name"]: str(port["containerPort"]) for port in extender["ports"]}
    assert named == {"webhook": told["ESG_WEBHOOK_PORT"], "health": told["ESG_HEALTH_PORT"]}
    assert told["ESG_HOST"] == "127.0.0.1"
    assert told["ESG_PORT"] not in named.values()
    agent = all_of_them["DaemonSet/agent"]
    assert environment(agent)["ESG_AGENT_PORT"] == str(agent["ports"][0]["containerPort"])
    for container in (extender, agent):
        own = {port["name"] for port in container["ports"]}
        probes = [each for name, each in container.items() if name.endswith("Probe")]
        assert {probe["httpGet"]["port"] for probe in probes} <= own
        assert len(probes) >= 2


@BOTH
def test_kube_scheduler_is_started_anew_where_its_extender_stays_ill(values: list[Path]) -> None:
    """It gives up the lease so; whether it may be asked itself, it is asked itself."""
    all_of_them = dict(containers(render(*values)))
    scheduler, extender = (all_of_them[f"Deployment/{n}"] for n in ("kube-scheduler", "extender"))
    asked = scheduler["livenessProbe"]["httpGet"]
    assert asked["path"] == extender["readinessProbe"]["httpGet"]["path"]
    assert str(asked["port"]) == environment(extender)["ESG_HEALTH_PORT"]
    assert scheduler["readinessProbe"]["httpGet"]["port"] == "scheduler"


@BOTH
def test_a_replica_that_ends_answers_until_api_servers_know(values: list[Path]) -> None:
    """They call it for a moment yet, and each call in vain is a pod refused; then it may end."""
    spec = one(render(*values), "Deployment")["spec"]["template"]["spec"]
    [extender] = [each for each in spec["initContainers"] if each["name"] == "extender"]
    drain_s = extender["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert 0 < drain_s <= spec["terminationGracePeriodSeconds"] - ENDING_S


@BOTH
def test_every_pod_goes_to_linux(values: list[Path]) -> None:
    """In a cluster that has nodes with Windows too, where no image of these would start."""
    for kind, spec in pod_specs(render(*values)):
        assert spec["nodeSelector"]["kubernetes.io/os"] == "linux", kind


@pytest.mark.parametrize("key", ["nodeSelector", "tolerations", "affinity"])
def test_the_pods_of_hooks_go_where_the_scheduler_s_may(key: str) -> None:
    """Where it is kept to some nodes, others may not take pods, or reach no API server."""
    specs = dict(pod_specs(render(EVERYTHING)))
    assert specs["Pod"][key] == specs["Job"][key] == specs["Deployment"][key]


@BOTH
def test_both_programs_agree_on_the_folder_of_the_daemons(values: list[Path]) -> None:
    """The webhook mounts into function pods what the keeper makes on the host."""
    objects = render(*values)
    told = {name: environment(each) for name, each in containers(objects)}
    folder = told["Deployment/extender"]["ESG_MPS_ROOT"]
    spec = one(objects, "DaemonSet")["spec"]["template"]["spec"]
    [volume] = [v for v in spec["volumes"] if v["name"] == "mps"]
    assert volume["hostPath"] == {"path": folder, "type": "DirectoryOrCreate"}
    for name in ("DaemonSet/agent", "DaemonSet/mps"):
        assert told[name]["ESG_AGENT_MPS_ROOT"] == folder


def test_an_upgrade_restarts_no_daemon_by_itself() -> None:
    """It would end the processes that use the GPUs: the operator says when."""
    assert one(render(), "DaemonSet")["spec"]["updateStrategy"] == {"type": "OnDelete"}


@pytest.mark.parametrize(("settings", "seconds"), [({}, 30), ({"mps_stop_s": 600}, 620)])
def test_daemons_have_the_time_that_their_clients_are_given(settings: Json, seconds: int) -> None:
    """The kubelet kills none while it waits for its clients to end."""
    spec = one(render(agent={"settings": settings}), "DaemonSet")["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == seconds


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
    """Without what a vendor adds to it, and whole where only the minor is told (Argo CD).

    And it is asked by the paths that the version has.
    """
    container = dict(containers(render(kubernetes=kubernetes)))["Deployment/kube-scheduler"]
    assert container["image"] == f"registry.k8s.io/kube-scheduler:{image}"
    assert container["readinessProbe"]["httpGet"]["path"] == readiness


def test_an_older_kubernetes_is_refused() -> None:
    """Before 1.30 there are no policies to guard the grants with."""
    with pytest.raises(RefusedError, match="kubeVersion"):
        render(kubernetes="1.29.9")


def test_parts_can_be_left_out() -> None:
    """Without the agent nothing of it is there; without MPS the agent does not ask for it."""
    objects = render(
        agent={"enabled": False}, guards={"enabled": False}, networkPolicy={"enabled": False}
    )
    kinds = {each["kind"] for each in objects}
    assert not kinds & {"DaemonSet", "NetworkPolicy", "ValidatingAdmissionPolicy"}
    assert not [each for each in objects if each["metadata"]["name"].endswith("-agent")]
    assert not [each for each in render(cleanUp=False) if each["kind"] == "Job"]
    alone = dict(containers(render(mps={"enabled": False})))
    assert ROOT not in alone
    assert environment(alone["DaemonSet/agent"])["ESG_AGENT_REQUIRE_MPS"] == "false"


def test_a_single_replica_holds_up_no_drain() -> None:
    """A budget of one for one replica would."""
    kinds = {each["kind"] for each in render(scheduler={"replicas": 1})}
    assert "PodDisruptionBudget" not in kinds


def test_priority_classes_can_be_given_up_or_let_in() -> None:
    """Where they are kept for kube-system, either a quota lets them in or there are none."""
    none = {"priorityClassName": ""}
    for _, spec in pod_specs(render(scheduler=none, agent=none)):
        assert "priorityClassName" not in spec
    quota = one(render(criticalPodsQuota=20), "ResourceQuota")
    named = {s["priorityClassName"] for _, s in pod_specs(render()) if "priorityClassName" in s}
    assert named <= set(quota["spec"]["scopeSelector"]["matchExpressions"][0]["values"])


def test_limits_are_checked_on_request_in_the_chart_s_own_image() -> None:
    """And as the one user that functions run as, which the MPS daemons hear of too."""
    chosen = render(webhook={"checkLimits": True}, settings={"mps_uid": 2_000_000_000})
    found = dict(containers(chosen))
    told = environment(found["Deployment/extender"])
    assert told["ESG_MPS_CHECK_IMAGE"] == found["DaemonSet/agent"]["image"]
    assert told["ESG_MPS_UID"] == environment(found["DaemonSet/mps"])["ESG_AGENT_MPS_UID"]
    as_usual = dict(containers(render()))["Deployment/extender"]
    assert "ESG_MPS_CHECK_IMAGE" not in environment(as_usual)
    with pytest.raises(RefusedError, match=r"checkLimits wants settings\.mps_uid"):
        render(webhook={"checkLimits": True})


def test_the_certificate_is_the_webhook_s_and_the_api_server_knows_its_authority() -> None:
    """It names the Service as the API server calls it, and its authority signed it."""
    objects = render()
    data = {name: b64decode(text) for name, text in one(objects, "Secret")["data"].items()}
    certificate = x509.load_pem_x509_certificate(data["tls.crt"])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    service = one(objects, "Service", "-webhook")["metadata"]
    host = f"{service['name']}.{service['namespace']}.svc"
    assert names.get_values_for_type(x509.DNSName) == [host]
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(data["ca.crt"]))
    for webhook in one(objects, "MutatingWebhookConfiguration")["webhooks"]:
        assert b64decode(webhook["clientConfig"]["caBundle"]) == data["ca.crt"]


def test_the_certificate_may_come_from_elsewhere() -> None:
    """From a Secret of the operator's, with its authority; or from cert-manager, which adds it."""
    own = render(webhook={"existing": {"secretName": "mine", "caBundle": "QUJD"}})
    assert "Secret" not in {each["kind"] for each in own}
    volumes = one(own, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert "mine" in {v["secret"]["secretName"] for v in volumes if "secret" in v}
    configured = one(own, "MutatingWebhookConfiguration")
    assert {w["clientConfig"]["caBundle"] for w in configured["webhooks"]} == {"QUJD"}
    managed = render(webhook={"certManager": {"enabled": True}})
    assert "Secret" not in {each["kind"] for each in managed}
    certificate = one(managed, "Certificate", "-webhook")["metadata"]
    annotations = one(managed, "MutatingWebhookConfiguration")["metadata"]["annotations"]
    named = annotations["cert-manager.io/inject-ca-from"]
    assert named == f"{certificate['namespace']}/{certificate['name']}"
    issuer = {
        "certManager": {"enabled": True, "issuerRef": {"name": "ca", "kind": "ClusterIssuer"}}
    }
    own = render(webhook=issuer)
    assert "Issuer" not in {each["kind"] for each in own}
    assert one(own, "Certificate")["spec"]["issuerRef"] == issuer["certManager"]["issuerRef"]


def test_a_renewed_certificate_has_the_authority_of_the_one_before() -> None:
    """Replicas serve the old one for a minute more, and the API server must trust both."""
    objects = render(webhook={"certManager": {"enabled": True}})
    served = one(objects, "Certificate", "-webhook")["spec"]
    assert not served.get("isCA", False)
    issuer = one(objects, served["issuerRef"]["kind"], served["issuerRef"]["name"])["spec"]
    [authority] = [
        each["spec"]
        for each in objects
        if each["kind"] == "Certificate" and each["spec"]["secretName"] != served["secretName"]
    ]
    assert issuer == {"ca": {"secretName": authority["secretName"]}}
    assert authority["isCA"] is True
    assert authority["commonName"]
    assert authority["privateKey"]["rotationPolicy"] == "Never"
    assert int(authority["duration"].removesuffix("h")) > 20 * HOURS_OF_A_CERTIFICATE
    signs_itself = one(objects, authority["issuerRef"]["kind"], authority["issuerRef"]["name"])
    assert signs_itself["spec"] == {"selfSigned": {}}


@pytest.mark.parametrize(
    "webhook",
    [
        {"existing": {"secretName": "mine"}},
        {"existing": {"secretName": "mine", "caBundle": "QUJD"}, "certManager": {"enabled": True}},
    ],
)
def test_half_a_certificate_is_refused(webhook: Json) -> None:
    """Without its authority the API server trusts nobody; and it comes from one place alone."""
    with pytest.raises(RefusedError, match=r"webhook\.existing\.secretName"):
        render(webhook=webhook)


def test_metrics_are_let_to_those_that_are_named_alone() -> None:
    """And to `helm test`; the webhook is open, and nothing else is."""
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    objects = render(networkPolicy={"metricsFrom": [peer]})
    for name in ("esg-scheduler", "-agent"):
        rules = one(objects, "NetworkPolicy", name)["spec"]["ingress"]
        [port_rule] = [rule for rule in rules if rule["ports"][0]["port"] in {8889, 8890}]
        assert port_rule["from"][0] == peer
        assert [rule for rule in rules if "from" not in rule] == [
            rule for rule in rules if rule["ports"][0]["port"] == 8443
        ]
