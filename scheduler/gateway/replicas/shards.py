"""Shards: the namespaces that have an owner in common, and the order in which replicas get them."""

from functools import lru_cache
from hashlib import blake2b

SHARDS = 8
"""Number of shards. All replicas must agree on it; one that differs would serve with others."""


def shard_of(namespace: str) -> int:
    """Return the shard of a namespace.

    Workflows share functions, and so pods, within a namespace only. Replicas whose caches differ
    still agree on it.
    """
    return _hash(namespace) % SHARDS


@lru_cache(maxsize=16 * SHARDS)
def preference(shard: int, members: frozenset[str]) -> tuple[str, ...]:
    """Order members by their preference for a shard; the others' order is the same without one."""
    return tuple(sorted(members, key=lambda member: (_hash(f"{shard} {member}"), member)))


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
