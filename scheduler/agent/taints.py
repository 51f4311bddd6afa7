"""Taints of a Node, as a list."""

from collections.abc import Iterable

from scheduler.cluster.api import Raw


def taints_of(node: Raw) -> list[Raw]:
    """Return the taints of a Node."""
    return (node.get("spec") or {}).get("taints") or []


def without(taints: Iterable[Raw], key: str) -> list[Raw]:
    """Return the taints that do not have a key."""
    return [taint for taint in taints if taint["key"] != key]
