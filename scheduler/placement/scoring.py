"""Affinities of a pod, and the walk over the nodes that orders those of equal score.

The order is ESG_Dispatch's: the node that ran the predecessor (its output is local), nodes where
the function is warm, the home node of workflow and function, then the tightest fit, or where the
pod adds least to fragmentation. `kernels.score_nodes` has the scores.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import gcd
from zlib import crc32

from scheduler.placement.arrays import Float64Array, Int64Array


@dataclass(frozen=True, slots=True)
class Affinities:
    """Preferences of a pod.

    Attributes:
        predecessors: names of the nodes whose output is read; they may no longer exist.
        gpu_ready_ms: (GPUs,) -inf where a container is ready, else inf. None: inf everywhere.
        home_key: workflow and function; equal keys have the same home.
    """

    predecessors: Collection[str] = ()
    gpu_ready_ms: Float64Array | None = None
    home_key: str = ""


def home_row(key: str, count: int) -> int:
    """Return the home of ``key`` among ``count`` rows of nodes."""
    return crc32(key.encode()) % count


def walk_positions(key: str, rows: Int64Array, count: int) -> Int64Array:
    """Return the step at which the walk from home, by a stride coprime with ``count``, is there."""
    home, inverse = walk(key, count)
    positions: Int64Array = (rows - home) * inverse % count
    return positions


def walk(key: str, count: int) -> tuple[int, int]:
    """Return the home of ``key``, and the inverse of its stride modulo ``count``."""
    stride = crc32(key.encode()[::-1]) % count or 1
    while gcd(stride, count) != 1:
        stride += 1
    return home_row(key, count), pow(stride, -1, count) if count > 1 else 0
