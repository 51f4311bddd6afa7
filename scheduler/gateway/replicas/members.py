"""The gateway's replicas: their pods, as the watch reports them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from scheduler.gateway.discovery.server_pods import is_ready


class MemberPods:
    """Handler of the pods of all replicas.

    Attributes:
        hosts: addresses by the pods' names.
        ready: names of the pods that are ready and not being deleted.

    Args:
        on_change: called after each change.
    """

    def __init__(self, on_change: Callable[["MemberPods"], None]) -> None:
        self.hosts: dict[str, str] = {}
        self.ready: set[str] = set()
        self._on_change = on_change

    def replace(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Replace all pods by those of a list."""
        self.hosts.clear()
        self.ready.clear()
        for item in items:
            self._add(item)
        self._on_change(self)

    def upsert(self, item: Mapping[str, Any]) -> None:
        """Add or change a pod."""
        self._remove(item)
        self._add(item)
        self._on_change(self)

    def delete(self, item: Mapping[str, Any]) -> None:
        """Remove a pod."""
        self._remove(item)
        self._on_change(self)

    def _add(self, item: Mapping[str, Any]) -> None:
        metadata, status = item["metadata"], item.get("status") or {}
        if host := status.get("podIP"):
            self.hosts[metadata["name"]] = host
            if is_ready(status) and not metadata.get("deletionTimestamp"):
                self.ready.add(metadata["name"])

    def _remove(self, item: Mapping[str, Any]) -> None:
        self.hosts.pop(item["metadata"]["name"], None)
        self.ready.discard(item["metadata"]["name"])
