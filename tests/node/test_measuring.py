"""``esg profiles measure -f`` on the real node, and pods from demand by the profile that it writes.

The GPU is played: a run of the model takes as much longer as the pod's share is smaller.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.node.functions import GPU_MODEL, PODS, START_TIMEOUT_S, grant
from tests.node.mlserver import CONTAINER, POOL, SPEC, WORKFLOW, Gateway, server
from tests.node.real_cluster import NODE, RealCluster
from tests.testbed.api import Json, wait_until
from tests.testbed.build_steps import run
from tests.testbed.mlserver_process import MODEL

pytestmark = pytest.mark.e2e

MEASURED = "esg-scheduler.io/measurement=true"
ALLOWED = "esg-scheduler.io/measurements"
NAMESPACE = "/api/v1/namespaces/default"
SHARES = (20, 40, 80)
NEIGHBOUR = "neighbour"
MS_OF_WHOLE = 200.0  # of a run, far above the time of the network itself
ESG = Path(sys.executable).with_name("esg")
PLAYED: Json = {
    **SPEC,
    "containers": [{**CONTAINER, "env": [{"name": "PLAYED_RUN_MS", "value": f"{MS_OF_WHOLE}"}]}],
}


@contextmanager
def reachable_pods(cluster: RealCluster) -> Iterator[None]:
    """Route this machine's traffic for the addresses of the node's pods to the node."""
    addresses = cluster.api.get(NODE)["spec"]["podCIDR"]
    run(["ip", "route", "replace", addresses, "via", cluster.node.address])
    try:
        yield
    finally:
        run(["ip", "route", "delete", addresses, "via", cluster.node.address])


@contextmanager
def allowed_measurements(cluster: RealCluster) -> Iterator[None]:
    """Allow the namespace pods that state their share, as an administrator does."""
    cluster.api.patch(NAMESPACE, {"metadata": {"labels": {ALLOWED: "allow"}}})
    try:
        yield
    finally:
        cluster.api.patch(NAMESPACE, {"metadata": {"labels": {ALLOWED: None}}})


def measure(gateway: Gateway, folder: Path) -> Json:
    """Measure pods of each share, and beside another function; return the command's JSON."""
    file = folder / "servers.yaml"
    measured = server(template={"spec": PLAYED})
    neighbour = server(template={"spec": PLAYED}, function=NEIGHBOUR, model=MODEL)
    neighbour["metadata"]["name"] = NEIGHBOUR
    file.write_text(yaml.safe_dump_all([measured, neighbour]), encoding="utf-8")
    command = [
        ESG, "profiles", "measure", "-f", file, "--all", "--json", "-o", folder / "profile.yaml",
        "--shares", ",".join(map(str, SHARES)), "--cpus", "1", "--batches", "1,2",
        "--memory-mib", "1800", "--start-s", f"{START_TIMEOUT_S}", "--runs", "3", "--runs-max", "3",
        "--warm-up", "1", "--beside", NEIGHBOUR,
        "--kubeconfig", gateway.release.cluster.plane.kubeconfig,
    ]  # fmt: skip
    cluster = gateway.release.cluster
    with reachable_pods(cluster), allowed_measurements(cluster):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: Json = json.loads(done.stdout)
    return answer


def test_a_profile_of_pods_of_each_share_serves(mlserver_gateway: Gateway, tmp_path: Path) -> None:
    """A function without a profile is measured, and the profile starts pods that answer."""
    gateway = mlserver_gateway
    answer = measure(gateway, tmp_path)
    [gpu] = answer["profile"]["spec"]["gpus"]
    assert gpu["model"] == GPU_MODEL
    times_ms = {
        (row["gpuPercent"], row["batch"]): row["latencyMs"] for row in gpu["configurations"]
    }
    assert times_ms.keys() == {(share, batch) for share in SHARES for batch in (1, 2)}
    for batch in (1, 2):
        by_share_ms = [times_ms[share, batch] for share in SHARES]
        assert by_share_ms == sorted(by_share_ms, reverse=True)
        for share, time_ms in zip(SHARES, by_share_ms, strict=True):
            assert time_ms >= 100 / share * MS_OF_WHOLE
    assert answer["profile"]["spec"]["coldStartMs"] > 0
    assert answer["interference"][MODEL].keys() == {NEIGHBOUR}
    wait_until(
        lambda: not gateway.api.items(PODS, labelSelector=MEASURED),
        what="the measured pods are deleted",
        timeout_s=START_TIMEOUT_S,
    )

    profile = yaml.safe_load((tmp_path / "profile.yaml").read_text(encoding="utf-8"))
    for document in (profile, WORKFLOW, server(template={"spec": PLAYED}, maxPods=1)):
        gateway.api.apply(document)
    wait_until(gateway.serves, what="the gateway has the server", timeout_s=START_TIMEOUT_S)
    gateway.call([1])
    [pod] = gateway.api.items(PODS, labelSelector=POOL)
    assert int(grant(pod)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]) in SHARES
