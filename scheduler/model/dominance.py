"""Which measured configurations no plan needs, because another one is better in every respect."""

from collections.abc import Iterable

import numpy as np

from scheduler.model.documents import ProfiledConfiguration


def without_dominated(
    configurations: Iterable[ProfiledConfiguration],
) -> list[ProfiledConfiguration]:
    """The configurations of one function that no other one dominates, by batch, vCPUs and share.

    y dominates x where y has no larger batch, vCPUs, share, memory, latency, latency a request or
    95th percentile. Then y answers every question of the planner at least as well as x:

    - Whatever the prices, a request costs no more: it pays its part of the latency, times vCPUs and
      share, each at its price.
    - y ends no later, by the mean or by the 95th percentile. At a given rate its batch fills no
      later, and its throughput is no less.
    - y is within every ceiling that x is within, and fits on every GPU that x fits on: where no
      node can hold y, none can hold x.

    That holds for a given time to keep. Where an SLO is split among stages instead, all that they
    were profiled with counts, and what is left out may move the split.

    Where one of two configurations has a 95th percentile and the other has none, neither dominates.
    No two are at the same point (batch, cpu, gpu_percent): a document refuses that.
    """
    ordered = sorted(configurations, key=point)  # whatever dominates comes first
    measures = np.array([_measures(configuration) for configuration in ordered])
    kept = np.empty_like(measures)
    chosen: list[ProfiledConfiguration] = []
    for configuration, row in zip(ordered, measures, strict=True):
        # What was dropped need not be asked: something kept dominates all that it dominates.
        if not (kept[: len(chosen)] <= row).all(axis=1).any():
            kept[len(chosen)] = row
            chosen.append(configuration)
    return chosen


def point(configuration: ProfiledConfiguration) -> tuple[int, int, int]:
    """(batch, vCPUs, GPU percent): what a profile has once."""
    return configuration.batch, configuration.cpu, configuration.gpu_percent


def _measures(c: ProfiledConfiguration) -> tuple[float, ...]:
    """What must all be no larger; one of the last two is, where only one of two has a p95."""
    tail = (0.0, 1.0, 0.0) if c.p95_ms is None else (c.p95_ms, 0.0, 1.0)
    return (*point(c), c.memory_mib, c.latency_ms, c.latency_ms / c.batch, *tail)
