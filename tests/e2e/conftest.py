"""A cluster with our scheduler on it: control plane, nodes, documents, extender, kube-scheduler."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bed import Esg, plan_on
from tests.e2e.documents import CRDS, RBAC, SAMPLES, documents_in, sample_workflows
from tests.testbed import scheduler_config
from tests.testbed.api import Json, apply_all, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.extender import start_extender
from tests.testbed.fixtures import cluster, control_plane
from tests.testbed.nodes import create_nodes, gpu_nodes
from tests.testbed.processes import free_port

__all__ = [
    "SAMPLES",
    "Esg",
    "cluster",
    "control_plane",
    "documents_in",
    "esg",
    "plan_on",
    "sample_workflows",
]
USER = "esg-scheduler"
NEVER_LOGGED = ("Traceback", "RBAC:")
"""Signs of a fault of ours that a test may not see otherwise, and of a right that is missing."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here, so that the inner loop leaves it out."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture
def esg(cluster: ControlPlane) -> Iterator[Callable[..., Esg]]:
    """A function that starts our scheduler over so many nodes and GPUs.

    The extender has the rights of deploy/rbac.yaml and no others. When the test is over, its log
    must tell of no fault.
    """
    log = cluster.logs / "extender.log"
    before = log.stat().st_size if log.exists() else 0
    signs = set(NEVER_LOGGED)

    def start(
        nodes: int = 4,
        gpus: int = 2,
        *,
        environment: Mapping[str, str] | None = None,
        documents: list[Json] | None = None,
        cpu: int = 64,
        **config: Any,
    ) -> Esg:
        documents = documents_in(SAMPLES) if documents is None else documents
        apply_all(cluster.api, [*documents_in(CRDS), *documents_in(RBAC)])
        port = free_port()
        with ThreadPoolExecutor(1) as beside:
            starting = beside.submit(
                start_extender,
                cluster,
                port=port,
                kubeconfig=cluster.kubeconfig_for(USER),
                environment=environment,
            )
            apply_all(cluster.api, documents)
            made = gpu_nodes(nodes, gpus, cpu=cpu)
            create_nodes(cluster.api, made)
            bed = Esg(cluster, port, starting.result(), never_logged=signs)
        names = {node["metadata"]["name"] for node in made}
        wait_until(lambda: _knows(bed, names, len(documents)), what="the extender knows it all")
        cluster.start_scheduler(
            scheduler_config.render(
                kubeconfig=cluster.scheduler_kubeconfig,
                extender_port=port,
                **{"managed_resources": False, "max_backoff_s": 2, **config},
            )
        )
        return bed

    yield start
    if log.exists():
        with log.open(encoding="utf-8", errors="replace") as lines:
            lines.seek(before)
            assert [line for line in lines if any(sign in line for sign in signs)] == []


def _knows(bed: Esg, nodes: set[str], documents: int) -> bool:
    known = bed.get("/v1/snapshot").json()
    return (
        nodes <= {node["name"] for node in known["nodes"]}
        and len(known["workflows"]) + len(known["profiles"]) == documents
    )
