"""Values that charts are expected to have: names, labels, registries, accounts, networks."""

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
DIGEST = f"sha256:{'0' * 64}"
ALL = {"gateway": {"replicas": 2}}
GKE = "networking.gke.io/v1"
CRDS = "CustomResourceDefinition"


def templates(objects: list[Json]) -> list[Json]:
    """Return the metadata of all pod templates."""
    kinds = {"Deployment", "DaemonSet", "Job"}
    return [o["spec"]["template"]["metadata"] for o in objects if o["kind"] in kinds]


@pytest.mark.slow
def test_names_start_with_the_full_name() -> None:
    """All of them, with fullnameOverride; nameOverride replaces only the chart's part."""
    full = render(fullnameOverride="mine", **ALL)
    assert {o["metadata"]["name"][:4] for o in full if o["kind"] != CRDS} == {"mine"}
    partly = render(nameOverride="gpus", **ALL)
    assert all(o["metadata"]["name"].startswith("esg-gpus") for o in partly if o["kind"] != CRDS)
    service = one(partly, "Service", "-webhook")
    assert service["spec"]["selector"]["app.kubernetes.io/name"] == "gpus"


def test_common_labels_are_everywhere_but_in_selectors() -> None:
    """Selectors cannot be changed. The chart's own labels have precedence."""
    own = {"app.kubernetes.io/instance": "stolen", "app.kubernetes.io/component": "stolen"}
    objects = render(commonLabels={"team": "a", **own}, **ALL)
    for document in objects:
        if document["kind"] == CRDS:
            continue
        labels = document["metadata"]["labels"]
        assert labels["team"] == "a", document["metadata"]["name"]
        assert "stolen" not in labels.values()
    for metadata in templates(objects):
        assert metadata["labels"]["team"] == "a"
        assert "stolen" not in metadata["labels"].values()
    assert "team" not in one(objects, "DaemonSet")["spec"]["selector"]["matchLabels"]


@pytest.mark.slow
def test_the_labels_of_an_object_have_precedence_over_common_ones() -> None:
    """An operator selects by them; a key that occurs twice would be no valid YAML."""
    labels = {"release": "own", "app.kubernetes.io/name": "stolen"}
    objects = render(
        commonLabels={"release": "common"},
        service={"labels": labels},
        gateway={"service": {"labels": labels}},
        scheduler={"podLabels": labels},
        monitoring={
            kind: {"enabled": True, "labels": labels}
            for kind in ("serviceMonitor", "rules", "dashboard")
        },
    )
    chosen = [
        o["metadata"]["labels"]
        for o in objects
        if o["kind"] in {"Service", "ServiceMonitor", "PrometheusRule"}
        or o["metadata"]["name"].endswith("-dashboard")
    ]
    deployment = one(objects, "Deployment", "esg-scheduler")
    chosen.append(deployment["spec"]["template"]["metadata"]["labels"])
    assert {labels["release"] for labels in chosen} == {"own"}
    assert {labels["app.kubernetes.io/name"] for labels in chosen} == {"esg-scheduler"}
    assert deployment["metadata"]["labels"]["release"] == "common"


@pytest.mark.slow
def test_pods_have_another_default_container_by_their_annotations() -> None:
    """Those of the values replace the chart's."""
    chosen = {"kubectl.kubernetes.io/default-container": "other"}
    objects = render(scheduler={"podAnnotations": chosen}, agent={"podAnnotations": chosen})
    for kind, suffix in (("Deployment", "esg-scheduler"), ("DaemonSet", "-agent")):
        template = one(objects, kind, suffix)["spec"]["template"]
        assert template["metadata"]["annotations"].items() >= chosen.items()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("repository", "expected"),
    [
        ("esg-scheduler", "mirror.example/esg-scheduler"),
        ("team/esg-scheduler", "mirror.example/team/esg-scheduler"),
        ("registry.example/team/esg", "mirror.example/team/esg"),
        ("localhost:5000/esg", "mirror.example/esg"),
    ],
)
def test_one_registry_serves_all_images(repository: str, expected: str) -> None:
    """Only the registry of a name is replaced, also that of kube-scheduler."""
    registry = {"imageRegistry": "mirror.example"}
    images = {
        container["image"].rpartition(":")[0]
        for _, container in containers(
            render(image={"repository": repository}, **{"global": registry})
        )
    }
    assert images == {expected, "mirror.example/kube-scheduler"}


