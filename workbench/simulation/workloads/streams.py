"""Rising times without an end: gaps added up, streams merged, workflows chosen."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from workbench.simulation.workload import CHUNK_MAX, Chunk
from workbench.simulation.workloads.arrivals import Indices, Times

_BLOCK_MIN = 64  # arrivals: below it numpy's calls cost more than the numbers


def chance_of(seed: np.random.SeedSequence, number: int) -> np.random.Generator:
    """Source ``number`` of a seed, the same at each call; seed.spawn() gives others each time."""
    key = (*seed.spawn_key, number)
    return np.random.default_rng(
        np.random.SeedSequence(seed.entropy, spawn_key=key, pool_size=seed.pool_size)
    )


def added_up(gaps_ms: Callable[[int], Times], size: int = CHUNK_MAX) -> Iterator[Times]:
    """Times of a stream whose gaps come from ``gaps_ms(size)``, the first one from 0."""
    last_ms = 0.0
    while True:
        times_ms = gaps_ms(size)
        times_ms[0] += last_ms
        np.cumsum(times_ms, out=times_ms)
        last_ms = float(times_ms[-1])
        yield times_ms


def mixed(
    stream: Iterator[Times], rates: Sequence[float], chance: np.random.Generator
) -> Iterator[Chunk]:
    """One stream without an end, each arrival of a workflow at random, by the ``rates``."""
    shares = np.cumsum(rates)
    edges = shares[:-1] / shares[-1]  # a workflow without a rate lies between two equal ones
    while True:
        times_ms = next(stream)
        chosen = np.searchsorted(edges, chance.random(times_ms.size), side="right")
        yield times_ms, chosen.astype(np.int32)


def merged(streams: Sequence[tuple[int, Iterator[Times]]]) -> Iterator[Chunk]:
    """Streams without an end as one; each is given with the index of its workflow.

    Of each stream one block is held. Which one of two arrivals at the same time comes first may
    depend on how the streams are cut into blocks.
    """
    held = [next(stream) for _, stream in streams]
    indices = np.array([index for index, _ in streams], np.int32)
    while True:
        until_ms = min(float(times_ms[-1]) for times_ms in held)
        due: list[Times] = []
        for row, (_, stream) in enumerate(streams):
            cut = int(np.searchsorted(held[row], until_ms, side="right"))
            due.append(held[row][:cut])
            held[row] = held[row][cut:] if cut < held[row].size else next(stream)
        times_ms = np.concatenate(due)
        workflows: Indices = np.repeat(indices, [times.size for times in due])
        order = np.argsort(times_ms, kind="stable")
        yield times_ms[order], workflows[order]


def block_sizes(rates: Sequence[float]) -> list[int]:
    """How many arrivals of each stream to hold, so that all blocks last about as long."""
    total = sum(rates)
    return [max(_BLOCK_MIN, int(CHUNK_MAX * rate / total)) for rate in rates]
