"""A kind cluster for the tests: created from `deploy/kind/cluster.yaml`, and deleted afterwards.

`ESG_KIND_IMAGE` names a node image to pull, such as `kindest/node:v1.36.4@sha256:...`. Without it
the test bed builds one (`node_image`), which needs no registry. The built image has no network for
pods; `create` configures one as kind's own does: a range per node, and routes between the nodes.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.testbed import REPOSITORY, binaries, node_image
from tests.testbed.build_steps import run
from tests.testbed.docker import docker
from tests.testbed.machine_requirements import IMAGE_VARIABLE

NAME = "esg-tests"
CONFIG = REPOSITORY / "deploy" / "kind" / "cluster.yaml"
READY_TIMEOUT_S = 300
_KUBELET = {
    "kind": "KubeletConfiguration",
    "failCgroupV1": False,
    # The fill level of the host's disk must not decide tests.
    "imageGCHighThresholdPercent": 100,
    "evictionHard": dict.fromkeys(
        ("nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"), "0%"
    ),
    # Tests kill the chart's containers and wait for their restart, so the usual first pause is the
    # longest. With a shorter one, an unhealthy leader would restart before its lease ends.
    "featureGates": {"KubeletCrashLoopBackOffMax": True},
    "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
}
_NETWORK = """\
{{"cniVersion": "0.4.0", "name": "pods", "plugins": [
    {{"type": "ptp", "ipMasq": false,
      "ipam": {{"type": "host-local", "subnet": "{range}", "dataDir": "/run/cni/addresses",
                "routes": [{{"dst": "0.0.0.0/0"}}]}}}},
    {{"type": "portmap", "capabilities": {{"portMappings": true}}}}
]}}
"""


class KindCluster:
    """A running kind cluster.

    Args:
        name: its name.
        kubeconfig: kubeconfig of its administrator.
    """

    def __init__(self, name: str, kubeconfig: Path) -> None:
        self.name = name
        self.kubeconfig = kubeconfig
        self.control_plane = f"{name}-control-plane"

    def run(self, node: str, *command: str) -> str:
        """Run a command on a node; return its output."""
        return docker("exec", node, *command)

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl as administrator; return its output."""
        config = "--kubeconfig=/etc/kubernetes/admin.conf"
        return self.run(self.control_plane, "kubectl", config, *arguments)

    def nodes(self) -> list[dict[str, Any]]:
        """Return the Node objects."""
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", "nodes", "-o=json"))["items"]
        return items

    def workers(self) -> list[str]:
        """Return the names of the nodes without a control plane."""
        names = [node["metadata"]["name"] for node in self.nodes()]
        return [name for name in names if name.startswith(f"{self.name}-worker")]

    def load(self, archive: Path, nodes: Sequence[str]) -> None:
        """Import the images of an archive on these nodes."""
        kind("load", "image-archive", str(archive), f"--name={self.name}",
             f"--nodes={','.join(nodes)}")  # fmt: skip


@contextmanager
def kind_cluster(folder: Path) -> Iterator[KindCluster]:
    """Create the cluster; delete it afterwards, failed or not.

    Args:
        folder: folder of its kubeconfig and configuration.

    Raises:
        GoMissingError, BuildFailedError: a step failed; the message ends with its output.
    """
    cluster = KindCluster(NAME, folder / "kind.kubeconfig")
    pulled = os.environ.get(IMAGE_VARIABLE, "")
    config = folder / "kind.yaml"
    config.write_text(yaml.safe_dump(cluster_config(pulled)), encoding="utf-8")
    kind("delete", "cluster", f"--name={NAME}", f"--kubeconfig={cluster.kubeconfig}")
    try:
        kind("create", "cluster", f"--name={NAME}", f"--config={config}",
             f"--kubeconfig={cluster.kubeconfig}")  # fmt: skip
        if not pulled:
            _connect(cluster)
        cluster.kubectl("wait", "--for=condition=Ready", "nodes", "--all",
                        f"--timeout={READY_TIMEOUT_S}s")  # fmt: skip
        cluster.kubectl("rollout", "status", "deployment/coredns", "--namespace=kube-system",
                        f"--timeout={READY_TIMEOUT_S}s")  # fmt: skip
        yield cluster
    finally:
        kind("delete", "cluster", f"--name={NAME}", f"--kubeconfig={cluster.kubeconfig}")


def cluster_config(pulled: str) -> dict[str, Any]:
    """Return the users' configuration with the tests' node image and kubelet settings."""
    config: dict[str, Any] = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    config["kubeadmConfigPatches"].append(yaml.safe_dump(_KUBELET))
    image = pulled or node_image.node_image()
    for node in config["nodes"]:
        node["image"] = image
    if not pulled:
        config["networking"] = {**config.get("networking", {}), "disableDefaultCNI": True}
    return config


def kind(*arguments: str) -> None:
    """Run kind on Docker.

    Raises:
        BuildFailedError: it failed; the message ends with its output.
    """
    program = binaries.build(["kind"])["kind"]
    os.environ["KIND_EXPERIMENTAL_PROVIDER"] = "docker"
    run([str(program), *arguments])


def _connect(cluster: KindCluster) -> None:
    """Give the pods of every node a range of addresses, and route to those of the others."""
    nodes = cluster.nodes()
    routes = {
        node["spec"]["podCIDR"]: address["address"]
        for node in nodes
        for address in node["status"]["addresses"]
        if address["type"] == "InternalIP"
    }
    for node in nodes:
        name, own = node["metadata"]["name"], node["spec"]["podCIDR"]
        script = [f"cat > /etc/cni/net.d/10-pods.conflist <<'END'\n{_NETWORK.format(range=own)}END"]
        script += [f"ip route replace {pods} via {address}"
                   for pods, address in routes.items() if pods != own]  # fmt: skip
        cluster.run(name, "sh", "-euc", "\n".join(["mkdir -p /etc/cni/net.d", *script]))
