"""Measured pairs of models on one GPU, in the files of gpulet.

A GPU is divided into two shares under MPS, and both models run batches all the time. The files have
no heads: ``inference.csv`` has the latency of each model alone, ``mem_util.csv`` its use of the
memory's and of the L2 cache's bandwidth, and ``interference.csv`` its latency beside another one.
"""

import csv
from pathlib import Path
from typing import NamedTuple

WHOLE_PERCENT = 100


class Solo(NamedTuple):
    """A model alone under a share.

    Attributes:
        memory_percent, cache_percent: use of the bandwidths of the GPU's memory and L2 cache.
    """

    latency_ms: float
    memory_percent: float
    cache_percent: float


class ModelPoint(NamedTuple):
    """A model with its batch and share."""

    model: str
    batch: int
    percent: int


class MeasuredPair(NamedTuple):
    """A model beside another one that has the rest of the GPU.

    Attributes:
        slowdown: latency over that of the victim alone.
    """

    victim: ModelPoint
    neighbour: ModelPoint
    slowdown: float


def read_solos(folder: Path) -> dict[ModelPoint, Solo]:
    """Read the models that were measured alone."""
    used = {_point(row): (float(row[4]), float(row[6])) for row in _rows(folder / "mem_util.csv")}
    return {
        point: Solo(1000.0 * float(row[6]), *used[point])
        for row in _rows(folder / "inference.csv")
        if (point := _point(row)) in used
    }


def read_pairs(folder: Path, solos: dict[ModelPoint, Solo]) -> list[MeasuredPair]:
    """Read the pairs both of whose models were measured alone."""
    pairs = []
    for row in _rows(folder / "interference.csv"):
        victim = _point(row)
        neighbour = ModelPoint(row[3], int(row[4]), WHOLE_PERCENT - victim.percent)
        if victim in solos and neighbour in solos:
            slowdown = 1000.0 * float(row[8]) / solos[victim].latency_ms
            pairs.append(MeasuredPair(victim, neighbour, slowdown))
    return pairs


def _rows(file: Path) -> list[list[str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.reader(lines))


def _point(row: list[str]) -> ModelPoint:
    return ModelPoint(row[0], int(row[1]), int(row[2]))
