"""``esg withdraw``: what `helm uninstall` leaves to do."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from scheduler.agent.cleanup import withdraw as withdraw_gpus
from scheduler.agent.cleanup import withdraw_lease
from scheduler.cli.environment import Kubeconfig
from scheduler.cluster.api import connect
from scheduler.cluster.errors import ClusterError


def withdraw(
    lease: Annotated[
        str, typer.Option(metavar="NAMESPACE/NAME", help="remove this Lease as well")
    ] = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Take back what agents have published, on all nodes. End the agents before."""
    namespace, _, name = lease.partition("/")
    if lease and not (namespace and name):
        raise typer.BadParameter("give NAMESPACE/NAME", param_hint="--lease")
    try:
        asyncio.run(_withdraw(kubeconfig, namespace, name))
    except ClusterError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


async def _withdraw(kubeconfig: Path | None, namespace: str, name: str) -> None:
    async with connect(kubeconfig) as api:
        for node in await withdraw_gpus(api):
            typer.echo(f"node {node}: inventory and capacity taken back")
        if name and await withdraw_lease(api, namespace, name):
            typer.echo(f"lease {namespace}/{name} removed")
