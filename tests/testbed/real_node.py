"""A real node: containerd, kube-proxy and the kubelet, joined to a control plane."""

import json
from pathlib import Path

from tests.testbed import binaries
from tests.testbed.api import Json, wait_until
from tests.testbed.container_runtime import SOCKET, ContainerRuntime
from tests.testbed.control_plane import ControlPlane
from tests.testbed.machine import Machine
from tests.testbed.nodes import are_ready
from tests.testbed.processes import Process

NAME = "real"
START_TIMEOUT_S = 180.0


class RealNode:
    """A node whose pods are containers, on a `Machine`.

    Args:
        machine: started before the control plane, which listens on its network.
        plane: the control plane; see its argument `network`.
        labels: labels of the Node object.
    """

    def __init__(self, machine: Machine, plane: ControlPlane, *, labels: dict[str, str]) -> None:
        self.machine = machine
        self.runtime = ContainerRuntime(machine)
        self._plane = plane
        self._labels = labels
        self.kubelet: Process | None = None

    def start(self) -> None:
        """Start all programs; return when the node is ready for pods.

        Raises:
            GoMissingError, BuildFailedError: see `binaries`.
            StartFailedError: a program did not start; the message ends with its log's tail.
            TimeoutError: the node did not become ready.
        """
        programs = binaries.build(["kubelet", "kube-proxy"])
        self.runtime.start()
        self._start_proxy(programs["kube-proxy"])
        self.kubelet = self._start_kubelet(programs["kubelet"])
        wait_until(self._is_ready, what="the real node is ready", timeout_s=START_TIMEOUT_S)

    def _is_ready(self) -> bool:
        if self.kubelet is not None:
            self.kubelet.check_alive()
        path = f"/api/v1/nodes/{NAME}"
        return self._plane.api.exists(path) and are_ready(self._plane.api, {NAME})

    def _start_proxy(self, program: Path) -> None:
        config = self._config("kube-proxy", proxy_config(self._kubeconfig_of_proxy()))
        self.machine.program("kube-proxy", [str(program), f"--config={config}"]).start()

    def _kubeconfig_of_proxy(self) -> Path:
        return self._plane.kubeconfig_for("system:kube-proxy")

    def _start_kubelet(self, program: Path) -> Process:
        (self.machine.files / "run" / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        config = self._config("kubelet", kubelet_config(self.machine, self._plane.ca))
        kubeconfig = self._plane.kubeconfig_for(f"system:node:{NAME}", ("system:nodes",))
        labels = ",".join(f"{key}={value}" for key, value in self._labels.items())
        kubelet = self.machine.program(
            "kubelet",
            [
                str(program),
                f"--config={config}",
                f"--kubeconfig={kubeconfig}",
                f"--hostname-override={NAME}",
                f"--node-ip={self.machine.network.machine}",
                f"--node-labels={labels}",
            ],
        )
        kubelet.start()
        return kubelet

    def _config(self, name: str, document: Json) -> str:
        path = self.machine.files / "run" / f"{name}.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        return f"/run/{path.name}"


def proxy_config(kubeconfig: Path) -> Json:
    """Return the configuration of kube-proxy: iptables, no change of the kernel's settings."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": NAME,
        "mode": "iptables",
        "detectLocalMode": "InterfaceNamePrefix",
        "detectLocal": {"interfaceNamePrefix": "veth"},
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def kubelet_config(machine: Machine, ca: Path) -> Json:
    """Return the configuration of the kubelet for a small, shared machine."""
    never = dict.fromkeys(
        ("nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"), "0%"
    )
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "address": machine.network.machine,
        "authentication": {"x509": {"clientCAFile": str(ca)}, "anonymous": {"enabled": False}},
        "resolvConf": "/run/resolv.conf",
        "clusterDNS": [machine.network.dns],
        "clusterDomain": "cluster.local",
        "cgroupDriver": "cgroupfs",  # there is no systemd
        "cgroupRoot": f"/{machine.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        # The fill level of the host's disk must not decide tests.
        "evictionHard": {"memory.available": "50Mi", **never},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "2s",
        "registerWithTaints": [],
        # Tests kill the chart's containers and wait for their restart, so the usual first pause is
        # the longest. With a shorter one, an unhealthy leader would restart before its lease ends.
        "featureGates": {"KubeletCrashLoopBackOffMax": True},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
    }
