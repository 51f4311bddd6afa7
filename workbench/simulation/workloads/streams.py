"""Infinite streams of ascending times: cumulative gaps, merged streams, random workflows."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from workbench.simulation.workload import CHUNK_MAX, Chunk
from workbench.simulation.workloads.arrivals import Indices, Times

_BLOCK_MIN = 64  # arrivals: below it, NumPy's call overhead dominates


def generator_of(seed: np.random.SeedSequence, number: int) -> np.random.Generator:
    """Return generator ``number`` of a seed, the same at each call, unlike seed.spawn()."""
    key = (*seed.spawn_key, number)
    return np.random.default_rng(
        np.random.SeedSequence(seed.entropy, spawn_key=key, pool_size=seed.pool_size)
    )


def cumulative_times(gaps_ms: Callable[[int], Times], size: int = CHUNK_MAX) -> Iterator[Times]:
    """Yield the times of a stream whose gaps come from ``gaps_ms(size)``, starting at 0."""
    last_ms = 0.0
    while True:
        times_ms = gaps_ms(size)
        times_ms[0] += last_ms
        np.cumsum(times_ms, out=times_ms)
        last_ms = float(times_ms[-1])
        yield times_ms


def assigned(
    stream: Iterator[Times], rates: Sequence[float], rng: np.random.Generator
) -> Iterator[Chunk]:
    """Yield a stream with a random workflow per arrival, by the ``rates``."""
    shares = np.cumsum(rates)
    edges = shares[:-1] / shares[-1]  # a workflow without a rate lies between two equal edges
    while True:
        times_ms = next(stream)
        indices = np.searchsorted(edges, rng.random(times_ms.size), side="right")
        yield times_ms, indices.astype(np.int32)


def merge(streams: Sequence[tuple[int, Iterator[Times]]]) -> Iterator[Chunk]:
    """Merge infinite streams, each with the index of its workflow.

    One block of each stream is in memory. The order of two arrivals at the same time may depend on
    the sizes of the blocks.
    """
    pending = [next(stream) for _, stream in streams]
    indices = np.array([index for index, _ in streams], np.int32)
    while True:
        until_ms = min(float(times_ms[-1]) for times_ms in pending)
        due: list[Times] = []
        for row, (_, stream) in enumerate(streams):
            cut = int(np.searchsorted(pending[row], until_ms, side="right"))
            due.append(pending[row][:cut])
            pending[row] = pending[row][cut:] if cut < pending[row].size else next(stream)
        times_ms = np.concatenate(due)
        workflows: Indices = np.repeat(indices, [times.size for times in due])
        order = np.argsort(times_ms, kind="stable")
        yield times_ms[order], workflows[order]


def block_sizes(rates: Sequence[float]) -> list[int]:
    """Return block sizes for which all streams' blocks last about equally long."""
    total = sum(rates)
    return [max(_BLOCK_MIN, int(CHUNK_MAX * rate / total)) for rate in rates]
