"""The service over an embedded cluster: kube-scheduler's calls work as on a real one.

A pod exists from its first filter call on, as if its creator had created it.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from scheduler.extender.scheduling import Decision
from scheduler.extender.service import Service
from scheduler.model.documents import Document, FunctionProfile, Workflow, to_manifest
from scheduler.planning.service import PlanningService
from scheduler.settings import Settings
from tests.extender.embedded_cluster import EmbeddedCluster


class EmbeddedService(Service):
    """A service over an embedded cluster.

    There is no watch that kube-scheduler could be ahead of, so refusals need no guard.
    """

    link: EmbeddedCluster

    def __init__(self, planning: PlanningService, documents: Iterable[Document]) -> None:
        super().__init__(planning)
        documents = list(documents)
        store = self.state.documents
        store.workflows.replace(to_manifest(d) for d in documents if isinstance(d, Workflow))
        store.profiles.replace(to_manifest(d) for d in documents if isinstance(d, FunctionProfile))

    async def filter(self, raw: Mapping[str, Any], nodes: list[str]) -> Decision:
        """Create the pod in the cluster, and decide as `Service.filter`."""
        self.require_ready()
        self.create_pod(raw)
        return self.scheduler.filter(await self.prepared_pod(raw), nodes)

    def create_pod(self, raw: Mapping[str, Any]) -> None:
        """Create a pod as Kubernetes would, with a namespace.

        A pod without a name and a UID could never be bound, so it is not stored.
        """
        metadata = raw.get("metadata") or {}
        if metadata.get("name") and metadata.get("uid"):
            namespace = metadata.get("namespace") or "default"
            self.link.upsert_pod({**raw, "metadata": metadata | {"namespace": namespace}})


def embedded_service(
    settings: Settings,
    nodes: Iterable[Mapping[str, Any]],
    documents: Iterable[Document],
    *,
    clock: Callable[[], float] = time.time,
) -> EmbeddedService:
    """Build a service over these nodes and documents."""
    cluster = EmbeddedCluster(map(dict, nodes))
    return EmbeddedService(PlanningService(settings, cluster, clock=clock), documents)