@pytest.mark.slow
@pytest.mark.parametrize("registry", ["https://mirror.example", "mirror.example/"])
def test_the_registry_is_the_start_of_an_image_s_name(registry: str) -> None:
    """With a scheme or a last slash no image could be pulled."""
    with pytest.raises(RefusedError, match="does not match pattern"):
        render(**{"global": {"imageRegistry": registry}})


def test_values_that_are_null_are_refused() -> None:
    """A key without a value removes the default, and so do the values of an older release."""
    with pytest.raises(RefusedError) as refused:
        render(image={"tag": None}, gateway={"groups": None}, settings=None)
    for place, name in (("/image", "tag"), ("/gateway", "groups"), ("", "settings")):
        assert f"at '{place}': missing property '{name}'" in str(refused.value)


@pytest.mark.slow
def test_images_may_have_digests() -> None:
    """A digest overrides the tag."""
    values: Json = {
        "image": {"digest": DIGEST},
        "scheduler": {"kubeScheduler": {"digest": DIGEST, "tag": "v1.34.4"}},
    }
    for name, container in containers(render(**values)):
        assert container["image"].endswith(f"@{DIGEST}"), name


@pytest.mark.slow
def test_every_pod_has_all_pull_secrets() -> None:
    """Those of the chart and the global ones."""
    objects = render(
        imagePullSecrets=[{"name": "own"}],
        **{"global": {"imagePullSecrets": [{"name": "shared"}]}},
        **ALL,
    )
    for kind, spec in pod_specs(objects):
        assert spec["imagePullSecrets"] == [{"name": "shared"}, {"name": "own"}], kind
    assert not any("imagePullSecrets" in spec for _, spec in pod_specs(render()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("component", "suffix"),
    [
        ("scheduler", "esg-scheduler"),
        ("webhook", "-webhook"),
        ("agent", "-agent"),
        ("gateway", "-gateway"),
    ],
)
def test_accounts_have_annotations(component: str, suffix: str) -> None:
    """A cloud's identity is bound to an account by them."""
    values: Json = {component: {"serviceAccount": {"annotations": {"role": "mine"}}}}
    account = one(render(**values), "ServiceAccount", suffix)
    assert account["metadata"]["annotations"] == {"role": "mine"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "container"),
    [
        ({"scheduler": {"extender": {"extraEnv": [{"name": "A", "value": "b"}]}}}, "extender"),
        ({"webhook": {"extraEnv": [{"name": "A", "value": "b"}]}}, "webhook"),
        ({"gateway": {"extraEnv": [{"name": "A", "value": "b"}]}}, "gateway"),
    ],
)
def test_containers_take_further_variables(values: Json, container: str) -> None:
    """For a proxy, for example."""
    by_name = dict(containers(render(**values)))
    assert environment(by_name[f"Deployment/{container}"])["A"] == "b"


@pytest.mark.slow
def test_the_webhook_may_serve_some_namespaces() -> None:
    """All registrations have the selector; without a value they have none."""
    selector = {"matchLabels": {"team": "vision"}}
    webhooks = one(render(webhook={"namespaceSelector": selector}), "MutatingWebhookConfiguration")
    assert [w["namespaceSelector"] for w in webhooks["webhooks"]] == 3 * [selector]
    default = one(render(), "MutatingWebhookConfiguration")["webhooks"]
    assert not any("namespaceSelector" in webhook for webhook in default)


