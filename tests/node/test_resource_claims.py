"""Delivery by resource claims: the agent is the kubelet's plugin, and pods have no hostPath."""

from collections.abc import Iterator

import pytest

from tests.node.functions import Function, deployment, grant
from tests.node.real_cluster import RealCluster, container_id
from tests.node.release import Release
from tests.testbed.api import ApiError, Json, wait_until

pytestmark = pytest.mark.e2e

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
DEFAULT = "/api/v1/namespaces/default"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
CONTEXT = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
SPECIFICATIONS = "run/cdi"


@pytest.fixture
def claims(cluster: RealCluster, fresh_release: Release) -> Iterator[Release]:
    """A release with `dra.enabled`; namespace `default` admits only restricted pods."""
    cluster.api.patch(DEFAULT, {"metadata": {"labels": RESTRICTED}})
    try:
        fresh_release.install("install", dra={"enabled": True})
        fresh_release.until_ready()
        fresh_release.documents(CONTEXT)
        yield fresh_release
    finally:
        cluster.api.patch(DEFAULT, {"metadata": {"labels": dict.fromkeys(RESTRICTED)}})


def test_a_restricted_pod_gets_the_folders_of_its_gpu(
    cluster: RealCluster, claims: Release
) -> None:
    """The container sees pipe and shm of the granted GPU; the claim goes with the pod."""
    document = deployment("by-claim")
    [container] = document["spec"]["template"]["spec"]["containers"]
    container["securityContext"] = CONTEXT
    function = Function(cluster, document)
    try:
        pod = function.running()
        gpu = grant(pod)["ESG_GPU"]
        assert folders(cluster, pod) == [f"{gpu}/pipe", f"{gpu}/shm"]
        assert function.environment(pod)["ESG_GPU"] == gpu
        assert not any("hostPath" in volume for volume in pod["spec"]["volumes"])
        [claim] = cluster.api.items(CLAIMS)
        [user] = claim["status"]["reservedFor"]
        assert user["uid"] == pod["metadata"]["uid"]
        assert specifications(cluster) == [
            f"esg-scheduler.io-grant-{claim['metadata']['uid']}.json"
        ]
        cluster.kill(pod, "function")
        wait_until(lambda: restarts(function.pods()[0]), what="the container runs again")
        assert folders(cluster, function.running()) == [f"{gpu}/pipe", f"{gpu}/shm"]
    finally:
        function.delete()
    wait_until(lambda: not cluster.api.items(CLAIMS), what="the claim is deleted")
    wait_until(lambda: not specifications(cluster), what="its CDI device is removed")


def test_the_namespace_refuses_a_volume_of_the_host(cluster: RealCluster, claims: Release) -> None:
    """Without claims, the same pod would not be admitted."""
    del claims
    pod = {
        "metadata": {"name": "with-a-volume"},
        "spec": {
            "containers": [{"name": "c", "image": "i", "securityContext": CONTEXT}],
            "securityContext": {"runAsNonRoot": True},
            "volumes": [{"name": "v", "hostPath": {"path": "/run/esg-scheduler/mps"}}],
        },
    }
    with pytest.raises(ApiError, match="hostPath"):
        cluster.api.request("POST", f"{DEFAULT}/pods", pod, query={"dryRun": "All"})


def folders(cluster: RealCluster, pod: Json) -> list[str]:
    """Return the sources of pipe and shm in the running container, below the mount's root."""
    process = cluster.proc(container_id(pod, "function"))
    rows = [row.split() for row in cluster.node.run("cat", f"{process}/mountinfo").splitlines()]
    sources = {row[4]: row[3] for row in rows}
    return [
        source.partition("/esg-scheduler/mps/")[2]
        for source in (sources["/run/esg-scheduler/mps/pipe"], sources["/dev/shm"])
    ]


def specifications(cluster: RealCluster) -> list[str]:
    """Return the names of the agent's CDI specifications on the node."""
    return sorted(path.name for path in (cluster.node.files / SPECIFICATIONS).glob("esg-*.json"))


def restarts(pod: Json) -> int:
    """Return how often the container was restarted and runs."""
    [status] = pod["status"]["containerStatuses"]
    return status["restartCount"] if "running" in status["state"] else 0
