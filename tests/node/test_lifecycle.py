"""The chart upgraded with functions running, and removed."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart.rendering import CHART
from tests.node.functions import Function, deployment, grant
from tests.node.real_cluster import RealCluster, container_id, statuses
from tests.node.release import NAMESPACE, RELEASE, Release
from tests.testbed.api import Api, wait_until

pytestmark = pytest.mark.e2e

SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{RELEASE}-tls"
PREVIOUS = "0.0.9"
PASSING = {"Event", "EndpointSlice", "Endpoints", "Pod", "ReplicaSet", "ControllerRevision"}
"""Kinds whose objects come and go by themselves."""

Name = tuple[str, str, str]


@pytest.fixture
def previous_chart(tmp_path: Path) -> Path:
    """The chart under an earlier version: its pods have another label, so all are replaced."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    about = chart / "Chart.yaml"
    text = re.sub(r"^version: .*$", f"version: {PREVIOUS}", about.read_text(), flags=re.MULTILINE)
    about.write_text(text)
    return chart


@pytest.fixture
def previous(cluster: RealCluster, previous_chart: Path) -> Iterator[Release]:
    """A release of it; gone afterwards at the latest."""
    release = Release(cluster)
    try:
        release.install("install", previous_chart)
        release.until_ready()
        release.documents()
        yield release
    finally:
        release.uninstall()


def objects(api: Api) -> set[Name]:
    """Kind, namespace and name of all that the API server holds, but what comes and goes."""
    roots = ["/api/v1"]
    roots += [
        f"/apis/{group['preferredVersion']['groupVersion']}" for group in api.get("/apis")["groups"]
    ]
    found: set[Name] = set()
    for root in roots:
        for kind in api.get(root)["resources"]:
            if "/" in kind["name"] or "list" not in kind["verbs"] or kind["kind"] in PASSING:
                continue
            for item in api.items(f"{root}/{kind['name']}"):
                metadata = item["metadata"]
                found.add((kind["kind"], metadata.get("namespace", ""), metadata["name"]))
    return found


def test_an_upgrade_disturbs_no_function_and_a_removal_leaves_what_is_told(
    cluster: RealCluster, previous: Release, tmp_path: Path
) -> None:
    """From the earlier chart to this one, then away."""
    api = cluster.api
    function = Function(cluster, deployment("lasting"))
    before, secret = function.running(), api.get(SECRET)["data"]
    [agent] = previous.pods("agent")
    replicas = {pod["metadata"]["name"] for pod in previous.pods("scheduler")}

    previous.install("upgrade")
    wait_until(
        lambda: not replicas & {pod["metadata"]["name"] for pod in previous.pods("scheduler")},
        what="both replicas are replaced",
        timeout_s=180,
    )
    previous.until_scheduling()

    after = function.running()
    assert container_id(after, "function") == container_id(before, "function")
    assert grant(after) == grant(before)
    assert all(status["restartCount"] == 0 for status in statuses(after))
    [still] = previous.pods("agent")
    assert still["metadata"]["uid"] == agent["metadata"]["uid"]
    assert api.get(SECRET)["data"] == secret
    function.delete()
    another = Function(cluster, deployment("newer"))
    another.running()
    another.delete()
    previous.uninstall()


def test_a_removal_leaves_what_the_manual_says(cluster: RealCluster) -> None:
    """CRDs, the lease, what the agent wrote on its node; and nothing that runs or may do anything."""
    release = Release(cluster)
    before = objects(cluster.api)
    try:
        release.install("install")
        release.until_ready()
    finally:
        release.uninstall()

    def left() -> set[Name]:
        return {
            name for name in objects(cluster.api) - before
            if name[0] != "CustomResourceDefinition" and name[1] == NAMESPACE
        }  # fmt: skip

    wait_until(lambda: left() == {("Lease", NAMESPACE, RELEASE)}, what="nothing else is left")
    assert release.gpus() == expected(cluster.gpus, *range(8))
    assert release.offered() == 0
    assert cluster.node.runtime.ctr("tasks", "list").count("RUNNING") == 0
