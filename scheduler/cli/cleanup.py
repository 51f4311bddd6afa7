"""``esg cleanup``: remove what ``helm uninstall`` leaves in the cluster."""

import asyncio
from pathlib import Path

import typer

from scheduler.agent.cleanup import delete_leases, gpus_in_use, remove_inventories
from scheduler.cli.failure import failing_on
from scheduler.cluster.api import connect
from scheduler.cluster.errors import ClusterError


def clean_up_cluster(lease: str, kubeconfig: Path | None) -> None:
    """Remove inventories and capacities from all nodes; name the GPUs that pods still use.

    If a Lease is named, delete it, and those of extender and gateways in its namespace.
    """
    namespace, _, name = lease.partition("/")
    if lease and not (namespace and name):
        raise typer.BadParameter("give NAMESPACE/NAME", param_hint="--lease")
    with failing_on(ClusterError):
        asyncio.run(_clean_up(kubeconfig, namespace, name))


async def _clean_up(kubeconfig: Path | None, namespace: str, name: str) -> None:
    async with connect(kubeconfig) as api:
        for node in await remove_inventories(api):
            typer.echo(f"node {node}: inventory and capacity removed")
        for lease_name in await delete_leases(api, namespace, name) if name else ():
            typer.echo(f"lease {namespace}/{lease_name} removed")
        for (node, uuid), pods in (await gpus_in_use(api)).items():
            typer.echo(
                f"{uuid} of node {node} stays in compute mode PROHIBITED, because pods have shares "
                f"of it: {', '.join(pods)}; delete them, then run there: nvidia-smi -i {uuid} -c 0"
            )
