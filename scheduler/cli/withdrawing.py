"""``esg withdraw``: what `helm uninstall` leaves to do."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from scheduler.agent.withdrawing import withdraw as withdraw_gpus
from scheduler.agent.withdrawing import withdraw_lease
from scheduler.cluster.api import connect
from scheduler.cluster.errors import ClusterError


def withdraw(
    lease: Annotated[
        str, typer.Option(metavar="NAMESPACE/NAME", help="remove this Lease as well")
    ] = "",
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="the cluster; default: in-cluster, else the usual kubeconfig"),
    ] = None,
) -> None:
    """Take back what agents have published, on all nodes. End the agents before."""
    namespace, _, name = lease.partition("/")
    if lease and not (namespace and name):
        raise typer.BadParameter("give NAMESPACE/NAME", param_hint="--lease")
    try:
        asyncio.run(_withdraw(None if kubeconfig is None else str(kubeconfig), namespace, name))
    except ClusterError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


async def _withdraw(kubeconfig: str | None, namespace: str, name: str) -> None:
    async with connect(kubeconfig) as api:
        for node in await withdraw_gpus(api):
            typer.echo(f"node {node}: inventory and capacity taken back")
        if name and await withdraw_lease(api, namespace, name):
            typer.echo(f"lease {namespace}/{name} removed")
