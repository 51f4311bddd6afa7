"""Karpenter on the test bed, with the provider that creates KWOK's nodes in place of machines.

The program and its CRDs are those of Karpenter's Go module. It runs here as an administrator.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import yaml

from tests.testbed import binaries
from tests.testbed.api import Json, apply_all, wait_until
from tests.testbed.build_steps import run
from tests.testbed.control_plane import ControlPlane
from tests.testbed.processes import Process
from workbench.cluster.process import free_port

START_TIMEOUT_S = 180.0
POOLS = "/apis/karpenter.sh/v1/nodepools"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
NODE_CLASS = "kwok"


def instance_type(name: str, *, cpu: int, price: float) -> Json:
    """Create a type of instance with these vCPUs, without GPUs, at a price in dollars per hour."""
    requirements = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "a"}
    return {
        "name": name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": str(cpu), "memory": "64Gi", "ephemeral-storage": "100Gi"},
        "offerings": [
            {
                "Price": price,
                "Available": True,
                "Requirements": [
                    {"key": key, "operator": "In", "values": [value]}
                    for key, value in requirements.items()
                ],
            }
        ],
    }


@contextmanager
def running_karpenter(plane: ControlPlane, instance_types: Sequence[Json]) -> Iterator[Process]:
    """Install Karpenter's CRDs, and run it; at the end its nodes and the pods on them are deleted.

    Args:
        plane: control plane of the test bed's own.
        instance_types: see `instance_type`.

    Raises:
        GoMissingError, BuildFailedError: see `binaries`.
        StartFailedError: it did not become ready; the message ends with its log's tail.
    """
    program = binaries.build(["karpenter"])["karpenter"]
    apply_all(plane.api, _crds())
    plane.api.apply(
        {
            "apiVersion": "karpenter.kwok.sh/v1alpha1",
            "kind": "KWOKNodeClass",
            "metadata": {"name": NODE_CLASS},
        }
    )
    health_port = free_port()
    with tempfile.TemporaryDirectory(prefix="karpenter-") as folder:
        types = Path(folder) / "instance-types.json"
        types.write_text(json.dumps(list(instance_types)), encoding="utf-8")
        process = plane.process(
            "karpenter",
            [str(program)],
            environment={
                "KUBECONFIG": str(plane.kubeconfig_for("karpenter", ("system:masters",))),
                "INSTANCE_TYPES_FILE_PATH": str(types),
                "FEATURE_GATES": "NodeOverlay=true",
                "DISABLE_LEADER_ELECTION": "true",
                "HEALTH_PROBE_PORT": str(health_port),
                "METRICS_PORT": str(free_port()),
            },
        )
        process.start()
        url = f"http://127.0.0.1:{health_port}/readyz"
        process.wait_ready(lambda: _is_ready(url), timeout_s=START_TIMEOUT_S)
        try:
            yield process
        finally:
            _remove_nodes(plane)
            process.stop()


def _crds() -> list[Json]:
    """Read Karpenter's CRDs, and that of its provider, from the module."""
    source = run(
        ["go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/karpenter"],
        folder=binaries.MODULES / "karpenter",
        environment=binaries.environment(),
    )
    files = sorted((Path(source.strip()) / "kwok").glob("*/crds/*.yaml"))
    return [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def _remove_nodes(plane: ControlPlane) -> None:
    """Have Karpenter delete its nodes; it drains them first, and pods may forbid that."""
    api = plane.api
    api.delete(POOLS)
    api.delete("/api/v1/namespaces/default/pods", grace_s=0)
    api.delete(CLAIMS)
    wait_until(lambda: not api.items(CLAIMS), what="Karpenter has deleted its nodes")
