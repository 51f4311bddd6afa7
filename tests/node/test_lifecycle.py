"""Upgrade of the chart during a running function, and its removal."""

import re
import shutil
from pathlib import Path

import pytest

from tests.agent.fakes import DEFAULT, PROHIBITED
from tests.chart.rendering import CHART
from tests.node.functions import Function, deployment, grant
from tests.node.real_cluster import NAME, RealCluster, container_id, statuses
from tests.node.release import CRDS, NAMESPACE, RELEASE, Release
from tests.testbed.api import Api, Json, wait_until

pytestmark = pytest.mark.e2e

SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{RELEASE}-tls"
CRD = f"{CRDS}/functionprofiles.esg-scheduler.io"
PREVIOUS = "0.0.9"
REPLACED_WITHIN_S = 300
Name = tuple[str, str, str]
TRANSIENT = {"Event", "EndpointSlice", "Endpoints", "ReplicaSet", "ControllerRevision"}
"""Kinds whose objects Kubernetes creates and removes at any time."""
REMAINING: set[Name] = {
    ("Namespace", "", NAMESPACE),
    ("ServiceAccount", NAMESPACE, "default"),
    ("ConfigMap", NAMESPACE, "kube-root-ca.crt"),
}
"""Objects that stay besides the CRDs (docs/operations.md); all namespaces have the last two."""


@pytest.fixture
def previous_chart(tmp_path: Path) -> Path:
    """The chart as an earlier version: the version labels all pods, so an upgrade replaces all."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    about = chart / "Chart.yaml"
    text = re.sub(r"^version: .*$", f"version: {PREVIOUS}", about.read_text(), flags=re.MULTILINE)
    about.write_text(text)
    return chart


def test_an_upgrade_disturbs_no_function_and_a_removal_leaves_the_documented_objects(
    cluster: RealCluster, fresh_release: Release, previous_chart: Path
) -> None:
    """Upgrade from the earlier chart and CRD to this one, then removal.

    The Job of the upgrade writes the CRD.
    """
    at_first, running_at_first = objects(cluster.api) - REMAINING, set(cluster.running())
    fresh_release.install("install", previous_chart)
    fresh_release.until_ready()
    fresh_release.documents()
    function = Function(cluster, deployment("lasting"))
    before = function.running()
    persistent = persistent_state(fresh_release)
    replicas = names(fresh_release)

    current = description(cluster.api)
    describe(cluster.api, "of an earlier chart")
    fresh_release.install("upgrade")
    assert description(cluster.api) == current
    wait_until(
        lambda: not replicas & names(fresh_release),
        what="all replicas are replaced",
        timeout_s=REPLACED_WITHIN_S,
    )
    fresh_release.until_scheduling()

    after = function.running()
    assert container_id(after, "function") == container_id(before, "function")
    assert grant(after) == grant(before)
    assert [status["restartCount"] for status in statuses(after)] == [0]
    assert persistent_state(fresh_release) == persistent
    function.delete()
    another = Function(cluster, deployment("newer"))
    another.running()
    another.delete()
    assert re.search(r"Phase: +Succeeded", fresh_release.test())

    fresh_release.uninstall()

    remaining = {name for name in objects(cluster.api) - at_first if not is_of_crds(name)}
    assert remaining <= REMAINING
    assert (fresh_release.gpus(), fresh_release.offered()) == ((), 0)
    assert set(cluster.running()) <= running_at_first


def test_a_removal_during_a_running_function_names_its_gpu(
    cluster: RealCluster, fresh_release: Release
) -> None:
    """Inventory and capacity go; only that GPU stays PROHIBITED, until the agents come and go."""
    fresh_release.install("install")
    fresh_release.until_ready()
    fresh_release.documents()
    function = Function(cluster, deployment("remaining"))
    try:
        pod = function.running()
        uuid = grant(pod)["ESG_GPU"]
        output = fresh_release.uninstall()
        assert (fresh_release.gpus(), fresh_release.offered()) == ((), 0)
        assert f"{uuid} of node {NAME} stays in compute mode PROHIBITED" in output
        assert f"default/{pod['metadata']['name']}; delete them" in output
        assert f"nvidia-smi -i {uuid} -c 0" in output
        assert modes(cluster) == {
            gpu: PROHIBITED if gpu == uuid else DEFAULT for gpu in cluster.gpus.uuids
        }
    finally:
        function.delete()
    fresh_release.install("install")
    fresh_release.until_ready()
    fresh_release.uninstall()
    assert modes(cluster) == dict.fromkeys(cluster.gpus.uuids, DEFAULT)


def modes(cluster: RealCluster) -> dict[str, int]:
    """Return the compute modes of the node's GPUs."""
    return {uuid: cluster.gpus.mode(index) for index, uuid in enumerate(cluster.gpus.uuids)}


def description(api: Api) -> str:
    """Return the description in the CRD's schema."""
    [version] = api.get(CRD)["spec"]["versions"]
    text: str = version["schema"]["openAPIV3Schema"]["description"]
    return text


def describe(api: Api, text: str) -> None:
    """Change the description in the CRD's schema."""
    [version] = api.get(CRD)["spec"]["versions"]
    version["schema"]["openAPIV3Schema"]["description"] = text
    api.patch(CRD, {"spec": {"versions": [version]}})


def names(release: Release) -> set[str]:
    """Return the names of the pods of scheduler and webhook."""
    return {
        pod["metadata"]["name"]
        for component in ("scheduler", "webhook")
        for pod in release.pods(component)
    }


def persistent_state(release: Release) -> tuple[Json, str, list[int]]:
    """Return the certificate and the agent's pod (MPS daemons too), which no upgrade changes."""
    [agent] = release.pods("agent")
    restarts = [status["restartCount"] for status in statuses(agent)]
    return release.api.get(SECRET)["data"], agent["metadata"]["uid"], restarts


def objects(api: Api) -> set[Name]:
    """Return kind, namespace and name of all objects that are not transient."""
    groups = [group["preferredVersion"]["groupVersion"] for group in api.get("/apis")["groups"]]
    object_names: set[Name] = set()
    for root in ("/api/v1", *(f"/apis/{group}" for group in groups)):
        for kind in api.get(root)["resources"]:
            if "/" in kind["name"] or "list" not in kind["verbs"] or kind["kind"] in TRANSIENT:
                continue
            for item in api.items(f"{root}/{kind['name']}"):
                metadata = item["metadata"]
                object_names.add((kind["kind"], metadata.get("namespace", ""), metadata["name"]))
    return object_names


def is_of_crds(name: Name) -> bool:
    """Return true for the chart's CRDs and their objects."""
    return name[0] in {"CustomResourceDefinition", "APIService", "FunctionProfile", "Workflow"}
