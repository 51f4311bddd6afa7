"""The service over an embedded cluster: nodes and documents from files, pods in memory.

kube-scheduler's calls work as on a real cluster. A pod exists from its first filter call on, as if
its creator had created it; further routes act as pod creators and as containers that end.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal

from fastapi import APIRouter, HTTPException, Request

from scheduler.cluster.embedded import EmbeddedCluster
from scheduler.cluster.link import Handlers
from scheduler.extender.scheduling import Decision
from scheduler.extender.service import Service
from scheduler.extender.wire import NamedPod
from scheduler.model.documents import Document, FunctionProfile, Workflow, to_manifest
from scheduler.model.node import checked_node
from scheduler.server.messages import ProblemDetail, Reader, openapi_body, read_body
from scheduler.settings import Settings

_POD = Reader(NamedPod)


class EmbeddedService(Service):
    """A service over an embedded cluster.

    There is no watch that kube-scheduler could be ahead of, so refusals need no guard.
    """

    link: EmbeddedCluster

    def __init__(
        self,
        settings: Settings,
        documents: Iterable[Document],
        *,
        connect: Callable[[Handlers], AbstractAsyncContextManager[EmbeddedCluster]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(settings, connect=connect, clock=clock)
        known = list(documents)
        store = self.state.documents
        store.workflows.replace(to_manifest(d) for d in known if isinstance(d, Workflow))
        store.profiles.replace(to_manifest(d) for d in known if isinstance(d, FunctionProfile))

    async def filter(self, raw: Mapping[str, Any], nodes: list[str]) -> Decision:
        """Create the pod in the cluster, and decide as `Service.filter`."""
        self.require_ready()
        self.create_pod(raw)
        return self.scheduler.schedule(await self.prepared_pod(raw), nodes)

    def create_pod(self, raw: Mapping[str, Any]) -> None:
        """Create a pod as Kubernetes would: with a namespace and all three parts, null or not.

        A pod without a name and a UID could never be bound, so it is not stored.
        """
        metadata = raw.get("metadata") or {}
        if metadata.get("name") and metadata.get("uid"):
            complete = {
                "metadata": metadata | {"namespace": metadata.get("namespace") or "default"},
                "spec": raw.get("spec") or {},
                "status": raw.get("status") or {},
            }
            self.link.upsert_pod({**raw, **complete})


def embedded_service(
    settings: Settings,
    nodes: Iterable[Mapping[str, Any]],
    documents: Iterable[Document],
    *,
    clock: Callable[[], float] = time.time,
) -> EmbeddedService:
    """Build a service over these nodes and documents.

    Raises:
        NodeError: one of the nodes does not have the form of a Node with a name.
    """
    checked = [checked_node(node, number) for number, node in enumerate(nodes, start=1)]
    return EmbeddedService(
        settings,
        documents,
        connect=lambda handlers: nullcontext(EmbeddedCluster(checked, handlers)),
        clock=clock,
    )


def embedded_router(service: EmbeddedService) -> APIRouter:
    """Build the routes that create, finish and delete pods of the embedded cluster."""
    routes = APIRouter(prefix="/v1/embedded", tags=["embedded cluster"])
    absent: dict[int | str, dict[str, Any]] = {
        404: {"model": ProblemDetail, "description": "no such pod"}
    }

    @routes.post("/pods", **openapi_body(NamedPod))
    async def create_pod(request: Request) -> dict[str, str]:
        """Create a pod, or update it."""
        pod = await read_body(request, _POD, limit_mib=service.settings.body_max_mib)
        service.create_pod(pod.model_dump(exclude_unset=True))
        return {"status": "ok"}

    @routes.post("/pods/{namespace}/{name}/finish", responses=absent)
    async def finish_pod(
        namespace: str, name: str, phase: Literal["Succeeded", "Failed"] = "Succeeded"
    ) -> dict[str, str]:
        """End the pod's containers; its share becomes free."""
        try:
            service.link.finish_pod(namespace, name, phase)
        except KeyError:
            raise HTTPException(404, f"no pod {namespace}/{name} is bound") from None
        return {"status": "ok"}

    @routes.delete("/pods/{namespace}/{name}")
    async def delete_pod(namespace: str, name: str) -> dict[str, str]:
        """Delete the pod in any phase."""
        service.link.delete_pod(namespace, name)
        return {"status": "ok"}

    return routes
