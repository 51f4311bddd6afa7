"""GPUs as CDI devices: annotations of the Binding, read by the NRI plugin of NVIDIA's toolkit.

The kubelet, containerd and the plugin are the real ones; the devices are env variables and links to
/dev/null.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.node.functions import Function, deployment, grant
from tests.node.real_cluster import MOCKS, NODE, RealCluster, container_id
from tests.node.release import NAMESPACE, Release
from tests.testbed import binaries
from tests.testbed.api import Json, wait_until

pytestmark = pytest.mark.e2e

KIND = "nvidia.com/gpu"
ALL = "management.nvidia.com/gpu"
SEEN = "SEEN_BY_CDI"
DEVICE = "/dev/nvidia0"
SPECIFICATIONS = Path("etc/cdi")
VALIDATED = Path("run/nvidia/validations/cuda-ready")
UNIT = "nvidia-nri"
OPERATOR = {"nvidia.com/gpu.deploy.client": "true"}
"""Label of a node that the GPU Operator has prepared; the chart's agents select it."""


@pytest.fixture
def cdi_release(cluster: RealCluster, fresh_release: Release) -> Iterator[Release]:
    """A release with the chart's file for the GPU Operator with NRI, on a node that has both."""
    specifications = cluster.node.files / SPECIFICATIONS
    specifications.mkdir(exist_ok=True)
    write(specifications / "gpus.json", KIND, {uuid: uuid for uuid in cluster.gpus.uuids})
    write(specifications / "management.json", ALL, {"all": "all"})
    validated = cluster.node.files / VALIDATED
    validated.parent.mkdir(parents=True, exist_ok=True)
    validated.touch()
    cluster.api.patch(NODE, {"metadata": {"labels": OPERATOR}})
    start_plugin(cluster)
    try:
        fresh_release.install("install", stack="gpu-operator-nri")
        fresh_release.until_ready()
        fresh_release.documents()
        yield fresh_release
    finally:
        fresh_release.uninstall()
        cluster.node.run("systemctl", "stop", UNIT)
        cluster.api.patch(NODE, {"metadata": {"labels": dict.fromkeys(OPERATOR)}})
        shutil.rmtree(specifications)
        shutil.rmtree(validated.parents[1])


def write(path: Path, kind: str, devices: Mapping[str, str]) -> None:
    """Write a CDI specification; a container with a device has its value and a device file."""
    specification = {
        "cdiVersion": "0.6.0",
        "kind": kind,
        "devices": [
            {
                "name": name,
                "containerEdits": {
                    "env": [f"{SEEN}={value}"],
                    "deviceNodes": [{"path": DEVICE, "hostPath": "/dev/null"}],
                },
            }
            for name, value in devices.items()
        ],
    }
    path.write_text(json.dumps(specification), encoding="utf-8")


def start_plugin(cluster: RealCluster) -> None:
    """Run the plugin as a unit of the node; return when containerd has it."""
    program = binaries.build(["nvidia-nri"])["nvidia-nri"]
    shutil.copy(program, cluster.node.files / MOCKS.lstrip("/"))
    command = (f"{MOCKS}/{program.name}", "/run/nri/nri.sock", NAMESPACE)
    cluster.node.run("systemd-run", f"--unit={UNIT}", "--collect", *command)

    def is_registered() -> bool:
        log = cluster.node.run("journalctl", f"--unit={UNIT}", "--output=cat")
        return "registered" in log

    wait_until(is_registered, what="containerd has the plugin")


def test_the_container_gets_the_gpu_of_its_grant_as_a_cdi_device(
    cluster: RealCluster, cdi_release: Release
) -> None:
    """The other container of the pod gets none; the agent and its daemons get all."""
    document = deployment("by-cdi")
    containers = document["spec"]["template"]["spec"]["containers"]
    containers.append({**containers[0], "name": "sidecar"})
    function = Function(cluster, document)
    try:
        pod = function.running()
        gpu = grant(pod)["ESG_GPU"]
        assert pod["metadata"]["annotations"]["nvidia.cdi.k8s.io/container.function"] == (
            f"{KIND}={gpu}"
        )
        assert seen(cluster, pod, "function") == (gpu, True)
        assert seen(cluster, pod, "sidecar") == (None, False)
    finally:
        function.delete()
    [agent] = cdi_release.pods("agent")
    assert {seen(cluster, agent, name) for name in ("agent", "mps")} == {("all", True)}


def seen(cluster: RealCluster, pod: Json, container: str) -> tuple[str | None, bool]:
    """Return the device's variable in a running container, and whether it has the device file."""
    identity = container_id(pod, container)
    devices = cluster.node.run("ls", f"{cluster.proc(identity)}/root/dev").split()
    return cluster.environment(identity).get(SEEN), Path(DEVICE).name in devices


def test_the_doctor_names_the_way(cluster: RealCluster, cdi_release: Release) -> None:
    """The node has CDI devices and no runtime handler of NVIDIA, so the plugin gives GPUs."""
    [agent] = cdi_release.pods("agent")
    inside = ("--namespace", NAMESPACE, agent["metadata"]["name"], "--container=mps")
    command = ("sh", "-c", "esg doctor --json; true")  # it fails: MPS has no server program here
    findings = json.loads(cluster.kind.kubectl("exec", *inside, "--", *command))
    [delivery] = [item for item in findings if item["subject"] == "GPUs into containers"]
    assert delivery["verdict"] == "ok"
    assert delivery["text"] == f"CDI devices {KIND}: 8, no runtime handler nvidia"
    assert f"settings.cdi_kind: {KIND}" in delivery["remedy"]
