"""The cluster that a service connects to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from scheduler.cluster.api import connect
from scheduler.cluster.credentials import lease_namespace
from scheduler.cluster.link import ClusterLink, Handlers, LiveCluster
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
