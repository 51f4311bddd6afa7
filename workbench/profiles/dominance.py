"""Removal of measured configurations that another one dominates, so that no plan needs them."""

from collections.abc import Iterable

import numpy as np

from scheduler.model.documents import ProfiledConfiguration


def without_dominated(
    configurations: Iterable[ProfiledConfiguration],
) -> list[ProfiledConfiguration]:
    """Return the undominated configurations of one function, sorted by batch, vCPUs and GPU share.

    y dominates x if none of batch, vCPUs, GPU share, memory, latency, latency per request and 95th
    percentile is larger for y than for x. Then y is at least as good as x in every plan:

    - At any prices a request costs no more: it pays its part of the latency, times vCPUs and GPU
      share, each at its price.
    - y ends no later, by the mean and by the 95th percentile. At a given rate its batch fills no
      later, and its throughput is not lower.
    - y is within every ceiling that x is within, and fits on every GPU that x fits on: a node
      without room for y has no room for x.

    This holds for a fixed time budget. Where an SLO is split among stages, the split depends on all
    profiled configurations, so removing one may move the split. Where some configurations have no
    95th percentile, they count with the largest ratio of the others, which a removal may lower.

    If only one of two configurations has a 95th percentile, neither dominates the other. No two are
    at the same point (batch, cpu, gpu_percent): the validation of documents rejects that.
    """
    ordered = sorted(configurations, key=point)  # a dominating configuration comes first
    measures = np.array([_measures(configuration) for configuration in ordered])
    retained = np.empty_like(measures)
    undominated: list[ProfiledConfiguration] = []
    for configuration, row in zip(ordered, measures, strict=True):
        # A dropped one need not be compared: a retained one dominates all that it dominates.
        if not (retained[: len(undominated)] <= row).all(axis=1).any():
            retained[len(undominated)] = row
            undominated.append(configuration)
    return undominated


def point(configuration: ProfiledConfiguration) -> tuple[int, int, int]:
    """Return (batch, vCPUs, GPU percent), which is unique in a profile."""
    return configuration.batch, configuration.cpu, configuration.gpu_percent


def _measures(c: ProfiledConfiguration) -> tuple[float, ...]:
    """List the values to compare; one of the last two differs where only one has a p95."""
    p95 = (0.0, 1.0, 0.0) if c.p95_ms is None else (c.p95_ms, 0.0, 1.0)
    return (*point(c), c.memory_mib, c.latency_ms, c.latency_ms / c.batch, *p95)