@pytest.mark.slow
def test_the_webhook_may_use_the_network_of_its_node() -> None:
    """On ports that are free there; the API server still calls port 443 of the Service."""
    network = {"enabled": True, "port": 18443, "healthPort": 18890}
    objects = render(webhook={"hostNetwork": network})
    deployment = one(objects, "Deployment", "-webhook")["spec"]
    assert deployment["template"]["spec"]["hostNetwork"] is True
    assert deployment["template"]["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert deployment["strategy"]["rollingUpdate"]["maxSurge"] == 0
    variables = environment(dict(containers(objects))["Deployment/webhook"])
    assert (variables["ESG_WEBHOOK_PORT"], variables["ESG_HEALTH_PORT"]) == ("18443", "18890")
    ports = {p["name"]: p for p in one(objects, "Service", "-webhook")["spec"]["ports"]}
    assert (ports["webhook"]["port"], ports["webhook"]["targetPort"]) == (443, 18443)
    assert ports["metrics"]["targetPort"] == 18890


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "expected"), [(None, "PreferDualStack"), ("SingleStack",) * 2])
def test_services_have_both_address_families(policy: str | None, expected: str) -> None:
    """PreferDualStack is valid in clusters of one family too. Programs listen on all addresses."""
    values: Json = {} if policy is None else {"service": {"ipFamilyPolicy": policy}}
    services = [o for o in render(**values, **ALL) if o["kind"] == "Service"]
    assert {service["spec"]["ipFamilyPolicy"] for service in services} == {expected}


@pytest.mark.slow
def test_services_have_annotations_and_labels() -> None:
    """The Service for clients of the gateway has its own."""
    own = {"annotations": {"a": "b"}, "labels": {"c": "d"}}
    objects = render(service=own, **ALL)
    for suffix in ("esg-scheduler", "-webhook", "-agent", "-gateway-metrics"):
        metadata = one(objects, "Service", suffix)["metadata"]
        assert metadata["annotations"] == {"a": "b"}
        assert metadata["labels"].items() >= {"c": "d"}.items()
    gateway = {"service": own}
    metadata = one(render(gateway=gateway), "Service", "-gateway")["metadata"]
    assert (metadata["annotations"], metadata["labels"]["c"]) == ({"a": "b"}, "d")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quota", "apis", "expected"),
    [(-1, (GKE,), "1000"), (-1, (), None), (0, (GKE,), None), (7, (), "7")],
)
def test_gke_gets_a_quota_for_critical_pods(
    quota: int, apis: tuple[str, ...], expected: str | None
) -> None:
    """GKE admits such pods outside kube-system only with one."""
    objects = render(criticalPodsQuota=quota, apis=apis)
    hard = [o["spec"]["hard"]["pods"] for o in objects if o["kind"] == "ResourceQuota"]
    assert hard == ([] if expected is None else [expected])


@pytest.mark.slow
def test_the_quota_for_critical_pods_leaves_those_of_the_cluster_alone() -> None:
    """In kube-system they need none, and more than 1,000 of them run on a few hundred nodes."""
    objects = render(namespace="kube-system", apis=(GKE,))
    assert "ResourceQuota" not in {document["kind"] for document in objects}


@pytest.mark.slow
def test_openshift_s_constraints_are_bound_to_the_accounts() -> None:
    """Agents are privileged there, and only they; other clusters have no such objects."""
    objects = render(openshift={"enabled": True}, **ALL)
    accounts = {o["metadata"]["name"] for o in objects if o["kind"] == "ServiceAccount"}
    bound: dict[str, set[str]] = {}
    for o in objects:
        if (role := o.get("roleRef", {}).get("name", "")).startswith("system:openshift:scc:"):
            bound.setdefault(role, set()).update(s["name"] for s in o["subjects"])
    agent = one(objects, "DaemonSet")["spec"]["template"]["spec"]["serviceAccountName"]
    assert bound["system:openshift:scc:privileged"] == {agent}
    assert bound["system:openshift:scc:nonroot-v2"] == accounts - {agent}
    assert "openshift" not in repr(render())


@pytest.mark.slow
@pytest.mark.parametrize("enabled", [True, False])
def test_dns_passes_the_network_policies_of_openshift(enabled: bool) -> None:
    """Its DNS pods have another port than their Service, and a policy sees that of the pods."""
    for document in render(openshift={"enabled": enabled}):
        if document["kind"] == "NetworkPolicy":
            rules = document["spec"]["egress"]
            ports = {port["port"] for rule in rules for port in rule.get("ports", [])}
            assert 53 in ports
            assert (5353 in ports) is enabled, document["metadata"]["name"]


