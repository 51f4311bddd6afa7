"""Which pods arrive, and in which order: as in the trace, shuffled, or more of them."""

from collections.abc import Sequence

import numpy as np

from scheduler.placement.arrays import Int64Array
from workbench.simulation.packing.trace import Pod


def arrivals(
    pods: Sequence[Pod],
    capacity_percent: int,
    *,
    inflate: float | None = None,
    seed: int | None = None,
) -> list[Pod]:
    """The pods as they arrive.

    Without a seed they come as given. With one they are shuffled. Inflated, pods drawn from them
    anew are added until all together ask ``inflate`` times the cluster's GPUs, and then all are
    shuffled, by seed 0 where none is given; a list that asks more is cut there after shuffling.

    Args:
        pods: in the order of their creation.
        capacity_percent: of all GPUs of the cluster, in percent of one.
        inflate: that multiple; None: the pods as they are.
        seed: of the draw and the order.

    Raises:
        ValueError: no pod asks for a GPU, so that no number of them asks that much.
    """
    if inflate is None and seed is None:
        return list(pods)
    draw, order = np.random.SeedSequence(seed or 0).spawn(2)
    chosen = np.arange(len(pods))
    shares = np.array([pod.share_percent for pod in pods], np.int64)
    if inflate is not None:
        wanted = inflate * capacity_percent
        chosen = np.concatenate([chosen, _drawn(draw, shares, wanted - int(shares.sum()))])
        np.random.default_rng(order).shuffle(chosen)
        # The pod that reaches the multiple is the last.
        asked_before = np.cumsum(shares[chosen]) - shares[chosen]
        chosen = chosen[asked_before < wanted]
    else:
        np.random.default_rng(order).shuffle(chosen)
    return [pods[i] for i in chosen.tolist()]


def _drawn(source: np.random.SeedSequence, shares: Int64Array, lacking: float) -> Int64Array:
    """Indices drawn with replacement until they ask what is lacking."""
    if lacking > 0 and not shares.any():
        raise ValueError("no pod asks for a GPU; there is nothing to inflate")
    random = np.random.default_rng(source)
    drawn: list[int] = []
    while lacking > 0:
        index = int(random.integers(len(shares)))
        drawn.append(index)
        lacking -= int(shares[index])
    return np.array(drawn, np.int64)
