"""What agents have published, taken back from all nodes: for a cluster that is done with us.

An agent that ends marks its GPUs as ill, for the next one comes soon. Where none will come, what it
wrote would stay on the nodes for ever.
"""

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.errors import ApiError
from scheduler.cluster.listing import list_all
from scheduler.cluster.reflector import PAGE
from scheduler.cluster.resource import NODES
from scheduler.model.names import ANNOTATION_GPUS, RESOURCE_GPU_PERCENT

_GONE = 404
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}"


async def withdraw(api: Api) -> list[str]:
    """Take the inventory and the capacity from every node that shows any; the names of the nodes.

    Raises:
        ClusterError: nodes cannot be listed, or one of them not be written.
    """
    nodes, _ = await list_all(api, NODES, selectors={}, page=PAGE)
    shown = [node["metadata"]["name"] for node in nodes if _shows(node)]
    for name in shown:
        path = f"{NODES.path}/{name}"
        none = {RESOURCE_GPU_PERCENT: None}
        try:
            await api.patch(path, {"metadata": {"annotations": {ANNOTATION_GPUS: None}}})
            await api.patch(f"{path}/status", {"status": {"capacity": none, "allocatable": none}})
        except ApiError as error:
            if error.status != _GONE:
                raise
    return shown


async def withdraw_lease(api: Api, namespace: str, name: str) -> bool:
    """Remove the Lease that kube-scheduler has made; whether there was one.

    Raises:
        ClusterError: it cannot be removed.
    """
    try:
        await api.delete(_LEASES.format(namespace, name))
    except ApiError as error:
        if error.status != _GONE:
            raise
        return False
    return True


def _shows(node: Raw) -> bool:
    status = node.get("status") or {}
    return ANNOTATION_GPUS in node["metadata"].get("annotations", {}) or any(
        RESOURCE_GPU_PERCENT in (status.get(part) or {}) for part in ("capacity", "allocatable")
    )
