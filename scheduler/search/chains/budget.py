"""Shares of a workflow's SLO by average normalised length (ANL).

``ANL(f) = mean over configurations k of t(f,k) / sum over the workflow's stages of t(.,k)``: the
average part of the total time that a stage takes. The budget of a stage and all its successors is
``SLO * L / (A + L)``: A is the longest chain of ANLs before the stage, L the longest one from it to
an exit. An entry of the longest path has the whole SLO, and budgets fall along any path.
"""

from collections.abc import Sequence

import numpy as np

from scheduler.search.dag import Dag
from scheduler.search.frontiers.arrays import Floats
from scheduler.search.tables import FunctionTable


def normalised_lengths(stages: Sequence[Sequence[FunctionTable]]) -> Floats:
    """Return the ANL of each stage from its tables on each GPU model; they sum to one.

    The mean is over the (model, configuration) pairs that all stages were profiled with. If there
    are none, the mean time of each stage replaces t(f,k).
    """
    times = [
        {
            (table.model, c.batch, c.cpu, c.gpu_percent): c.latency_ms
            for table in tables
            for c in table.configurations
        }
        for tables in stages
    ]
    common = sorted(set.intersection(*(set(time) for time in times)))
    if common:
        grid = np.array([[time[point] for point in common] for time in times])
        return np.asarray((grid / grid.sum(axis=0)).mean(axis=1), np.float64)
    means = np.array([np.mean(list(time.values())) for time in times])
    return np.asarray(means / means.sum(), np.float64)


def budget_ratios(dag: Dag, lengths: Sequence[float]) -> list[float]:
    """Return for each stage the ratio of the SLO for it and its successors, in (0, 1]."""
    remaining = dag.longest_after(lengths)
    before = dag.longest_before(lengths)
    return [path / (spent + path) for spent, path in zip(before, remaining, strict=True)]
