"""Slow-downs of two models on one GPU: measured pairs, or generated ones."""

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import NamedTuple

from workbench.jobs.environments.gavel_throughputs import (
    THROUGHPUTS_FILE,
    JobKind,
    Throughputs,
    read_throughputs,
)

Slowdowns = Mapping[tuple[str, str], float]
"""Run time of the first model with the second over its run time alone; inf: they do not fit."""

_GPU_MODEL = "v100"
_INTERFERENCE_RATIO = 1.05  # of generated models, also where their use adds up to less than 1


class _Use(NamedTuple):
    """Parts of a GPU that a generated model needs."""

    time_ratio: float
    memory_ratio: float


_GENERATED = {
    "generated-light": _Use(0.3, 0.2),
    "generated-medium": _Use(0.6, 0.4),
    "generated-heavy": _Use(0.9, 0.5),
    "generated-huge": _Use(0.95, 0.7),
}


def read_slowdowns(data: Path) -> dict[tuple[str, str], float]:
    """Return the slow-downs of all pairs of job types, as measured on one V100.

    Raises:
        DocumentError: the file is missing or wrong.
    """
    table = read_throughputs(data / THROUGHPUTS_FILE, [_GPU_MODEL])[_GPU_MODEL]
    single = {kind: entry for kind, entry in table.items() if kind[1] == 1 and entry.alone_rps > 0}
    return {
        (kind[0], neighbour[0]): _measured_ratio(entry, neighbour)
        for kind, entry in single.items()
        for neighbour in single
    }


def _measured_ratio(entry: Throughputs, neighbour: JobKind) -> float:
    """Return the slow-down; noise of the measurement may not speed a job up."""
    own_rps, neighbour_rps = entry.pairs.get(neighbour, (0.0, 0.0))
    return max(entry.alone_rps / own_rps, 1.0) if own_rps > 0 and neighbour_rps > 0 else inf


def generated_slowdowns() -> dict[tuple[str, str], float]:
    """Return slow-downs of models that get GPU time in proportion to their use."""
    return {
        (name, neighbour): _generated_ratio(use, neighbour_use)
        for name, use in _GENERATED.items()
        for neighbour, neighbour_use in _GENERATED.items()
    }


def _generated_ratio(use: _Use, neighbour: _Use) -> float:
    if use.memory_ratio + neighbour.memory_ratio > 1:
        return inf
    return _INTERFERENCE_RATIO * max(use.time_ratio + neighbour.time_ratio, 1.0)
