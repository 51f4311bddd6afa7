"""The chart says what `deploy/` says: those files have the reasons, and are run by other tests."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler import __version__
from tests.chart.rendering import CHART, EVERYTHING, Json, one, render
from tests.testbed import REPOSITORY

pytestmark = pytest.mark.usefixtures("helm_is_there")
DEPLOY = REPOSITORY / "deploy"


def deployed(name: str, kind: str) -> Json:
    """The document of the kind in a file of `deploy/`."""
    documents = yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8"))
    return next(each for each in documents if each["kind"] == kind)


def test_the_version_is_the_code_s() -> None:
    """Chart and programs are released together."""
    told = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert told["version"] == told["appVersion"] == __version__


@pytest.mark.parametrize(
    ("kind", "name", "file"),
    [
        ("ClusterRole", "-serving", "rbac.yaml"),
        ("ClusterRole", "-serving-agent", "agent-rbac.yaml"),
        ("Role", "-serving-agent", "agent-rbac.yaml"),
    ],
)
def test_the_rights_are_those_that_the_tests_run_with(kind: str, name: str, file: str) -> None:
    """Neither more nor less, and in the same namespace."""
    role = one(render(), kind, f"esg-scheduler{name}")
    expected = deployed(file, kind)
    assert role["rules"] == expected["rules"]
    assert role["metadata"].get("namespace") == expected["metadata"].get("namespace")


def test_pods_are_sent_to_the_webhook_as_the_tests_send_them() -> None:
    """Selectors, rules, policies and patience; who is called is the chart's own."""

    def without_client(configuration: Json) -> list[Any]:
        return [
            {k: v for k, v in each.items() if k != "clientConfig"}
            for each in configuration["webhooks"]
        ]

    kind = "MutatingWebhookConfiguration"
    expected = without_client(deployed("webhook.yaml", kind))
    assert without_client(one(render(), kind)) == expected


def test_kube_scheduler_is_configured_as_the_tests_run_it() -> None:
    """But for the lease, which is the release's."""
    expected = yaml.safe_load((DEPLOY / "kube-scheduler-config.yaml").read_text(encoding="utf-8"))
    expected["leaderElection"] |= {
        "resourceNamespace": "serving",
        "resourceName": "esg-esg-scheduler",
    }
    assert configuration(render()) == expected


def test_kube_scheduler_s_values_reach_it() -> None:
    """And the name in its profile is the one that the webhook gives to pods."""
    told = configuration(objects := render(EVERYTHING))
    assert told["profiles"] == [{"schedulerName": "esg.example"}]
    assert told["clientConnection"] == {"qps": 250.5, "burst": 500}
    assert told["percentageOfNodesToScore"] == 100
    assert told["extenders"][0]["weight"] == 5
    spec = one(objects, "Deployment")["spec"]["template"]["spec"]
    [extender] = [c for c in spec["initContainers"] if c["name"] == "extender"]
    assert {"name": "ESG_SCHEDULER_NAME", "value": "esg.example"} in extender["env"]
    assert "--v=4" in spec["containers"][0]["command"]


def test_large_numbers_are_written_out() -> None:
    """As 1e+06 one is a text to YAML, and no integer to Kubernetes."""
    large = {"qps": 1_000_000, "burst": 2_000_000}
    told = configuration(
        render(scheduler={"kubeScheduler": large, "extender": {"weight": 3_000_000}})
    )
    assert told["clientConnection"] == large
    assert told["extenders"][0]["weight"] == 3_000_000


def configuration(objects: list[Json]) -> Json:
    told: Json = yaml.safe_load(one(objects, "ConfigMap", "esg-scheduler")["data"]["config.yaml"])
    return told


def test_whoever_edits_a_namespace_writes_its_workflows_and_reads_profiles() -> None:
    """By the cluster's own roles, which these are added to; profiles are nobody's to write."""
    given: dict[str, dict[str, set[str]]] = {}
    for role in [r for r in render() if r["kind"] == "ClusterRole"]:
        for to in ("view", "edit", "admin"):
            if f"rbac.authorization.k8s.io/aggregate-to-{to}" in role["metadata"]["labels"]:
                for rule in role["rules"]:
                    for resource in rule["resources"]:
                        verbs = given.setdefault(to, {}).setdefault(resource, set())
                        verbs |= set(rule["verbs"])
    read = {"get", "list", "watch"}
    write = {"create", "update", "patch", "delete", "deletecollection"}
    both = {"workflows": read | write, "functionprofiles": read}
    expected = {"view": dict.fromkeys(both, read), "edit": both, "admin": both}
    assert given == expected


@pytest.mark.parametrize("values", [[], [EVERYTHING]], ids=["defaults", "everything"])
def test_no_right_is_a_wildcard(values: list[Path]) -> None:
    """Each verb and resource is written out."""
    for role in [r for r in render(*values) if r["kind"] in {"ClusterRole", "Role"}]:
        for rule in role["rules"]:
            assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
