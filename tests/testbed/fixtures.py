"""pytest fixtures: one control plane per session, emptied after each test.

A folder of tests imports them in its conftest.py:
`from tests.testbed.fixtures import cluster, control_plane`. pytest would create one control plane
per import, so the session's stash stores the only one.

With `ESG_TEST_KUBECONFIG` tests run on that cluster instead; see `external_cluster`.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.require import needing
from tests.testbed.api import Api, wait_until
from tests.testbed.binaries import GoMissingError
from tests.testbed.control_plane import ControlPlane
from tests.testbed.external_cluster import ExternalCluster

needs_go = needing(shutil.which("go"), "Go is not installed: the test bed is built with it")
"""Mark of a test that needs a program of the test bed but no control plane."""

EXTERNAL_KUBECONFIG = "ESG_TEST_KUBECONFIG"
"""Environment variable with the kubeconfig of a cluster for the tests."""

_SHARED = pytest.StashKey[ControlPlane]()


@pytest.fixture(scope="session")
def control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ControlPlane:
    """A running control plane with KWOK and no scheduler; skipped without Go.

    Under `CI=true` a missing Go is an error: a run without these tests would prove nothing.
    """
    stash = request.config.stash
    if _SHARED not in stash:
        folder = tmp_path_factory.mktemp("control-plane")
        external = os.environ.get(EXTERNAL_KUBECONFIG)
        plane = ExternalCluster(folder, Path(external)) if external else ControlPlane(folder)
        request.config.add_cleanup(plane.stop)
        try:
            plane.start()
            if isinstance(plane, ExternalCluster):
                plane.cordon()
        except GoMissingError as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(str(error))
        stash[_SHARED] = plane
    return stash[_SHARED]


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The session's control plane; the test's objects are deleted afterwards, failed or not."""
    yield control_plane
    control_plane.reset()
    empty(control_plane)


def empty(plane: ControlPlane) -> None:
    """Delete pods (without grace), what creates them again, nodes, and other objects of tests."""
    api = plane.api
    for namespace in api.items("/api/v1/namespaces"):
        name = namespace["metadata"]["name"]
        if not plane.is_preexisting("Namespace", name):
            for kind in ("deployments", "replicasets"):
                api.delete(f"/apis/apps/v1/namespaces/{name}/{kind}")
            api.delete(f"/apis/batch/v1/namespaces/{name}/jobs")
            api.delete(f"/api/v1/namespaces/{name}/pods", grace_s=0)
    for group in api.get("/apis")["groups"]:
        if group["name"] == "esg-scheduler.io":
            for version in group["versions"]:
                _delete_documents(api, f"/apis/{version['groupVersion']}")
    _delete_nodes(plane)
    for path in (
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        "/api/v1/namespaces/default/resourcequotas",
        "/apis/events.k8s.io/v1/namespaces/default/events",
        # Without it, the next extender is the first of all, and waits for no containers.
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/esg-scheduler-gpus",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/esg-scheduler-status",
    ):
        api.delete(path)
    for item in api.items("/apis/scheduling.k8s.io/v1/priorityclasses"):
        if not item["metadata"]["name"].startswith("system-"):
            api.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{item['metadata']['name']}")
    wait_until(lambda: not _pods(plane), what="all pods are deleted")
    wait_until(lambda: not _nodes(plane), what="all nodes are deleted")


def _pods(plane: ControlPlane) -> list[str]:
    """Return the namespace of every pod of the tests."""
    namespaces = [pod["metadata"]["namespace"] for pod in plane.api.items("/api/v1/pods")]
    return [name for name in namespaces if not plane.is_preexisting("Namespace", name)]


def _nodes(plane: ControlPlane) -> list[str]:
    """Return the names of the tests' nodes."""
    names = [node["metadata"]["name"] for node in plane.api.items("/api/v1/nodes")]
    return [name for name in names if not plane.is_preexisting("Node", name)]


def _delete_nodes(plane: ControlPlane) -> None:
    """Delete the tests' nodes; with one request if there are no others."""
    names = _nodes(plane)
    if len(names) == len(plane.api.items("/api/v1/nodes")):
        plane.api.delete("/api/v1/nodes")
        return
    for name in names:
        plane.api.delete(f"/api/v1/nodes/{name}")


def _delete_documents(api: Api, root: str) -> None:
    for kind in api.get(root)["resources"]:
        if "/" in kind["name"]:
            continue
        for item in api.items(f"{root}/{kind['name']}"):
            api.delete(api.path(item))
