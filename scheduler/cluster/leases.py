"""Leases of the API server, written only over the version that was read."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil

from scheduler.cluster.api import Api, Raw
from scheduler.cluster.errors import ApiError
from scheduler.cluster.resource import LEASES

SHARD_LABELS = {"app.kubernetes.io/component": "esg-gateway-shard"}
"""Labels of the Leases of gateways' shards."""

SHARD_SELECTOR = ",".join(f"{name}={value}" for name, value in SHARD_LABELS.items())

_CONFLICT = 409


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLease:
    """A Lease.

    Attributes:
        version: resource version.
        holder: identity of the holder; empty: none.
        annotations: annotations of esg-scheduler.
    """

    name: str
    version: str
    holder: str
    duration_s: int
    annotations: Mapping[str, str]


def stored_lease(raw: Raw) -> StoredLease:
    """Read a Lease object."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    return StoredLease(
        name=metadata["name"],
        version=metadata["resourceVersion"],
        holder=spec.get("holderIdentity") or "",
        duration_s=spec.get("leaseDurationSeconds") or 0,
        annotations=metadata.get("annotations") or {},
    )


class LeaseClient:
    """Reads and writes the Leases of one namespace.

    Args:
        labels: labels of the Leases that it creates.
        timeout_s: time limit of a request, in seconds.
    """

    def __init__(
        self, api: Api, namespace: str, labels: Mapping[str, str], *, timeout_s: float = 1.0
    ) -> None:
        self._api = api
        self._path = LEASES.within(namespace).path
        self._labels = dict(labels)
        self._timeout_s = timeout_s

    async def read(self, name: str) -> StoredLease | None:
        """Read a Lease; None: it does not exist.

        Raises:
            ClusterError: there is no answer.
        """
        try:
            raw = await self._api.get(f"{self._path}/{name}", timeout_s=self._timeout_s)
        except ApiError as error:
            if error.is_not_found():
                return None
            raise
        return stored_lease(LEASES.trim(raw))

    async def write(
        self,
        name: str,
        *,
        version: str | None,
        holder: str,
        duration_s: float,
        annotations: Mapping[str, str],
    ) -> StoredLease | None:
        """Write a Lease; None: it has another version.

        Args:
            name: name of the Lease.
            version: version that is replaced; None: the Lease is created.
            holder: identity of the new holder; empty: none.
            duration_s: duration in seconds, rounded up to whole seconds.
            annotations: annotations to replace or to add.

        Raises:
            ClusterError: there is no answer; the Lease may be written, or may still be written.
        """
        body: Raw = {
            "metadata": {"annotations": dict(annotations)},
            "spec": {
                "holderIdentity": holder or None,
                "leaseDurationSeconds": ceil(duration_s),
                "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        try:
            if version is None:
                body["metadata"] |= {"name": name, "labels": self._labels}
                raw = await self._api.post(self._path, body, timeout_s=self._timeout_s)
            else:
                body["metadata"]["resourceVersion"] = version
                path = f"{self._path}/{name}"
                raw = await self._api.patch(path, body, timeout_s=self._timeout_s)
        except ApiError as error:
            if error.status == _CONFLICT or error.is_not_found():
                return None
            raise
        return stored_lease(LEASES.trim(raw))
