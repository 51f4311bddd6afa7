"""Chance: streams of random numbers, one for each purpose, all from one seed."""

from dataclasses import dataclass

import numpy as np

_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Streams:
    """Sources that do not touch one another: drawing more from one leaves the others as they are.

    Attributes:
        policy: the policy's own.
        noises: of run times, one a queue.
    """

    policy: np.random.Generator
    noises: tuple[np.random.Generator, ...]

    @classmethod
    def of(cls, seed: int, queues: int) -> "Streams":
        """The streams of a run."""
        policy, noise = np.random.SeedSequence(seed).spawn(2)
        noises = tuple(np.random.Generator(np.random.PCG64(s)) for s in noise.spawn(queues))
        return cls(np.random.Generator(np.random.PCG64(policy)), noises)


class Noise:
    """What run times are multiplied by: log-normal, one in the mean, as profiles give means.

    Attributes:
        next: of the queue's next run.
    """

    __slots__ = ("_drawn", "_random", "_ratio", "next")

    def __init__(self, random: np.random.Generator, ratio: float) -> None:
        """From a source, with ``ratio`` the standard deviation of its logarithm."""
        self._random = random
        self._ratio = ratio
        self._drawn: list[float] = []
        self.next = 1.0
        self.take()

    def take(self) -> float:
        """That of a run that begins; another one is next."""
        taken = self.next
        if self._ratio > 0:
            if not self._drawn:
                logarithms = self._random.normal(-(self._ratio**2) / 2, self._ratio, _BLOCK)
                self._drawn = np.exp(logarithms).tolist()
            self.next = self._drawn.pop()
        return taken
