"""A cluster with one real node and substitutes of NVIDIA's programs."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.agent.fakes import PROGRAM, FakeGpus, compiled
from tests.chart.rendering import KUBERNETES
from tests.testbed import binaries, cluster_dns, images, scheduler_config
from tests.testbed.api import Json
from tests.testbed.control_plane import ControlPlane
from tests.testbed.machine import Machine
from tests.testbed.processes import Guard
from tests.testbed.real_node import NAME, RealNode

NODE = f"/api/v1/nodes/{NAME}"
KUBE_SCHEDULER = f"registry.k8s.io/kube-scheduler:v{KUBERNETES}"
LABELS = {"esg-scheduler.io/shared": "true", "kubernetes.io/hostname": NAME}
MOCKS = "/opt/mocks"
"""Folder with NVML, CUDA, nvidia-cuda-mps-control and the file of GPUs in agent containers."""

_TAKES_PORT = """
import socket, sys, time
print("waiting", flush=True)
while True:
    try:
        server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    except OSError:
        time.sleep(0.01)
    else:
        break
print("listening", flush=True)
time.sleep(3600)
"""


class RealCluster:
    """A control plane, a real node with eight GPUs of the fake NVML, and KWOK for mocked nodes.

    Args:
        plane: the control plane; it runs a scheduler named `default-scheduler`.
        node: the real node, with the project's image and kube-scheduler's.
        gpus: GPUs of the node.
    """

    def __init__(self, plane: ControlPlane, node: RealNode, gpus: FakeGpus) -> None:
        self.plane = plane
        self.api = plane.api
        self.node = node
        self.gpus = gpus

    @property
    def mps_root(self) -> Path:
        """Folder of the MPS daemons."""
        return self.node.machine.files / "run" / "esg-scheduler" / "mps"

    def pods(self, namespace: str, **labels: str) -> list[Json]:
        """Return the pods with these values of the labels `app.kubernetes.io/...`."""
        selector = ",".join(f"app.kubernetes.io/{key}={value}" for key, value in labels.items())
        return self.api.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)

    def log(self, pod: Json, container: str) -> str:
        """Return the output of all runs of the container from the kubelet's logs."""
        metadata = pod["metadata"]
        name = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        folder = self.node.machine.files / "var" / "log" / "pods" / name / container
        return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.log")))

    def empty_dir(self, pod: Json, volume: str) -> Path:
        """Return the folder of an emptyDir of the pod."""
        pods = self.node.machine.files / "var" / "lib" / "kubelet" / "pods"
        return pods / pod["metadata"]["uid"] / "volumes" / "kubernetes.io~empty-dir" / volume

    def kill(self, pod: Json, container: str) -> None:
        """Kill a running container, as the out-of-memory killer would."""
        self.node.runtime.ctr("tasks", "kill", "--signal", "SIGKILL", container_id(pod, container))

    @contextmanager
    def blocked_port(self, pod: Json, port: int) -> Iterator[None]:
        """Run a process that takes the port on the pod's loopback as soon as it is free."""
        network = f"--net={self.proc(container_id(pod, 'kube-scheduler'))}/ns/net"
        command = ["nsenter", network, sys.executable, "-I", "-S", "-c", _TAKES_PORT, str(port)]
        blocker = self.node.machine.program("blocker", command)
        blocker.start()
        try:
            blocker.wait_ready(lambda: "waiting" in blocker.log_tail(), timeout_s=20)
            yield
        finally:
            self.node.machine.end(blocker)

    def proc(self, container: str) -> str:
        """Return the machine's folder below /proc of a running container's first process."""
        return f"/proc/{self.running()[container]}"

    def running(self) -> dict[str, str]:
        """Return the process id of every running container, by containerd's name."""
        rows = [row.split() for row in self.node.runtime.ctr("tasks", "list").splitlines()]
        return {row[0]: row[1] for row in rows if row[2] == "RUNNING"}

    def environment(self, container: str) -> dict[str, str]:
        """Return the environment of a running container's first process."""
        text = self.node.machine.run("cat", f"{self.proc(container)}/environ")
        return dict(line.split("=", 1) for line in text.split("\0") if line)


def container_id(pod: Json, container: str) -> str:
    """Return containerd's name of a container, which identifies one run."""
    [status] = [status for status in statuses(pod) if status["name"] == container]
    identity: str = status["containerID"].removeprefix("containerd://")
    return identity


def running_id(pod: Json, container: str) -> str:
    """Return the same while the container runs, else an empty string."""
    [status] = [status for status in statuses(pod) if status["name"] == container]
    return container_id(pod, container) if "running" in status["state"] else ""


def statuses(pod: Json) -> list[Json]:
    """Return the statuses of the pod's containers, init containers first."""
    status = pod["status"]
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def is_ready(pod: Json) -> bool:
    """Return true if the pod is Ready and not terminating."""
    conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


@contextmanager
def real_cluster() -> Iterator[RealCluster]:
    """Start the cluster; remove everything afterwards, failed or not."""
    with ExitStack() as ending:
        folder = Path(tempfile.mkdtemp(prefix="esg-node-"))
        ending.callback(shutil.rmtree, folder)
        logs = folder / "logs"
        logs.mkdir()
        guard = Guard()
        ending.callback(guard.close)
        machine = Machine(folder / "machine", logs=logs, guard=guard)
        ending.callback(machine.stop)
        machine.start()
        plane = ending.enter_context(ControlPlane(folder, network=machine.network))
        node = RealNode(machine, plane, labels=LABELS)
        node.start()
        plane.start_scheduler(
            scheduler_config.render(
                kubeconfig=plane.scheduler_kubeconfig,
                extender_port=None,
                scheduler_names=("default-scheduler",),
            )
        )
        cluster_dns.start(node, plane, folder)
        _load_images(node, folder)
        yield RealCluster(plane, node, _put_mocks(machine.files / "run" / "mocks"))


def _load_images(node: RealNode, folder: Path) -> None:
    node.runtime.load(images.project_image())
    program = binaries.build(["kube-scheduler"])["kube-scheduler"]
    archive = images.program_image(KUBE_SCHEDULER, program, folder / "kube-scheduler.tar")
    node.runtime.load(archive)


def _put_mocks(folder: Path) -> FakeGpus:
    folder.mkdir()
    compiled(folder)
    shutil.copy(PROGRAM, folder)
    control = folder / "nvidia-cuda-mps-control"
    control.write_text(f'#!/bin/sh\nexec /opt/esg/bin/python -I -S {MOCKS}/{PROGRAM.name} "$@"\n')
    control.chmod(0o755)
    return FakeGpus(folder, folder, 8)
