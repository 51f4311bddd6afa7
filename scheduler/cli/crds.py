"""``esg crds``: print the CustomResourceDefinitions, or write them to the cluster."""

import asyncio
from pathlib import Path

import typer

from scheduler.cluster.api import connect
from scheduler.cluster.crd_upgrade import write_crds
from scheduler.cluster.crds import crds_yaml
from scheduler.cluster.errors import ClusterError


def print_or_apply(kubeconfig: Path | None, *, apply: bool) -> None:
    """Print all definitions as YAML, or create or update them in the cluster."""
    if not apply:
        typer.echo(crds_yaml(), nl=False)
        return
    try:
        asyncio.run(_apply(kubeconfig))
    except ClusterError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


async def _apply(kubeconfig: Path | None) -> None:
    async with connect(kubeconfig) as api:
        for name in await write_crds(api):
            typer.echo(f"customresourcedefinition {name} written")
