"""Goodput model of Pollux: progress per second of a job on GPUs that it has not tried.

Source: Qiao, Choe, Subramanya, Neiswanger, Ho, Zhang, Ganger, Xing, "Pollux: Co-adaptive Cluster
Scheduling for Goodput-Optimized Deep Learning", OSDI 2021. A step takes compute time, linear in the
local batch, and network time, linear in the number of GPUs, on one node or on several; gamma says
how far they overlap. Goodput is throughput times the statistical efficiency of the batch size.
"""

from collections.abc import Mapping

import numpy as np

from studies.training.goodput_kernels import (
    LOWEST,
    Floats,
    Ints,
    best_samples_per_s,
    fit,
    goodput_table,
)

BATCHES = 50  # sizes that are tried, in equal ratios
STEPS_MAX = 500  # of a fit
_SLOWER_RATIO = 1.1  # of several nodes to one, while several were not seen

Profile = Mapping[tuple[int, int, int], tuple[float, float]]
"""Step and synchronisation times by number of nodes, of GPUs, and local batch."""


def fit_model(profile: Profile) -> Floats:
    """Return the seven parameters that explain measured steps best.

    Compute time a + b·batch; network time a + b·(GPUs - 2) on several nodes, and on one; gamma.
    What was not observed stays at the lower bound; several nodes are assumed slower than one.
    """
    rows = np.array(
        [
            (nodes > 1, gpus, local, step_s - sync_s, step_s)
            for (nodes, gpus, local), (step_s, sync_s) in profile.items()
        ],
        np.float64,
    )
    model = np.array([0.1, 0.01] * 3 + [1.001])
    fixed = np.zeros(len(model), np.bool_)

    def fix(parameter: int, value: float) -> None:
        model[parameter] = value
        fixed[parameter] = True

    spread, several, many = rows[:, 0] > 0, rows[:, 1] > 1, rows[:, 1] > 2  # noqa: PLR2004
    if len(np.unique(rows[:, 2])) == 1:
        fix(0, float(np.mean(rows[:, 3])) / 2)
    for first, seen in ((2, spread), (4, several & ~spread)):
        if not seen.any():
            fix(first, LOWEST)
        if not (seen & many).any():
            fix(first + 1, LOWEST)
    fit(model, fixed, rows, STEPS_MAX)
    if not spread.any():
        model[2] = max(model[2], model[4] * _SLOWER_RATIO)
        model[3] = max(model[3], model[5] * _SLOWER_RATIO)
    return model


def batch_limits(initial: int, largest: int, local_min: int, local_max: int) -> Ints:
    """Return the limits that the kernels take."""
    return np.array([initial, largest, local_min, local_max, BATCHES], np.int64)


def best_division(
    model: Floats, limits: Ints, gradients: tuple[float, float], gpus: int, *, spread: bool
) -> tuple[int, int]:
    """Return local batch and accumulation steps with the largest goodput."""
    division = np.zeros(2, np.int64)
    best_samples_per_s(model, limits, np.array(gradients), gpus, spread, division)
    return int(division[0]), int(division[1])


def goodputs(model: Floats, limits: Ints, gradients: tuple[float, float], gpus: int) -> Floats:
    """Return the best goodput on one node and on several, (2, gpus + 1), samples a second."""
    table = np.zeros((2, gpus + 1))
    goodput_table(model, limits, np.array(gradients), table)
    return table
