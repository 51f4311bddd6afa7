"""The gateway in the chart: with the rights to read, and ended gently."""

import pytest

from scheduler.gateway.replicas.shards import SHARDS
from scheduler.model.yaml_parser import parse_yaml
from tests.chart.rendering import (
    EVERYTHING,
    Json,
    RefusedError,
    containers,
    environment,
    one,
    render,
)
from tests.testbed import REPOSITORY

pytestmark = pytest.mark.usefixtures("helm_built")
DEPLOY = REPOSITORY / "deploy"
LABEL_MAX = 63  # characters of a Service's name
STOP_S = 5 + 2 * 5  # its preStop, and answers that clients still take over HTTP and gRPC


def installed(**values: Json) -> list[Json]:
    return render(gateway=values)


def rules_of(objects: list[Json], kind: str) -> dict[str, set[str]]:
    """Map the resources of the gateway's role to its verbs."""
    rules = one(objects, kind, "-gateway")["rules"]
    return {resource: set(rule["verbs"]) for rule in rules for resource in rule["resources"]}


@pytest.mark.slow
def test_it_can_be_left_out() -> None:
    """Then no object of the chart belongs to it."""
    assert not [o for o in installed(enabled=False) if "gateway" in o["metadata"]["name"]]


STATUS_RULES = {
    "workflows/status": {"patch"},
    "functionservers/status": {"patch"},
    "events": {"create", "patch"},
}


@pytest.mark.slow
def test_it_may_only_read_and_write_statuses() -> None:
    """It lists and watches documents and pods; it needs no node and no Secret."""
    read = {"list", "watch"}
    documents = ("functionprofiles", "workflows", "functionservers", "pods")
    expected = dict.fromkeys(documents, read) | STATUS_RULES
    assert rules_of(installed(), "ClusterRole") == expected
    roles = [o["metadata"]["name"] for o in installed() if o["kind"] == "Role"]
    assert not [name for name in roles if "gateway" in name]


@pytest.mark.slow
def test_rights_to_check_tokens() -> None:
    """They come with the setting, whatever the namespace."""
    for values in ({}, {"namespace": "vision"}):
        role = one(installed(settings={"access": True}, **values), "ClusterRole", "-gateway")
        assert role["rules"][-3:] == deployed_rules("-access")
    assert "tokenreviews" not in rules_of(installed(), "ClusterRole")


@pytest.mark.slow
def test_rights_to_one_namespace() -> None:
    """With a namespace only profiles, which have none, are read in the whole cluster."""
    objects = installed(namespace="vision")
    assert set(rules_of(objects, "ClusterRole")) == {"functionprofiles"}
    namespaced = {"workflows", "functionservers", "pods", *STATUS_RULES}
    assert set(rules_of(objects, "Role")) == namespaced
    binding = one(objects, "RoleBinding", "-gateway")
    assert binding["metadata"]["namespace"] == "vision"
    assert binding["subjects"][0]["namespace"] == "serving"
    variables = environment(dict(containers(objects))["Deployment/gateway"])
    assert variables["ESG_GATEWAY_NAMESPACE"] == "vision"


def writable_leases(role: Json) -> set[str]:
    """Return the names of the Leases that a role may patch; the scheduler's are beside them."""
    return {
        name
        for rule in role["rules"]
        if "leases" in rule["resources"] and "patch" in rule["verbs"]
        for name in rule.get("resourceNames", ["*"])
    }


def deployed_rules(suffix: str) -> list[Json]:
    """Return the rules of a role in deploy/gateway-rbac.yaml."""
    [role] = [
        document
        for document in parse_yaml((DEPLOY / "gateway-rbac.yaml").read_text())
        if document["kind"] == "ClusterRole" and document["metadata"]["name"].endswith(suffix)
    ]
    rules: list[Json] = role["rules"]
    return rules


