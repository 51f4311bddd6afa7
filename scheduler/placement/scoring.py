"""How good each node is for the candidate that decides: 0 to 10, as extenders score.

The order is ESG_Dispatch's: the node that ran the predecessor (its output is local), nodes where
the function is warm, the home node of workflow and function, then the tightest fit, or where the
pod makes fragmentation grow least.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import gcd
from zlib import crc32

import numpy as np

from scheduler.placement.fleet import Fleet, Int64Array
from scheduler.placement.options import FitPolicy
from scheduler.placement.placement import Placement

SCORE_MAX = 10  # MaxExtenderPriority, k8s.io/kube-scheduler/extender/v1/types.go
PREDECESSOR = 10
WARM = 8
HOME = 6
FIT_MAX = 5


@dataclass(frozen=True, slots=True)
class Affinities:
    """Where a pod would rather run; names of nodes, which need not exist any more."""

    predecessors: Collection[str] = ()
    warm: Collection[str] = ()
    home_key: str = ""  # workflow and function; what has the same key has the same home


def scores(
    fleet: Fleet, placing: Placement, affinities: Affinities, policy: FitPolicy = "pack"
) -> Int64Array:
    """A score for each node of ``placing``, shape (n,); 0 for a node that does not hold the pod."""
    held = placing.gpu_rows >= 0
    result = np.zeros(placing.node_rows.shape[0], np.int64)
    if placing.chosen is None:
        return result
    if placing.growths is not None:
        result[held] = _scores_by_growth(placing.growths.growth[held])
    else:
        left = fleet.gpu_free_percent[placing.gpu_rows] - placing.asks.percents[placing.chosen]
        tightness = left if policy == "spread" else 100 - left
        result[:] = np.clip(np.rint(FIT_MAX * tightness / 100), 0, FIT_MAX)
    count = len(fleet.nodes)
    if count:
        result[placing.node_rows == home_row(affinities.home_key, count)] = HOME
    for names, score in ((affinities.warm, WARM), (affinities.predecessors, PREDECESSOR)):
        rows = [row for name in names if (row := fleet.node_row.get(name)) is not None]
        if rows:
            result[np.isin(placing.node_rows, rows)] = score
    result[~held] = 0
    return result


def best_first(
    fleet: Fleet, placing: Placement, node_scores: Int64Array, home_key: str
) -> Int64Array:
    """Indices of the nodes that hold the pod, best score first, then by the walk from home.

    A score is coarse: where fragmentation is looked at, its growth goes before the walk, and then
    the least that is free on the node, which keeps whole nodes for what wants them whole.
    """
    held = np.flatnonzero(placing.gpu_rows >= 0)
    walk = walk_positions(home_key, placing.node_rows[held], max(len(fleet.nodes), 1))
    keys = [walk, -node_scores[held]]
    if placing.growths is not None:
        keys[1:1] = [placing.growths.free_percent[held], placing.growths.growth[held]]
    order: Int64Array = held[np.lexsort(keys)]
    return order


def _scores_by_growth(growths: Int64Array) -> Int64Array:
    """FIT_MAX where fragmentation grows least, 0 where most, and in proportion between."""
    least, most = int(growths.min()), int(growths.max())
    if least == most:
        return np.full_like(growths, FIT_MAX)
    share = (most - growths) / (most - least)
    return np.rint(FIT_MAX * share).astype(np.int64)


def home_row(key: str, count: int) -> int:
    """The home of ``key`` among ``count`` rows of nodes."""
    return crc32(key.encode()) % count


def walk_positions(key: str, rows: Int64Array, count: int) -> Int64Array:
    """At which step the walk from home, by a stride coprime with ``count``, reaches each row."""
    home, inverse = walk(key, count)
    positions: Int64Array = (rows - home) * inverse % count
    return positions


def walk(key: str, count: int) -> tuple[int, int]:
    """The home of ``key``, and the inverse of its stride modulo ``count``."""
    stride = crc32(key.encode()[::-1]) % count or 1
    while gcd(stride, count) != 1:
        stride += 1
    return home_row(key, count), pow(stride, -1, count) if count > 1 else 0
