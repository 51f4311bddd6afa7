"""Agreement of the chart with `deploy/`: those files have the reasons, and other tests run them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler import __version__
from scheduler.model import names
from scheduler.model.yaml_parser import parse_yaml
from tests.chart.rendering import CHART, EVERYTHING, Json, containers, environment, one, render
from tests.testbed import REPOSITORY

pytestmark = pytest.mark.usefixtures("helm_built")
DEPLOY = REPOSITORY / "deploy"


def deployed(name: str, kind: str) -> Json:
    """Read the first document of a kind from a file of `deploy/`."""
    documents = parse_yaml((DEPLOY / name).read_text(encoding="utf-8"))
    return next(document for document in documents if document["kind"] == kind)


def test_chart_and_code_have_the_same_version() -> None:
    """Chart and programs are released together."""
    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert metadata["version"] == metadata["appVersion"] == __version__


@pytest.mark.parametrize(
    ("kind", "name", "file"),
    [
        ("ClusterRole", "-serving", "rbac.yaml"),
        ("ClusterRole", "-serving-webhook", "webhook-rbac.yaml"),
        ("ClusterRole", "-serving-agent", "agent-rbac.yaml"),
    ],
)
def test_roles_have_the_rules_of_deploy(kind: str, name: str, file: str) -> None:
    """The rules are equal, and so is the namespace."""
    role = one(render(), kind, f"esg-scheduler{name}")
    expected = deployed(file, kind)
    assert role["rules"] == expected["rules"]
    assert role["metadata"].get("namespace") == expected["metadata"].get("namespace")


def test_the_webhook_is_registered_like_that_of_deploy() -> None:
    """Selectors, rules, policies and timeout are equal; only the client configuration differs."""

    def without_client(configuration: Json) -> list[Any]:
        return [
            {key: value for key, value in webhook.items() if key != "clientConfig"}
            for webhook in configuration["webhooks"]
        ]

    kind = "MutatingWebhookConfiguration"
    expected = without_client(deployed("webhook.yaml", kind))
    assert without_client(one(render(), kind)) == expected


def test_the_documented_drain_selects_every_function_pod() -> None:
    """Holders of slices have a label of their own, and hold a share of the node's GPUs."""
    page = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
    [loop] = re.findall(r"(?s)\nfor label in ([a-z ]+);.*?\n +kubectl drain NODE .*?\ndone", page)
    drained = {f"{names.GROUP}/{label}" for label in loop.split()}
    assert drained == {names.LABEL_STAGE, names.LABEL_FUNCTION, names.LABEL_POOL}


def test_kube_scheduler_is_configured_like_that_of_deploy() -> None:
    """Only the lease differs: it is named after the release."""
    expected = yaml.safe_load((DEPLOY / "kube-scheduler-config.yaml").read_text(encoding="utf-8"))
    expected["leaderElection"] |= {
        "resourceNamespace": "serving",
        "resourceName": "esg-esg-scheduler",
    }
    assert configuration(render()) == expected


def test_values_of_kube_scheduler_reach_its_configuration() -> None:
    """The profile has the scheduler name that the webhook sets in pods."""
    config = configuration(objects := render(EVERYTHING))
    assert config["profiles"][0]["schedulerName"] == "esg.example"
    assert config["clientConnection"] == {"qps": 250.5, "burst": 500}
    assert config["percentageOfNodesToScore"] == 100
    assert config["extenders"][0]["weight"] == 5
    by_name = dict(containers(objects))
    webhook, kube_scheduler = (by_name[f"Deployment/{n}"] for n in ("webhook", "kube-scheduler"))
    assert environment(webhook)["ESG_SCHEDULER_NAME"] == "esg.example"
    assert "--v=4" in kube_scheduler["command"]


@pytest.mark.slow
@pytest.mark.parametrize("enabled", [False, True])
def test_an_autoscaler_is_told_of_by_agents_and_webhook(enabled: bool) -> None:
    """The agents' taint is no score of kube-scheduler: it would lead pods to empty GPUs."""
    objects = render(autoscaler={"enabled": enabled})
    [profile] = configuration(objects)["profiles"]
    disabled = profile.get("plugins", {}).get("score", {}).get("disabled", [])
    assert [plugin["name"] for plugin in disabled] == ["TaintToleration"] * enabled
    by_name = {name: environment(container) for name, container in containers(objects)}
    for name, variable in (
        ("Deployment/webhook", "ESG_AUTOSCALED"),
        ("DaemonSet/agent", "ESG_AGENT_AUTOSCALED"),
    ):
        assert by_name[name].get(variable) == ("true" if enabled else None)


@pytest.mark.slow
def test_large_numbers_have_no_exponent() -> None:
    """YAML reads 1e+06 as a string, and Kubernetes needs an integer."""
    large = {"qps": 1_000_000, "burst": 2_000_000}
    config = configuration(
        render(scheduler={"kubeScheduler": large, "extender": {"weight": 3_000_000}})
    )
    assert config["clientConnection"] == large
    assert config["extenders"][0]["weight"] == 3_000_000


def configuration(objects: list[Json]) -> Json:
    config_map = one(objects, "ConfigMap", "esg-scheduler")
    config: Json = yaml.safe_load(config_map["data"]["config.yaml"])
    return config


def test_role_edit_may_write_documents_of_a_namespace_and_read_profiles() -> None:
    """The rules are aggregated to view, edit and admin; none of them may write profiles."""
    aggregated: dict[str, dict[str, set[str]]] = {}
    for role in [r for r in render() if r["kind"] == "ClusterRole"]:
        for to in ("view", "edit", "admin"):
            if f"rbac.authorization.k8s.io/aggregate-to-{to}" in role["metadata"]["labels"]:
                for rule in role["rules"]:
                    for resource in rule["resources"]:
                        verbs = aggregated.setdefault(to, {}).setdefault(resource, set())
                        verbs |= set(rule["verbs"])
    read = {"get", "list", "watch"}
    write = {"create", "update", "patch", "delete", "deletecollection"}
    both = {
        "workflows": read | write,
        "functionservers": read | write,
        "functionprofiles": read,
    }
    edit = both | {"functionservers/scale": {"get", "update", "patch"}}
    expected = {"view": dict.fromkeys(both, read), "edit": edit, "admin": edit}
    assert aggregated == expected


def test_programs_may_write_statuses_alone() -> None:
    """No program may change the spec of a document; each may patch what it writes of statuses."""
    rights = {
        name: {
            (resource, verb)
            for role in (r for r in render(EVERYTHING) if r["kind"] in {"ClusterRole", "Role"})
            if role["metadata"]["name"].endswith(name)
            for rule in role["rules"]
            if rule.get("apiGroups") == ["esg-scheduler.io"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
            if verb not in {"list", "watch"}
        }
        for name in ("-serving", "-gateway", "-webhook", "-agent")
    }
    assert rights == {
        "-serving": {("workflows/status", "patch"), ("functionprofiles/status", "patch")},
        "-gateway": {("workflows/status", "patch"), ("functionservers/status", "patch")},
        "-webhook": set(),
        "-agent": set(),
    }


@pytest.mark.parametrize("values", [[], [EVERYTHING]], ids=["defaults", "everything"])
def test_no_rule_has_a_wildcard(values: list[Path]) -> None:
    """Every group, resource, path and verb is listed."""
    for role in [r for r in render(*values) if r["kind"] in {"ClusterRole", "Role"}]:
        for rule in role["rules"]:
            assert not any("*" in text for texts in rule.values() for text in texts)