@pytest.mark.slow
def test_rights_to_create_pods() -> None:
    """They are given in the listed namespaces only, with the guards, and switch pods on."""
    objects = installed(pods={"namespaces": ["vision", "speech"]})
    roles = [o for o in objects if o["metadata"]["name"].endswith("-gateway-pods")]
    assert {(o["kind"], o["metadata"]["namespace"]) for o in roles} == {
        (kind, namespace) for kind in ("Role", "RoleBinding") for namespace in ("vision", "speech")
    }
    assert all(o["rules"] == deployed_rules("-pods") for o in roles if o["kind"] == "Role")
    variables = environment(dict(containers(objects))["Deployment/gateway"])
    assert variables["ESG_GATEWAY_PODS"] == "true"
    assert variables["ESG_SCHEDULER_NAME"] == "esg-scheduler"
    without = environment(dict(containers(installed()))["Deployment/gateway"])
    assert not {"ESG_GATEWAY_PODS", "ESG_SCHEDULER_NAME"} & without.keys()


@pytest.mark.slow
def test_pools_have_one_dispatcher() -> None:
    """Also one replica owns namespaces by Leases then, because two of them run in a roll-out."""
    pods = {"namespaces": ["vision"]}
    objects = installed(pods=pods, settings={"share": "pooled"})
    container = dict(containers(objects))["Deployment/gateway"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert variables["ESG_GATEWAY_SHARE"] == "pooled"
    assert variables["ESG_GATEWAY_HOLDER_IMAGE"] == container["image"]
    assert "ESG_GATEWAY_PEERS" in variables
    assert one(objects, "Role", "-gateway-replicas")
    assert not [o for o in objects if o["kind"] == "PodDisruptionBudget" and "gateway" in str(o)]
    reserved = environment(dict(containers(installed(pods=pods)))["Deployment/gateway"])
    assert not {"ESG_GATEWAY_PEERS", "ESG_GATEWAY_HOLDER_IMAGE"} & reserved.keys()


@pytest.mark.slow
def test_pods_need_the_guards() -> None:
    """Without the policy, writing FunctionServers would give the right to create any pod."""
    with pytest.raises(RefusedError, match=r"gateway\.pods\.namespaces needs guards\.enabled"):
        render(gateway={"pods": {"namespaces": ["vision"]}}, guards={"enabled": False})


@pytest.mark.slow
def test_pods_are_in_the_namespace_that_is_served() -> None:
    """In another one the gateway would have the right to create pods, and no use for it."""
    assert installed(namespace="vision", pods={"namespaces": ["vision"]})
    with pytest.raises(RefusedError, match=r"speech is not gateway\.namespace, vision"):
        installed(namespace="vision", pods={"namespaces": ["vision", "speech"]})


@pytest.mark.slow
def test_ports() -> None:
    """Clients reach HTTP and gRPC; probes and Prometheus a port of their own."""
    objects = render(EVERYTHING)
    container = dict(containers(objects))["Deployment/gateway"]
    variables = environment(container)
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    assert ports == {
        "http": variables["ESG_GATEWAY_PORT"],
        "grpc": variables["ESG_GATEWAY_GRPC_PORT"],
        "health": variables["ESG_HEALTH_PORT"],
    }
    clients = one(objects, "Service", "-gateway")["spec"]
    assert {port["name"]: port["port"] for port in clients["ports"]} == {"https": 443, "grpc": 8082}
    assert clients["type"] == "LoadBalancer"
    assert one(objects, "Service", "-gateway-metrics")["spec"]["clusterIP"] == "None"
    without = dict(containers(installed()))["Deployment/gateway"]
    assert "ESG_GATEWAY_GRPC_PORT" not in environment(without)


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "drain_s"), [({}, 30), ({"drain_s": 60.5}, 61)])
def test_the_grace_period_covers_the_requests_in_progress(settings: Json, drain_s: int) -> None:
    """The kubelet does not kill it while it answers."""
    spec = one(installed(settings=settings), "Deployment", "-gateway")["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] >= drain_s + STOP_S + 5


def test_clients_and_model_servers_pass_the_network_policy() -> None:
    """Requests come from the listed clients and other replicas; batches go to any namespace."""
    objects = render(EVERYTHING)
    spec = one(objects, "NetworkPolicy", "-gateway")["spec"]
    [clients] = [rule for rule in spec["ingress"] if rule["ports"][0]["port"] == 8081]
    assert clients["from"] == [
        {"namespaceSelector": {"matchLabels": {"team": "vision"}}},
        {"podSelector": one(objects, "Deployment", "-gateway")["spec"]["selector"]},
    ]
    assert {"to": [{"namespaceSelector": {}}]} in spec["egress"]
    [open_to_all] = [
        rule
        for rule in one(installed(), "NetworkPolicy", "-gateway")["spec"]["ingress"]
        if rule["ports"][0]["port"] == 8081
    ]
    assert "from" not in open_to_all


def test_the_samples_servers_are_for_its_functions() -> None:
    """Each function of the sample profiles has a FunctionServer."""
    folder = REPOSITORY / "deploy" / "samples"
    names = [
        {d["metadata"]["name"] for d in parse_yaml((folder / f"{kind}.yaml").read_text())}
        for kind in ("profiles", "servers")
    ]
    assert names[0] == names[1]


@pytest.mark.slow
def test_several_replicas() -> None:
    """They know one another, keep Leases in their own namespace, and are evicted in turn."""
    objects = installed(replicas=2, clientsFrom=[{"podSelector": {}}])
    deployment = one(objects, "Deployment", "-gateway")
    assert deployment["spec"]["replicas"] == 2
    container = dict(containers(objects))["Deployment/gateway"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    selector = dict(pair.split("=") for pair in variables["ESG_GATEWAY_PEERS"].split(","))
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= labels.items()
    assert {"ESG_GATEWAY_POD_NAME", "ESG_GATEWAY_POD_NAMESPACE"} <= variables.keys()
    role = one(objects, "Role", "-gateway-replicas")
    assert role["metadata"]["namespace"] == "serving"
    assert role["rules"] == deployed_rules("-replicas")
    assert writable_leases(role) == {f"esg-gateway-shard-{shard}" for shard in range(SHARDS)}
    assert one(objects, "PodDisruptionBudget", "-gateway")["spec"]["minAvailable"] == 1
    ingress = one(objects, "NetworkPolicy", "-gateway")["spec"]["ingress"][0]["from"]
    assert {"app.kubernetes.io/component": "gateway"}.items() <= (
        ingress[-1]["podSelector"]["matchLabels"].items()
    )
    single = dict(containers(installed()))["Deployment/gateway"]
    assert "ESG_GATEWAY_PEERS" not in {variable["name"] for variable in single["env"]}


@pytest.mark.slow
def test_groups_have_gateways_of_their_own() -> None:
    """Each has a Deployment, Services, a budget and a policy that select its pods alone."""
    objects = installed(groups=["a"], replicas=2, pods={"namespaces": ["vision"]})
    for suffix in ("-gateway", "-gateway-a"):
        selector = one(objects, "Deployment", suffix)["spec"]["selector"]["matchLabels"]
        assert selector["app.kubernetes.io/component"] == suffix[1:]
        assert one(objects, "Service", suffix)["spec"]["selector"] == selector
        assert one(objects, "Service", f"{suffix}-metrics")["spec"]["selector"] == selector
        for kind, field in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
            assert one(objects, kind, suffix)["spec"][field]["matchLabels"] == selector
    variables = {
        suffix: environment(
            one(objects, "Deployment", suffix)["spec"]["template"]["spec"]["containers"][0]
        )
        for suffix in ("-gateway", "-gateway-a")
    }
    assert "ESG_GATEWAY_GROUP" not in variables["-gateway"]
    assert variables["-gateway-a"]["ESG_GATEWAY_GROUP"] == "a"
    assert variables["-gateway-a"]["ESG_GATEWAY_PEERS"].endswith("component=gateway-a")
    for name in ("-gateway", "-gateway-a"):
        assert "ESG_GATEWAY_HOLDER_IMAGE" in variables[name]
    assert writable_leases(one(objects, "Role", "-gateway-replicas")) == {
        f"esg-gateway-{prefix}shard-{shard}" for prefix in ("", "a-") for shard in range(SHARDS)
    }


@pytest.mark.slow
def test_names_of_groups_are_short_enough() -> None:
    """A longer name of a Service would be refused in the middle of an upgrade."""

    def names(length: int) -> list[str]:
        objects = render(fullnameOverride="n" * length, gateway={"groups": ["g" * 20]})
        return [o["metadata"]["name"] for o in objects if o["kind"] == "Service"]

    assert max(map(len, names(26))) == LABEL_MAX
    with pytest.raises(RefusedError, match="have 1 characters too many"):
        names(27)