@pytest.mark.slow
def test_the_removal_has_its_constraint_after_the_uninstall() -> None:
    """Helm deletes the release's own bindings before the Job of the removal starts."""
    job = one(render(openshift={"enabled": True}), "Job", "-removal")
    account = job["spec"]["template"]["spec"]["serviceAccountName"]
    [binding] = [
        o
        for o in render(openshift={"enabled": True})
        if o.get("roleRef", {}).get("name", "").startswith("system:openshift:scc:")
        and account in {subject["name"] for subject in o["subjects"]}
    ]
    hook = job["metadata"]["annotations"]["helm.sh/hook"]
    assert binding["metadata"].get("annotations", {}).get("helm.sh/hook") == hook


@pytest.mark.slow
def test_agents_follow_the_gpu_operator() -> None:
    """They leave a node before its driver is exchanged, and come after CUDA was validated."""
    spec = one(
        render(agent={"gpuOperator": {"client": True, "waitForValidation": True}}), "DaemonSet"
    )
    pod = spec["spec"]["template"]["spec"]
    assert pod["nodeSelector"]["nvidia.com/gpu.deploy.client"] == "true"
    assert pod["nodeSelector"]["esg-scheduler.io/shared"] == "true"
    [wait] = pod["initContainers"]
    assert "/run/nvidia/validations/cuda-ready" in wait["command"][-1]
    assert wait["volumeMounts"][0]["readOnly"] is True
    default = one(render(), "DaemonSet")["spec"]["template"]["spec"]
    assert "initContainers" not in default
    assert "nvidia.com/gpu.deploy.client" not in default["nodeSelector"]


@pytest.mark.slow
def test_agents_may_get_their_devices_by_nri() -> None:
    """Both containers need them."""
    devices = "management.nvidia.com/gpu=all"
    template = one(render(agent={"cdiDevices": devices}), "DaemonSet")["spec"]["template"]
    names = [container["name"] for container in template["spec"]["containers"]]
    annotations = template["metadata"]["annotations"]
    assert {annotations[f"nvidia.cdi.k8s.io/container.{name}"] for name in names} == {devices}


@pytest.mark.slow
def test_kube_scheduler_is_scraped_with_a_token() -> None:
    """Its metrics need an authorized client; the network admits those that scrape the others."""
    objects = render(monitoring={"serviceMonitor": {"enabled": True}})
    health, scheduler = one(objects, "ServiceMonitor", "esg-scheduler")["spec"]["endpoints"]
    assert (health["port"], scheduler["port"], scheduler["scheme"]) == (
        "metrics",
        "scheduler",
        "https",
    )
    assert scheduler["bearerTokenFile"]
    policy = one(objects, "NetworkPolicy", "esg-scheduler")["spec"]["ingress"][0]
    assert {port["port"] for port in policy["ports"]} == {8890, 10259}


@pytest.mark.slow
def test_the_upgrade_of_crds_may_write_only_these() -> None:
    """The Job runs before an upgrade, and its rights end with it."""
    objects = render()
    names = {o["metadata"]["name"] for o in objects if o["kind"] == CRDS}
    first, second = one(objects, "ClusterRole", "-crds")["rules"]
    assert set(first["resourceNames"]) == names
    assert (set(first["verbs"]), set(second["verbs"])) == ({"get", "patch"}, {"create"})
    hooks = [o for o in objects if o["metadata"]["name"].endswith("-crds")]
    for document in objects:
        annotations = document["metadata"].get("annotations", {})
        if annotations.get("helm.sh/hook") == "pre-upgrade":
            assert "hook-succeeded" in annotations["helm.sh/hook-delete-policy"]
    assert {o["kind"] for o in hooks} == {
        "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "NetworkPolicy", "Job",
    }  # fmt: skip
    assert not [o for o in render(upgradeCrds=False) if o["metadata"]["name"].endswith("-crds")]


@BOTH
def test_hooks_are_complete(values: list[Path]) -> None:
    """Whatever a Job of a hook refers to is of the same hook."""
    objects = render(*values)
    hooks = {o["metadata"]["name"]: o for o in objects if o["kind"] == "ServiceAccount"}
    for document in objects:
        if document["kind"] == "Job":
            account = hooks[document["spec"]["template"]["spec"]["serviceAccountName"]]
            hook = document["metadata"]["annotations"]["helm.sh/hook"]
            assert account["metadata"]["annotations"]["helm.sh/hook"] == hook
