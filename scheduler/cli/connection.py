"""Clusters that a service connects to: a real one, or one in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import typer

from scheduler.cli.document_files import read_nodes, read_sound
from scheduler.cluster.api import connect
from scheduler.cluster.credentials import lease_namespace
from scheduler.cluster.link import ClusterLink, Handlers, LiveCluster
from scheduler.extender.embedded_service import EmbeddedService, embedded_service
from scheduler.model.node import NodeError
from scheduler.planning.service import ConnectCluster
from scheduler.settings import Settings


def live_cluster(kubeconfig: Path | None, settings: Settings | None = None) -> ConnectCluster:
    """Connect to the API server of a kubeconfig; None: that of the pod, else of the user.

    ``settings`` are those of a process that binds pods; None: it only plans them.
    """

    @asynccontextmanager
    async def connected(handlers: Handlers) -> AsyncIterator[ClusterLink]:
        async with connect(kubeconfig) as api:
            if settings is None:
                yield LiveCluster(api, handlers)
                return
            yield LiveCluster(
                api,
                handlers,
                lease_namespace=lease_namespace(settings.owner_lease_namespace),
                lease_timeout_s=settings.api_timeout_s / 3,
                resource_claims=settings.resource_claims,
            )

    return connected


def embedded_cluster(settings: Settings, nodes: Path, profiles: Path | None) -> EmbeddedService:
    """Build a service over the nodes and the documents of files.

    Raises:
        BadParameter: typer's; the message says what is missing or cannot be read.
    """
    if profiles is None:
        raise typer.BadParameter(
            "--embedded needs --profiles: an embedded cluster has no API server"
        )
    try:
        return embedded_service(settings, read_nodes(nodes), read_sound(profiles))
    except NodeError as error:
        raise typer.BadParameter(f"{nodes}: {error}") from None
