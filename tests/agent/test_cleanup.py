"""`esg cleanup` on a real API server, with the rights of the chart's removal Job."""

import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.cluster.leases import SHARD_LABELS
from scheduler.cluster.owner_lease import LEASE_NAME, STATUS_LEASE_NAME
from scheduler.model.grant import Grant, grant_annotations
from scheduler.model.names import ANNOTATION_GPUS, RESOURCE_GPU_PERCENT, TAINT_NO_EMPTY_GPU
from tests.chart.rendering import render
from tests.testbed.api import wait_until
from tests.testbed.nodes import create_nodes
from workbench.cluster.mocked_nodes import gpu_nodes

pytestmark = pytest.mark.e2e

ESG = str(Path(sys.executable).with_name("esg"))
USER = "removal"
NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
POD_SPEC = {"nodeName": "node-000", "containers": [{"name": "main", "image": "none"}]}
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@pytest.fixture
def kubeconfig(cluster):
    """Create a user with only the rights of the Job's account."""
    for document in render(release="esg-scheduler", namespace=NAMESPACE):
        name = document["metadata"]["name"]
        if "rbac" not in document["apiVersion"] or not name.endswith("-removal"):
            continue
        if "subjects" in document:
            group = "rbac.authorization.k8s.io"
            document["subjects"] = [{"kind": "User", "name": USER, "apiGroup": group}]
        cluster.api.apply(document)
    return cluster.kubeconfig_for(USER)


def clean_up(kubeconfig, *arguments):
    command = [ESG, "cleanup", f"--kubeconfig={kubeconfig}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def published(node):
    """Return true if the node has an inventory, a capacity and an allocatable amount."""
    status = node["status"]
    return (
        ANNOTATION_GPUS in node["metadata"].get("annotations", {}),
        RESOURCE_GPU_PERCENT in status.get("capacity", {}),
        RESOURCE_GPU_PERCENT in status.get("allocatable", {}),
    )


def test_nodes_and_leases_are_cleaned(cluster, kubeconfig):
    """Other data stays; a second run has nothing to do."""
    create_nodes(cluster.api, gpu_nodes(2, 2))
    create_nodes(cluster.api, gpu_nodes(1, 0, name_prefix="plain"))
    cluster.api.patch("/api/v1/nodes/node-000", {"metadata": {"annotations": {"a/b": "foreign"}}})
    taints = [
        {"key": TAINT_NO_EMPTY_GPU, "effect": "PreferNoSchedule"},
        {"key": "foreign", "effect": "NoSchedule"},
    ]
    cluster.api.patch("/api/v1/nodes/node-001", {"spec": {"taints": taints}})
    labels = {"esg-gateway-shard-0": SHARD_LABELS, "esg-gateway-a-shard-7": SHARD_LABELS}
    for name in ("esg-scheduler", LEASE_NAME, STATUS_LEASE_NAME, *labels, "another"):
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels.get(name, {})}
        cluster.api.create(lease | {"metadata": metadata})
    try:
        first = clean_up(kubeconfig, f"--lease={NAMESPACE}/esg-scheduler")
        again = clean_up(kubeconfig, f"--lease={NAMESPACE}/esg-scheduler")

        assert (first.returncode, first.stderr) == (0, "")
        assert first.stdout.splitlines() == [
            "node node-000: inventory and capacity removed",
            "node node-001: inventory and capacity removed",
            f"lease {NAMESPACE}/esg-scheduler removed",
            f"lease {NAMESPACE}/{LEASE_NAME} removed",
            f"lease {NAMESPACE}/{STATUS_LEASE_NAME} removed",
            f"lease {NAMESPACE}/esg-gateway-a-shard-7 removed",
            f"lease {NAMESPACE}/esg-gateway-shard-0 removed",
        ]
        assert (again.returncode, again.stdout) == (0, "")
        nodes = cluster.api.items("/api/v1/nodes")
        assert [published(node) for node in nodes] == [(False, False, False)] * 3
        assert nodes[0]["metadata"]["annotations"]["a/b"] == "foreign"
        assert nodes[0]["status"]["capacity"]["cpu"]
        assert nodes[1]["spec"]["taints"] == taints[1:]
        assert {lease["metadata"]["name"] for lease in cluster.api.items(LEASES)} == {"another"}
    finally:
        cluster.api.delete(f"{LEASES}/another")


def test_gpus_of_running_pods_are_named(cluster, kubeconfig):
    """They stay PROHIBITED; a pod that has ended, or has no share, is no reason."""
    create_nodes(cluster.api, gpu_nodes(1, 2))
    grant = grant_annotations(Grant("GPU-1", 40, 4096, 1, {}))
    for name, annotations in (("first", grant), ("second", grant), ("ended", grant), ("plain", {})):
        pod = {"metadata": {"name": name, "annotations": annotations}, "spec": POD_SPEC}
        cluster.api.create({"apiVersion": "v1", "kind": "Pod", **pod})
    wait_until(
        lambda: cluster.api.get(f"{PODS}/ended")["status"]["phase"] == "Running",
        what="the kubelet's own write of the pod's phase",
    )
    ended = {"phase": "Succeeded", "containerStatuses": None}
    cluster.api.patch(f"{PODS}/ended/status", {"status": ended})
    done = clean_up(kubeconfig)
    assert (done.returncode, done.stderr) == (0, "")
    *_, line = done.stdout.splitlines()
    assert line.startswith("GPU-1 of node node-000 stays in compute mode PROHIBITED")
    assert ": default/first, default/second; delete them" in line
    assert line.endswith("nvidia-smi -i GPU-1 -c 0")
    assert done.stdout.count("PROHIBITED") == 1


def test_missing_rights_are_named(cluster):
    """The API server's own message names verb and resource."""
    refused = clean_up(cluster.kubeconfig_for("nobody-in-particular"))
    assert refused.returncode == 1
    assert 'cannot list resource "nodes"' in refused.stderr


@pytest.mark.parametrize("lease", ["esg-scheduler", "/esg-scheduler", "default/"])
def test_lease_needs_its_namespace(lease, tmp_path):
    refused = clean_up(tmp_path / "none", f"--lease={lease}")
    assert refused.returncode == 2
    assert "give NAMESPACE/NAME" in refused.stderr
