"""Remove the agents' data from all nodes, and Leases, for a cluster without esg-scheduler.

An agent that ends marks its GPUs as unhealthy, because the next one starts soon. Without a next
one, its annotation, capacity and taint would stay on the nodes forever.
"""

from collections import defaultdict

from scheduler.agent.taints import taints_of, without
from scheduler.cluster.api import Api, Raw
from scheduler.cluster.errors import ApiError
from scheduler.cluster.leases import SHARD_SELECTOR
from scheduler.cluster.object_list import list_all
from scheduler.cluster.owner_lease import LEASE_NAME, STATUS_LEASE_NAME
from scheduler.cluster.reflector import PAGE
from scheduler.cluster.resource import AGENT_NODES, LEASES, PODS
from scheduler.model.names import (
    ANNOTATION_GPU,
    ANNOTATION_GPUS,
    RESOURCE_GPU_PERCENT,
    TAINT_NO_EMPTY_GPU,
)
from scheduler.model.pod import has_ended

_NOT_FOUND = 404


async def remove_inventories(api: Api) -> list[str]:
    """Remove inventory, capacity and taint from every node that has any; return the nodes' names.

    Raises:
        ClusterError: listing the nodes or writing one of them failed.
    """
    nodes, _ = await list_all(api, AGENT_NODES, selectors={}, page=PAGE)
    names = [node["metadata"]["name"] for node in nodes if _has_inventory(node)]
    for name in names:
        path = f"{AGENT_NODES.path}/{name}"
        none = {RESOURCE_GPU_PERCENT: None}
        try:
            node = await api.patch(path, {"metadata": {"annotations": {ANNOTATION_GPUS: None}}})
            taints = taints_of(node)
            if len(others := without(taints, TAINT_NO_EMPTY_GPU)) < len(taints):
                version = {"resourceVersion": node["metadata"]["resourceVersion"]}
                await api.patch(path, {"metadata": version, "spec": {"taints": others}})
            await api.patch(f"{path}/status", {"status": {"capacity": none, "allocatable": none}})
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
    return names


async def gpus_in_use(api: Api) -> dict[tuple[str, str], list[str]]:
    """Return the pods that still have shares of GPUs, by node and GPU.

    Such a GPU stays in compute mode PROHIBITED when its MPS daemon ends: the pods' containers start
    again, and would have the whole GPU.

    Raises:
        ClusterError: listing the pods failed.
    """
    pods, _ = await list_all(api, PODS, selectors={}, page=PAGE)
    in_use = defaultdict(list)
    for pod in pods:
        node, metadata = pod["spec"].get("nodeName"), pod["metadata"]
        uuid = metadata.get("annotations", {}).get(ANNOTATION_GPU)
        if node and uuid and not has_ended(pod):
            in_use[node, uuid].append(f"{metadata['namespace']}/{metadata['name']}")
    return dict(sorted(in_use.items()))


async def delete_leases(api: Api, namespace: str, scheduler: str) -> list[str]:
    """Delete the Leases of kube-scheduler, extender and gateways; return the names of the deleted.

    ``scheduler`` is the name of kube-scheduler's.

    Raises:
        ClusterError: listing them or a deletion failed.
    """
    leases = LEASES.within(namespace)
    shards, _ = await list_all(api, leases, selectors={"labelSelector": SHARD_SELECTOR}, page=PAGE)
    names = sorted(lease["metadata"]["name"] for lease in shards)
    deleted = []
    for name in (scheduler, LEASE_NAME, STATUS_LEASE_NAME, *names):
        try:
            await api.delete(f"{leases.path}/{name}")
            deleted.append(name)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
    return deleted


def _has_inventory(node: Raw) -> bool:
    status = node.get("status") or {}
    return (
        ANNOTATION_GPUS in node["metadata"].get("annotations", {})
        or any(
            RESOURCE_GPU_PERCENT in (status.get(part) or {}) for part in ("capacity", "allocatable")
        )
        or any(taint["key"] == TAINT_NO_EMPTY_GPU for taint in taints_of(node))
    )
