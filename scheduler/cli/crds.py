"""``esg crds``: print the CustomResourceDefinitions, or write them to the cluster."""

import asyncio
from pathlib import Path

import typer

from scheduler.cli.failure import failing_on
from scheduler.cluster.api import connect
from scheduler.cluster.crd_upgrade import write_crds
from scheduler.cluster.crds import crds_yaml
from scheduler.cluster.errors import ClusterError


def print_or_apply(kubeconfig: Path | None, *, apply: bool) -> None:
    """Print all definitions as YAML, or create or update them in the cluster."""
    if not apply:
        typer.echo(crds_yaml(), nl=False)
        return
    with failing_on(ClusterError):
        asyncio.run(_apply(kubeconfig))


async def _apply(kubeconfig: Path | None) -> None:
    async with connect(kubeconfig) as api:
        for name in await write_crds(api):
            typer.echo(f"customresourcedefinition {name} written")
