"""The kind cluster, with a worker that has substitutes of NVIDIA's programs."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.agent.fakes import PROGRAM, FakeGpus, compiled
from tests.node.worker import Worker
from tests.testbed import images
from tests.testbed.api import Json
from tests.testbed.external_cluster import ExternalCluster
from tests.testbed.kind_cluster import NAME as CLUSTER
from tests.testbed.kind_cluster import KindCluster
from tests.testbed.processes import Process
from workbench.cluster.guard import Guard

NAME = f"{CLUSTER}-worker"
NODE = f"/api/v1/nodes/{NAME}"
LABELS = {"esg-scheduler.io/shared": "true"}
MOCKS = "/opt/mocks"
"""Folder with NVML, CUDA, nvidia-cuda-mps-control and the file of GPUs, on the node and in agents.

kind mounts /run without the right to execute programs."""

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
    """A kind cluster, a worker with eight GPUs of the fake NVML, and KWOK for mocked nodes.

    Args:
        kind: the kind cluster.
        plane: its control plane.
        node: the worker with GPUs; all workers have the project's image.
        gpus: GPUs of the worker.
        image: archive of the project's image.
        guard: ends programs if this process dies.
    """

    def __init__(
        self,
        kind: KindCluster,
        plane: ExternalCluster,
        node: Worker,
        gpus: FakeGpus,
        *,
        image: Path,
        guard: Guard,
    ) -> None:
        self.kind = kind
        self.plane = plane
        self.api = plane.api
        self.node = node
        self.gpus = gpus
        self.image = image
        self._guard = guard

    @property
    def mps_root(self) -> Path:
        """Folder of the MPS daemons."""
        return self.node.files / "run" / "esg-scheduler" / "mps"

    def pods(self, namespace: str, **labels: str) -> list[Json]:
        """Return the pods with these values of the labels `app.kubernetes.io/...`."""
        selector = ",".join(f"app.kubernetes.io/{key}={value}" for key, value in labels.items())
        return self.api.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)

    def log(self, pod: Json, container: str) -> str:
        """Return the output of all runs of the container from the kubelet's logs."""
        metadata = pod["metadata"]
        name = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        folder = self.node.files / "var" / "log" / "pods" / name / container
        return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.log")))

    def empty_dir(self, pod: Json, volume: str) -> Path:
        """Return the folder of an emptyDir of the pod."""
        pods = self.node.files / "var" / "lib" / "kubelet" / "pods"
        return pods / pod["metadata"]["uid"] / "volumes" / "kubernetes.io~empty-dir" / volume

    def kill(self, pod: Json, container: str) -> None:
        """Kill a running container, as the out-of-memory killer would."""
        self.node.ctr("tasks", "kill", "--signal", "SIGKILL", container_id(pod, container))

    @contextmanager
    def container(self, name: str, arguments: list[str], *options: str) -> Iterator[Process]:
        """Run a container of the project's image on the node until the block ends."""
        image = f"{images.PROJECT}:{images.version()}"
        command = self.node.container_command(name, image, arguments, *options)
        process = Process(name, command, log_folder=self.plane.logs, guard=self._guard)
        process.start()
        try:
            yield process
        finally:
            self.node.ctr("tasks", "kill", "--signal=SIGKILL", name)
            process.wait_ended(timeout_s=60)

    @contextmanager
    def blocked_port(self, pod: Json, port: int) -> Iterator[None]:
        """Run a process that takes the port on the pod's loopback as soon as it is free."""
        network = f"{self.proc(container_id(pod, 'kube-scheduler'))}/ns/net"
        command = ["python", "-I", "-S", "-c", _TAKES_PORT, str(port)]
        with self.container("blocker", command, f"--with-ns=network:{network}") as blocker:
            blocker.wait_ready(lambda: "waiting" in blocker.log_tail(), timeout_s=60)
            yield

    def proc(self, container: str) -> str:
        """Return the node's folder below /proc of a running container's first process."""
        return f"/proc/{self.running()[container]}"

    def running(self) -> dict[str, str]:
        """Return the process id of every running container, by containerd's name."""
        rows = [row.split() for row in self.node.ctr("tasks", "list").splitlines()]
        return {row[0]: row[1] for row in rows if row[2] == "RUNNING"}

    def environment(self, container: str) -> dict[str, str]:
        """Return the environment of a running container's first process."""
        text = self.node.run("cat", f"{self.proc(container)}/environ")
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
def real_cluster(kind: KindCluster) -> Iterator[RealCluster]:
    """Prepare the kind cluster for the chart; the programs of this machine end afterwards."""
    with ExitStack() as ending:
        folder = Path(tempfile.mkdtemp(prefix="esg-node-"))
        ending.callback(shutil.rmtree, folder)
        guard = Guard()
        ending.callback(guard.close)
        plane = ExternalCluster(folder, kind.kubeconfig)
        ending.callback(plane.stop)
        plane.start()
        node = Worker(NAME)
        image = images.project_image()
        kind.load(image, kind.workers())
        gpus = _put_mocks(node.files / MOCKS.lstrip("/"))
        plane.api.patch(NODE, {"metadata": {"labels": LABELS}})
        yield RealCluster(kind, plane, node, gpus, image=image, guard=guard)


def _put_mocks(folder: Path) -> FakeGpus:
    folder.mkdir()
    compiled(folder)
    shutil.copy(PROGRAM, folder)
    control = folder / "nvidia-cuda-mps-control"
    control.write_text(f'#!/bin/sh\nexec /opt/esg/bin/python -I -S {MOCKS}/{PROGRAM.name} "$@"\n')
    control.chmod(0o755)
    return FakeGpus(folder, folder, 8)
