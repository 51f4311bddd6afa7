"""Fixture of a cluster with the scheduler: control plane, nodes, extender, kube-scheduler."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.documents import CRDS, RBAC, documents_in, sample_documents, sample_workflows
from tests.e2e.harness import Harness, plan_on
from tests.testbed import scheduler_config
from tests.testbed.api import Json, apply_all, wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.extender import start_extender
from tests.testbed.fixtures import cluster, control_plane
from tests.testbed.nodes import create_nodes
from workbench.cluster.mocked_nodes import gpu_nodes
from workbench.cluster.process import free_port

__all__ = [
    "Harness",
    "cluster",
    "control_plane",
    "documents_in",
    "esg",
    "plan_on",
    "sample_documents",
    "sample_workflows",
]
USER = "esg-scheduler"
NEVER_LOGGED = ("Traceback", "RBAC:")
"""Signs of an internal error or a missing right, which a test might not notice otherwise."""

SHOWN_LINES = 20
"""Lines of the log that a failure shows from such a sign on."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, so that `make check` skips them."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture
def esg(cluster: ControlPlane) -> Iterator[Callable[..., Harness]]:
    """A function that starts the scheduler with a number of nodes and GPUs.

    The extender has only the rights of deploy/rbac.yaml. At the end of the test its log must
    contain no sign of an error.
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
    ) -> Harness:
        documents = sample_documents() if documents is None else documents
        apply_all(cluster.api, [*documents_in(CRDS), *documents_in(RBAC)])
        port = free_port()
        with ThreadPoolExecutor(1) as executor:
            starting = executor.submit(
                start_extender,
                cluster,
                port=port,
                kubeconfig=cluster.kubeconfig_for(USER),
                environment=environment,
            )
            apply_all(cluster.api, documents)
            node_objects = gpu_nodes(nodes, gpus, cpu=cpu)
            create_nodes(cluster.api, node_objects)
            harness = Harness(cluster, port, starting.result(), never_logged=signs)
        names = {node["metadata"]["name"] for node in node_objects}
        wait_until(
            lambda: _knows(harness, names, len(documents)),
            what="the extender has all nodes and documents",
        )
        cluster.start_scheduler(
            scheduler_config.render(
                kubeconfig=cluster.scheduler_kubeconfig,
                extender_port=port,
                **{"managed_resources": False, "max_backoff_s": 2, **config},
            )
        )
        return harness

    yield start
    if log.exists():
        with log.open(encoding="utf-8", errors="replace") as file:
            file.seek(before)
            lines = file.read().splitlines()
        sign_indexes = [
            index for index, line in enumerate(lines) if any(sign in line for sign in signs)
        ]
        assert [lines[max(0, index - 3) : index + SHOWN_LINES] for index in sign_indexes] == []


def _knows(harness: Harness, nodes: set[str], documents: int) -> bool:
    known = harness.get("/v1/snapshot").json()
    return (
        nodes <= {node["name"] for node in known["nodes"]}
        and len(known["workflows"]) + len(known["profiles"]) == documents
    )
