"""Pods in their order of arrival: as in the trace, shuffled, or with pods drawn in addition."""

from collections.abc import Sequence

import numpy as np

from scheduler.placement.arrays import Int64Array
from studies.packing.trace import TracePod


def arrivals(
    pods: Sequence[TracePod],
    capacity_percent: int,
    *,
    inflation_ratio: float | None = None,
    seed: int | None = None,
) -> list[TracePod]:
    """Return the pods as they arrive.

    Without a seed they come in their order. With one they are shuffled. Inflated, pods drawn from
    them are added until all together request ``inflation_ratio`` times the cluster's GPUs, and then
    all are shuffled, by seed 0 where there is none; a list that requests more is cut there after
    shuffling.

    Args:
        pods: pods in the order of their creation.
        capacity_percent: capacity of all GPUs of the cluster, in percent of one GPU.
        inflation_ratio: requested over existing GPUs after the draw. Default: nothing is drawn.
        seed: seed of the draw and the order. Default: 0 with an inflation, otherwise the order of
            creation.

    Raises:
        ValueError: no pod requests a GPU, so that no number of them requests so much.
    """
    if inflation_ratio is None and seed is None:
        return list(pods)
    draw, order = np.random.SeedSequence(seed or 0).spawn(2)
    indices = np.arange(len(pods))
    shares = np.array([pod.share_percent for pod in pods], np.int64)
    if inflation_ratio is not None:
        target_percent = inflation_ratio * capacity_percent
        indices = np.concatenate(
            [indices, _drawn(draw, shares, target_percent - int(shares.sum()))]
        )
        np.random.default_rng(order).shuffle(indices)
        # The pod that reaches the target is the last.
        requested_before = np.cumsum(shares[indices]) - shares[indices]
        indices = indices[requested_before < target_percent]
    else:
        np.random.default_rng(order).shuffle(indices)
    return [pods[i] for i in indices.tolist()]


def _drawn(
    source: np.random.SeedSequence, shares: Int64Array, missing_percent: float
) -> Int64Array:
    """Draw indices with replacement until they request the missing share."""
    if missing_percent > 0 and not shares.any():
        raise ValueError("no pod requests a GPU; there is nothing to inflate")
    random = np.random.default_rng(source)
    drawn: list[int] = []
    while missing_percent > 0:
        index = int(random.integers(len(shares)))
        drawn.append(index)
        missing_percent -= int(shares[index])
    return np.array(drawn, np.int64)
