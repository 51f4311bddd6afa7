"""pytest fixtures: one control plane for the session, an empty one for each test.

A folder of tests gets them by a conftest.py with
`from tests.testbed.fixtures import cluster, control_plane`. However many folders do so, the control
plane is one: pytest would make one for each place of import, so it is kept in the session's stash.

With `ESG_TEST_KUBECONFIG` tests run on that cluster instead; see `given_cluster`.
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
from tests.testbed.given_cluster import GivenCluster

needs_go = needing(shutil.which("go"), "Go is not installed, and the test bed is built with it")
"""For a test that needs a program of the test bed, but no control plane."""

GIVEN = "ESG_TEST_KUBECONFIG"
"""The environment variable that names the kubeconfig of a cluster to test on."""

_SHARED = pytest.StashKey[ControlPlane]()


@pytest.fixture(scope="session")
def control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ControlPlane:
    """A running control plane with KWOK and no scheduler; skipped where Go is missing.

    Under `CI=true` a missing Go is an error: a run that skipped this would prove nothing.
    """
    stash = request.config.stash
    if _SHARED not in stash:
        folder = tmp_path_factory.mktemp("control-plane")
        given = os.environ.get(GIVEN)
        plane = GivenCluster(folder, Path(given)) if given else ControlPlane(folder)
        request.config.add_cleanup(plane.stop)
        try:
            plane.start()
        except GoMissingError as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(str(error))
        stash[_SHARED] = plane
    return stash[_SHARED]


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The session's control plane, left with nothing of this test in it, failed or not."""
    yield control_plane
    control_plane.reset()
    empty(control_plane)


def empty(plane: ControlPlane) -> None:
    """Delete pods (at once), nodes, our own documents, and what else tests make cluster-wide."""
    api = plane.api
    for namespace in api.items("/api/v1/namespaces"):
        name = namespace["metadata"]["name"]
        if not plane.is_left("Namespace", name):
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
    ):
        api.delete(path)
    for item in api.items("/apis/scheduling.k8s.io/v1/priorityclasses"):
        if not item["metadata"]["name"].startswith("system-"):
            api.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{item['metadata']['name']}")
    wait_until(lambda: not _pods(plane), what="no pod left")
    wait_until(lambda: not _nodes(plane), what="no node left")


def _pods(plane: ControlPlane) -> list[str]:
    """The namespaces of the tests' pods, a name for each pod."""
    found = [each["metadata"]["namespace"] for each in plane.api.items("/api/v1/pods")]
    return [name for name in found if not plane.is_left("Namespace", name)]


def _nodes(plane: ControlPlane) -> list[str]:
    """The names of the tests' nodes."""
    found = [each["metadata"]["name"] for each in plane.api.items("/api/v1/nodes")]
    return [name for name in found if not plane.is_left("Node", name)]


def _delete_nodes(plane: ControlPlane) -> None:
    """All at once, where all are the tests'."""
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
