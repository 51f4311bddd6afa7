"""The service over an embedded cluster: nodes and documents from files, pods kept in memory.

kube-scheduler's calls work as ever. A pod is known from the moment that filter is asked about it,
as if its creator had put it there; the routes here play the rest: creators, and containers that
end.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, Literal

from fastapi import APIRouter, HTTPException, Request

from scheduler.cluster.embedded import EmbeddedCluster
from scheduler.cluster.link import ClusterLink, Handlers
from scheduler.extender.routes import ProblemDetail, asks, read_body
from scheduler.extender.service import Service
from scheduler.extender.wire import NamedPod, Reader
from scheduler.model.documents import Document, Workflow, to_manifest
from scheduler.model.node import NodeError
from scheduler.model.quoting import quoted
from scheduler.settings import Settings

_POD = Reader(NamedPod)


def embedded_service(
    settings: Settings,
    nodes: Iterable[Mapping[str, Any]],
    documents: Iterable[Document],
    *,
    clock: Callable[[], float] = time.time,
) -> tuple[Service, APIRouter]:
    """A service over these nodes and documents, and the routes that only it has.

    Raises:
        NodeError: one of the nodes has not the shape of a Node with a name.
    """
    node_documents = [_shaped(node, number) for number, node in enumerate(nodes, start=1)]
    cluster: list[EmbeddedCluster] = []

    def connect(handlers: Handlers) -> "nullcontext[ClusterLink]":
        cluster.append(EmbeddedCluster(node_documents, handlers))
        return nullcontext(cluster[-1])

    service = Service(
        settings,
        connect=connect,
        on_filter=lambda pod: _show(cluster[-1], pod),
        watches=False,
        clock=clock,
    )
    known = list(documents)
    service.state.workflows.replace(to_manifest(d) for d in known if isinstance(d, Workflow))
    service.state.profiles.replace(to_manifest(d) for d in known if not isinstance(d, Workflow))
    return service, _routes(cluster, settings)


def _shaped(node: Any, number: int) -> dict[str, Any]:
    """The Node, if its parts are what a cluster would let them be; what they say is read later."""
    metadata = node.get("metadata") if isinstance(node, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if metadata is None or not isinstance(name, str) or not name:
        raise NodeError(f"document {number} is no Node with a metadata.name")
    status = node.get("status") or {}
    parts = {"metadata.annotations": metadata.get("annotations"), "status": status}
    if isinstance(status, Mapping):
        parts |= {f"status.{part}": status.get(part) for part in ("allocatable", "capacity")}
    for part, value in parts.items():
        if value is not None and not isinstance(value, Mapping):
            raise NodeError(f"Node {quoted(name)}: {part} must be a mapping, not {quoted(value)}")
    return dict(node)


def _show(cluster: EmbeddedCluster, pod: Mapping[str, Any]) -> None:
    """Show a pod as Kubernetes would: with a namespace and all three parts, null or not before.

    A pod without a name and a UID could never be bound, so it is not kept.
    """
    metadata = pod.get("metadata") or {}
    if metadata.get("name") and metadata.get("uid"):
        whole = {
            "metadata": metadata | {"namespace": metadata.get("namespace") or "default"},
            "spec": pod.get("spec") or {},
            "status": pod.get("status") or {},
        }
        cluster.upsert_pod({**pod, **whole})


def _routes(cluster: list[EmbeddedCluster], settings: Settings) -> APIRouter:
    routes = APIRouter(prefix="/v1/embedded", tags=["embedded cluster"])
    absent: dict[int | str, dict[str, Any]] = {
        404: {"model": ProblemDetail, "description": "no such pod"}
    }

    @routes.post("/pods", **asks(NamedPod))
    async def create_pod(request: Request) -> dict[str, str]:
        """Put a pod there, or show it again."""
        pod = await read_body(request, _POD, settings)
        _show(cluster[-1], pod.model_dump(exclude_unset=True))
        return {"status": "ok"}

    @routes.post("/pods/{namespace}/{name}/finish", responses=absent)
    async def finish_pod(
        namespace: str, name: str, phase: Literal["Succeeded", "Failed"] = "Succeeded"
    ) -> dict[str, str]:
        """The pod's containers have ended: its share is free."""
        try:
            cluster[-1].finish_pod(namespace, name, phase)
        except KeyError:
            raise HTTPException(404, f"no pod {namespace}/{name} is bound") from None
        return {"status": "ok"}

    @routes.delete("/pods/{namespace}/{name}")
    async def delete_pod(namespace: str, name: str) -> dict[str, str]:
        """The pod is gone, whatever it was doing."""
        cluster[-1].delete_pod(namespace, name)
        return {"status": "ok"}

    return routes
