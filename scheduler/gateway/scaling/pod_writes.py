"""Creations and deletions of pods, repeated until the API server answers."""

import asyncio
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

from scheduler.cluster.backoff import Backoff
from scheduler.cluster.errors import ApiError, ClusterError

_FORBIDDEN, _CONFLICT, _TOO_MANY, _SERVER_ERROR = 403, 409, 429, 500


class PodClient(Protocol):
    """Requests about pods, as `scheduler.cluster.pods.PodWriter`."""

    async def create(self, namespace: str, pod: dict[str, Any]) -> None:
        """Create a pod; raises `ClusterError`."""

    async def delete(
        self, namespace: str, name: str, uid: str, *, grace_s: int | None = None
    ) -> None:
        """Delete a pod if it exists, of this UID unless that is empty; raises `ClusterError`."""

    async def live_uids(self, namespace: str, labels: str) -> AbstractSet[str]:
        """Return the UIDs of pods that nobody has deleted; raises `ClusterError`."""


async def create_pod(client: PodClient, namespace: str, pod: dict[str, Any]) -> ApiError | None:
    """Create a pod; return the refusal of the API server, or None once the pod exists.

    The pod has a name, so that an attempt without an answer may be repeated.
    """
    backoff = Backoff()
    while True:
        try:
            await client.create(namespace, pod)
        except ApiError as error:
            if error.status == _CONFLICT and error.reason == "AlreadyExists":
                return None  # an earlier attempt, whose answer was lost
            if error.status < _SERVER_ERROR and error.status != _TOO_MANY:
                return error
        except ClusterError:
            pass  # the caller ends the attempts
        else:
            return None
        await asyncio.sleep(backoff.next_s())


async def delete_pod(
    client: PodClient, namespace: str, name: str, uid: str, *, grace_s: int | None = None
) -> None:
    """Delete a pod; return once the API server has taken the deletion, or has no such pod."""
    backoff = Backoff()
    while True:
        try:
            await client.delete(namespace, name, uid, grace_s=grace_s)
        except ClusterError:
            await asyncio.sleep(backoff.next_s())
        else:
            return


def refusal_text(error: ApiError, namespace: str) -> str:
    """Return why the API server refused a creation, and what to do."""
    if error.status == _FORBIDDEN and "cannot create resource" in error.message:
        return (
            f"the gateway may not create pods in namespace {namespace}; add the namespace to the "
            "chart's gateway.pods.namespaces"
        )
    return f"the API server refused it: {error.message}"
