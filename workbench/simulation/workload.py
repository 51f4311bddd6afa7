"""Interface of workloads: times and workflows of requests."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

CHUNK_MAX = 65_536  # requests; bounds what is in memory at a time

Chunk = tuple[NDArray[np.float64], NDArray[np.int32]]


class Arrivals(Protocol):
    """Stream of requests, generated while it is read, so that its length costs no memory.

    Attributes:
        workflows: (namespace, name) of each workflow that a chunk's second array numbers.
    """

    @property
    def workflows(self) -> tuple[tuple[str, str], ...]:
        """The workflows that arrive."""
        ...

    def chunks(self) -> Iterator[Chunk]:
        """Yield the requests; each call starts again at the first one.

        A chunk has at most CHUNK_MAX requests: (n,) times in ms, which never decrease, neither
        in a chunk nor from one to the next, and (n,) numbers into ``workflows``.
        """
        ...
