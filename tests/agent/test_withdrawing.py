"""What a removal takes back, on a real API server and with the rights of the chart's last Job."""

import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.model.names import ANNOTATION_GPUS, RESOURCE_GPU_PERCENT
from tests.chart.rendering import render
from tests.testbed.api import Json
from tests.testbed.control_plane import ControlPlane
from tests.testbed.nodes import create_nodes, gpu_nodes

pytestmark = pytest.mark.e2e

ESG = str(Path(sys.executable).with_name("esg"))
USER = "removal"
NAMESPACE = "default"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@pytest.fixture
def kubeconfig(cluster: ControlPlane) -> Path:
    """Of a user with the rights of the Job's account, and no others."""
    for document in render(release="esg-scheduler", namespace=NAMESPACE):
        name = document["metadata"]["name"]
        if "rbac" not in document["apiVersion"] or not name.endswith("-removal"):
            continue
        if "subjects" in document:
            group = "rbac.authorization.k8s.io"
            document["subjects"] = [{"kind": "User", "name": USER, "apiGroup": group}]
        cluster.api.apply(document)
    return cluster.kubeconfig_for(USER)


def withdraw(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [ESG, "cleanup", f"--kubeconfig={kubeconfig}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def published(node: Json) -> tuple[bool, bool, bool]:
    """Whether the node shows an inventory, a capacity, and what of it is allocatable."""
    status = node["status"]
    return (
        ANNOTATION_GPUS in node["metadata"].get("annotations", {}),
        RESOURCE_GPU_PERCENT in status.get("capacity", {}),
        RESOURCE_GPU_PERCENT in status.get("allocatable", {}),
    )


def test_nodes_and_lease_are_as_if_we_had_never_been(
    cluster: ControlPlane, kubeconfig: Path
) -> None:
    """What others wrote stays; a second time there is nothing to do."""
    create_nodes(cluster.api, gpu_nodes(2, 2))
    create_nodes(cluster.api, gpu_nodes(1, 0, name_prefix="plain"))
    cluster.api.patch("/api/v1/nodes/node-000", {"metadata": {"annotations": {"a/b": "kept"}}})
    for name in ("esg-scheduler", "another"):
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {}}
        cluster.api.create(lease | {"metadata": {"name": name, "namespace": NAMESPACE}})
    try:
        first = withdraw(kubeconfig, f"--lease={NAMESPACE}/esg-scheduler")
        again = withdraw(kubeconfig, f"--lease={NAMESPACE}/esg-scheduler")

        assert (first.returncode, first.stderr) == (0, "")
        assert first.stdout.splitlines() == [
            "node node-000: inventory and capacity removed",
            "node node-001: inventory and capacity removed",
            f"lease {NAMESPACE}/esg-scheduler removed",
        ]
        assert (again.returncode, again.stdout) == (0, "")
        nodes = cluster.api.items("/api/v1/nodes")
        assert [published(node) for node in nodes] == [(False, False, False)] * 3
        assert nodes[0]["metadata"]["annotations"]["a/b"] == "kept"
        assert nodes[0]["status"]["capacity"]["cpu"]
        assert {each["metadata"]["name"] for each in cluster.api.items(LEASES)} == {"another"}
    finally:
        cluster.api.delete(f"{LEASES}/another")


def test_without_the_rights_it_says_which(cluster: ControlPlane) -> None:
    """The API server's own sentence names verb and resource."""
    refused = withdraw(cluster.kubeconfig_for("nobody-in-particular"))
    assert refused.returncode == 1
    assert 'cannot list resource "nodes"' in refused.stderr


@pytest.mark.parametrize("lease", ["esg-scheduler", "/esg-scheduler", "default/"])
def test_a_lease_is_named_with_its_namespace(lease: str, tmp_path: Path) -> None:
    refused = withdraw(tmp_path / "none", f"--lease={lease}")
    assert refused.returncode == 2
    assert "give NAMESPACE/NAME" in refused.stderr
