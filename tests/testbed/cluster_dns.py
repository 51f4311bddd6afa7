"""CoreDNS on a real node: pods resolve the names of Services as on any cluster."""

from pathlib import Path

from tests.testbed import binaries, images
from tests.testbed.api import Json, apply_all, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.real_node import NAME, RealNode

START_TIMEOUT_S = 180.0
_IMAGE = "testbed.local/coredns:1"
_NAMESPACE = "kube-system"
_LABELS = {"k8s-app": "kube-dns"}
_DEPLOYMENT = f"/apis/apps/v1/namespaces/{_NAMESPACE}/deployments/coredns"
_CONFIG = """\
.:53 {
    errors
    ready
    kubernetes cluster.local
}
"""


def start(node: RealNode, plane: ControlPlane, folder: Path) -> None:
    """Start it in a pod; return when it answers.

    Args:
        node: its node; a scheduler named `default-scheduler` binds the pod.
        plane: control plane of the Services.
        folder: folder for its image.

    Raises:
        GoMissingError, BuildFailedError: see `binaries`.
        StartFailedError: containerd could not import the image.
        TimeoutError: it does not answer in time.
    """
    program = binaries.build(["coredns"])["coredns"]
    node.runtime.load(images.program_image(_IMAGE, program, folder / "coredns.tar"))
    apply_all(plane.api, _manifests(node.machine.network.dns))
    wait_until(
        lambda: plane.api.get(_DEPLOYMENT)["status"].get("readyReplicas") == 1,
        what="CoreDNS answers",
        timeout_s=START_TIMEOUT_S,
    )


def _manifests(address: str) -> list[Json]:
    group = "rbac.authorization.k8s.io"
    named = {"name": "coredns", "namespace": _NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": [
                {
                    "apiGroups": ["", "discovery.k8s.io"],
                    "resources": ["endpointslices", "namespaces", "services"],
                    "verbs": ["list", "watch"],
                }
            ],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:coredns"},
            "subjects": [{"kind": "ServiceAccount", **named}],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": named,
            "data": {"Corefile": _CONFIG},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": _NAMESPACE},
            "spec": {
                "clusterIP": address,
                "selector": _LABELS,
                "ports": [
                    {"name": name, "port": 53, "protocol": name.upper()} for name in ("udp", "tcp")
                ],
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": named,
            "spec": {
                "selector": {"matchLabels": _LABELS},
                "template": {"metadata": {"labels": _LABELS}, "spec": _pod()},
            },
        },
    ]


def _pod() -> Json:
    return {
        "serviceAccountName": "coredns",
        "nodeSelector": {"kubernetes.io/hostname": NAME},
        "dnsPolicy": "Default",
        "containers": [
            {
                "name": "coredns",
                "image": _IMAGE,
                "imagePullPolicy": "Never",
                "args": ["-conf", "/etc/coredns/Corefile"],
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
                "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
            }
        ],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
