"""GPUs with their shares, and pending pods, for the live page.

Thousands of nodes are megabytes, so the report is rendered in slices that delay no filter call.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from pydantic_core import to_json

from scheduler.extender.explanation import explain
from scheduler.extender.service import Service
from scheduler.ledger.reservation import Reservation

_SLICE: Final = 25  # nodes rendered per turn of the event loop
_PENDING_MAX: Final = 1_000


async def gpu_report(service: Service) -> AsyncIterator[bytes]:
    """Yield nodes with their GPUs and the reservations on them, and the names of pending pods."""
    ledger = service.state.ledger
    pending = [
        f"{pod.namespace}/{pod.name}"
        for pod in service.state.pods.pending.values()
        if pod.function_pod is not None or pod.problem
    ]
    head = {
        "pending": pending[:_PENDING_MAX],
        "pending_pods": len(pending),
        "clients_max": service.settings.gpu_clients_max,
    }
    yield to_json(head)[:-1] + b',"nodes":['
    nodes = [node for node in ledger.fleet.nodes if node is not None and node.gpus]
    for first in range(0, len(nodes), _SLICE):
        described = [
            ledger.node_json(node, _pod)
            for node in nodes[first : first + _SLICE]
            if node.name in ledger.fleet.node_row  # it may be gone by now
        ]
        if described:
            separator = b"," if first else b""
            yield separator + to_json(described)[1:-1]
        await asyncio.sleep(0)
    yield b"]}"


def pending_pod(service: Service, name: str) -> dict[str, Any] | None:
    """Explain why a pod waits, by ``NAMESPACE:NAME``; None: it does not wait."""
    namespace, _, pod_name = name.partition(":")
    for pod in service.state.pods.pending.values():
        if (pod.namespace, pod.name) == (namespace, pod_name):
            nodes = service.state.ledger.node_names()
            explained = explain(
                service.scheduler, pod.raw, nodes, require_ready=service.require_ready
            )
            # Reasons are counted; the names of the nodes would be a list of thousands.
            explained.pop("infeasible_nodes", None)
            explained["feasible_nodes"] = len(explained.get("feasible_nodes") or ())
            return explained
    return None


def _pod(pod: Reservation) -> dict[str, Any]:
    return {
        "name": f"{pod.namespace}/{pod.name}",
        "function": pod.function,
        "gpu_percent": pod.gpu_percent,
        "memory_mib": pod.memory_mib,
        "pool": pod.pool,
        "group": pod.group,
        "slice_percent": pod.slice_percent,
    }
