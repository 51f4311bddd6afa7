"""Slow-downs of two models on one GPU: measured pairs, or generated ones.

Two jobs whose memory does not fit may divide their batches into 2, 4, … parts, whose gradients add
up, while they share the GPU. Parts are slower than whole batches. Of the divisions with which a
pair fits, it takes the one with the least sum of slow-downs; two jobs of one model divide alike.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations_with_replacement, product
from math import inf
from pathlib import Path
from typing import NamedTuple

from studies.training.environments.gavel_throughputs import (
    THROUGHPUTS_FILE,
    JobKind,
    Throughputs,
    read_throughputs,
)

Slowdowns = Mapping[tuple[str, str], float]
"""Run time of the first model with the second over its run time alone; inf: they do not fit."""

_Ratio = Callable[[str, int, str, int], float]
"""Slow-down of a model with so many parts of a batch next to another with so many; inf: no fit."""

_GPU_MODEL = "v100"
_SIZED = re.compile(r"(?P<model>.+) \(batch size (?P<batch>\d+)\)")
_WEIGHTS_RATIO = 0.3  # of a generated model's memory: not activations
_PART_OVERHEAD_RATIO = 0.1  # of the time of a batch, for each part after the first
_INTERFERENCE_RATIO = 1.05  # of generated models, also where their use adds up to less than 1


class _Use(NamedTuple):
    """Parts of a GPU that a generated model needs."""

    time_ratio: float
    memory_ratio: float

    def divided_memory_ratio(self, parts: int) -> float:
        """Return the memory with a batch in so many parts."""
        return self.memory_ratio * (_WEIGHTS_RATIO + (1 - _WEIGHTS_RATIO) / parts)


_GENERATED = {
    "generated-light": _Use(0.3, 0.2),
    "generated-medium": _Use(0.6, 0.4),
    "generated-heavy": _Use(0.9, 0.5),
    "generated-huge": _Use(0.95, 0.7),
}


def read_slowdowns(data: Path, parts_max: int = 1) -> dict[tuple[str, str], float]:
    """Return the slow-downs of all pairs of job types, as measured on one V100.

    A part of a batch has the throughput of the job type with that batch, if it was measured.

    Raises:
        DocumentError: the file is missing or wrong.
    """
    table = read_throughputs(data / THROUGHPUTS_FILE, [_GPU_MODEL])[_GPU_MODEL]
    single = {kind: entry for kind, entry in table.items() if kind[1] == 1 and entry.alone_rps > 0}

    def ratio(model: str, parts: int, neighbour: str, neighbour_parts: int) -> float:
        part = single.get((_part(model, parts), 1))
        if part is None:
            return inf
        alone_rps = single[model, 1].alone_rps
        return _measured_ratio(part, (_part(neighbour, neighbour_parts), 1), parts * alone_rps)

    return _slowdowns([name for name, _ in single], ratio, parts_max)


def _part(model: str, parts: int) -> str:
    """Return the job type with a part of the batch; a type without a batch has none."""
    match = _SIZED.fullmatch(model)
    if parts == 1 or match is None or int(match["batch"]) % parts:
        return model if parts == 1 else ""
    return f"{match['model']} (batch size {int(match['batch']) // parts})"


def _measured_ratio(part: Throughputs, neighbour: JobKind, whole_rps: float) -> float:
    """Return the slow-down against parts a second alone; noise may not speed a job up."""
    own_rps, neighbour_rps = part.pairs.get(neighbour, (0.0, 0.0))
    return max(whole_rps / own_rps, 1.0) if own_rps > 0 and neighbour_rps > 0 else inf


def generated_slowdowns(parts_max: int = 1) -> dict[tuple[str, str], float]:
    """Return slow-downs of models that get GPU time in proportion to their use.

    A part of a batch needs a part of the activations' memory, and has an overhead of its own.
    """

    def ratio(model: str, parts: int, neighbour: str, neighbour_parts: int) -> float:
        use, near = _GENERATED[model], _GENERATED[neighbour]
        if use.divided_memory_ratio(parts) + near.divided_memory_ratio(neighbour_parts) > 1:
            return inf
        overhead_ratio = 1 + _PART_OVERHEAD_RATIO * (parts - 1)
        return overhead_ratio * _INTERFERENCE_RATIO * max(use.time_ratio + near.time_ratio, 1.0)

    return _slowdowns(_GENERATED, ratio, parts_max)


def _slowdowns(
    models: Iterable[str], ratio: _Ratio, parts_max: int
) -> dict[tuple[str, str], float]:
    """Return the slow-downs of all pairs, with whole batches where these fit."""
    parts = [1 << power for power in range(parts_max.bit_length())]
    slowdowns: dict[tuple[str, str], float] = {}
    for first, second in combinations_with_replacement(models, 2):
        divisions = [(n, n) for n in parts] if first == second else list(product(parts, parts))
        ratios = [(ratio(first, n, second, m), ratio(second, m, first, n)) for n, m in divisions]
        whole = ratios[0]
        best = whole if max(whole) < inf else min(ratios, key=sum)
        slowdowns[first, second], slowdowns[second, first] = best
    return slowdowns
