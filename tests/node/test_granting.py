"""Grants, from a Deployment with two labels to a container with limits and a freed share."""

import pytest

from tests.agent.factories import expected_gpus
from tests.node.functions import PERCENT, Deploy, Function, deployment, grant
from tests.node.real_cluster import RealCluster, container_id
from tests.node.release import VALUES, Release
from tests.testbed.api import wait_until

pytestmark = pytest.mark.e2e

WRONG = {
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=80G",
    "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
    "CUDA_VISIBLE_DEVICES": "0,1",
    "ESG_BATCH": "64",
    "NVIDIA_VISIBLE_DEVICES": "all",
}


def test_the_agent_publishes_the_node_s_gpus(cluster: RealCluster, release: Release) -> None:
    """All eight GPUs of NVML are healthy: the MPS daemon of every GPU answers."""
    assert release.gpus() == expected_gpus(cluster.gpus)


def test_the_container_runs_under_the_grant_of_its_pod(
    cluster: RealCluster, release: Release, deploy: Deploy
) -> None:
    """Its environment has the values of the Binding, though the creator requested no GPU."""
    function = deploy("plain")
    pod = function.running()

    granted, environment = grant(pod), function.environment(pod)

    assert granted["NVIDIA_VISIBLE_DEVICES"] in cluster.gpus.uuids
    assert granted["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == str(PERCENT)
    assert granted["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=1800M"
    assert granted["ESG_BATCH"] in {"1", "2"}
    assert granted == {name: environment.get(name) for name in granted}
    assert "CUDA_VISIBLE_DEVICES" not in environment
    assert pod["spec"]["schedulerName"] == "esg-scheduler"


def test_the_grant_replaces_the_creator_s_values(deploy: Deploy) -> None:
    """A Deployment that sets all GPUs without limits gets its grant."""
    function = deploy("greedy", **WRONG, OTHER="kept")
    pod = function.running()

    environment = function.environment(pod)

    assert grant(pod) == {name: environment.get(name) for name in grant(pod)}
    assert not WRONG.items() & (environment.items() - {("ESG_BATCH", grant(pod)["ESG_BATCH"])})
    assert "CUDA_VISIBLE_DEVICES" not in environment
    assert environment["OTHER"] == "kept"


def test_the_container_sees_the_daemon_of_its_gpu_and_no_other(
    cluster: RealCluster, deploy: Deploy
) -> None:
    """One pipe directory, and the shared memory of the same daemon."""
    function = deploy("seeing")
    pod = function.running()
    root = f"{cluster.proc(container_id(pod, 'function'))}/root"
    gpu = cluster.mps_root / grant(pod)["ESG_GPU"]
    node = cluster.node

    seen = function.environment(pod)["CUDA_MPS_PIPE_DIRECTORY"]
    assert node.run("ls", f"{root}{seen}/..").split() == ["pipe"]
    for inside, outside in ((seen, gpu / "pipe"), ("/dev/shm", gpu / "shm")):
        inode = node.run("stat", "--format=%i", f"{root}{inside}")
        assert int(inode) == outside.stat().st_ino
    assert "control" in node.run("ls", f"{root}{seen}").split()


def test_the_shared_memory_of_a_gpu_has_a_size(
    cluster: RealCluster, fresh_release: Release
) -> None:
    """No function can fill the node's /run, if the settings say so."""
    agent = VALUES["agent"]
    agent = {**agent, "settings": {**agent["settings"], "mps_shm_mib": 16}}
    fresh_release.install("install", agent=agent)
    fresh_release.until_ready()
    fresh_release.documents()
    function = Function(cluster, deployment("sized"))
    try:
        root = f"{cluster.proc(container_id(function.running(), 'function'))}/root"
        command = ("stat", "--file-system", "--format=%T %b %S", f"{root}/dev/shm")
        kind, blocks, block_bytes = cluster.node.run(*command).split()
        assert (kind, int(blocks) * int(block_bytes)) == ("tmpfs", 16 * 2**20)
    finally:
        function.delete()


def test_a_deleted_pod_s_share_is_free(release: Release, deploy: Deploy) -> None:
    """The leader's ledger frees it as soon as the container has ended."""
    gpu = grant(deploy("brief").running())["ESG_GPU"]
    wait_until(
        lambda: release.granted_ratio(gpu) == PERCENT / 100, what="the metric shows the grant"
    )
    release.api.delete("/apis/apps/v1/namespaces/default/deployments/brief")
    wait_until(lambda: release.granted_ratio(gpu) == 0, what="the share is free", timeout_s=120)


def test_no_pod_is_placed_on_an_unhealthy_gpu(
    cluster: RealCluster, release: Release, deploy: Deploy
) -> None:
    """The only healthy GPU gets the pod; without one, the pod waits with a reason."""
    for index in range(7):
        cluster.gpus.set(index, rows_failed=1)
    release.until_offers(100)
    last = deploy("last")
    pod = last.running()
    assert grant(pod)["ESG_GPU"] == cluster.gpus.uuids[7]
    last.delete()

    cluster.gpus.set(7, rows_failed=1)
    release.until_offers(0)
    waiting = deploy("waiting")
    wait_until(waiting.reasons, what="the pod has a reason", timeout_s=120)
    [pod] = waiting.pods()
    assert "nodeName" not in pod["spec"]

    for index in range(8):
        cluster.gpus.set(index, rows_failed=0)
    release.until_offers(800)
    assert grant(waiting.running())["ESG_GPU"] in cluster.gpus.uuids
