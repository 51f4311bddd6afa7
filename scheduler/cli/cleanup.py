"""``esg cleanup``: remove what ``helm uninstall`` leaves in the cluster."""

import asyncio
from pathlib import Path

import typer

from scheduler.agent.cleanup import delete_lease, delete_records, remove_inventories
from scheduler.cluster.api import connect
from scheduler.cluster.errors import ClusterError


def clean_up_cluster(lease: str, kubeconfig: Path | None) -> None:
    """Remove inventories and capacities from all nodes.

    If a Lease is named, delete it, and the records of shares in its namespace.
    """
    namespace, _, name = lease.partition("/")
    if lease and not (namespace and name):
        raise typer.BadParameter("give NAMESPACE/NAME", param_hint="--lease")
    try:
        asyncio.run(_clean_up(kubeconfig, namespace, name))
    except ClusterError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


async def _clean_up(kubeconfig: Path | None, namespace: str, name: str) -> None:
    async with connect(kubeconfig) as api:
        for node in await remove_inventories(api):
            typer.echo(f"node {node}: inventory and capacity removed")
        if name and await delete_lease(api, namespace, name):
            typer.echo(f"lease {namespace}/{name} removed")
        if namespace and (count := await delete_records(api, namespace)):
            typer.echo(f"{count} leases of nodes in {namespace} removed")
