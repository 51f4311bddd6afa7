"""Random number streams, one for each purpose, all from one seed."""

from dataclasses import dataclass
from math import exp, log

import numpy as np

REQUEST_NOISE_STREAM = 2  # of the stations: not among `Streams`
_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Streams:
    """Independent streams: a draw from one does not change the others.

    Attributes:
        policy: generator of the policy.
        noises: generators of the run times' noise, one per queue.
        starts: generators of the cold starts' durations, one per function.
    """

    policy: np.random.Generator
    noises: tuple[np.random.Generator, ...]
    starts: tuple[np.random.Generator, ...]

    @classmethod
    def of(cls, seed: int, queues: int, functions: int) -> "Streams":
        """Spawn the streams of a run."""
        policy, noise, _, start = np.random.SeedSequence(seed).spawn(4)  # REQUEST_NOISE_STREAM: 2
        noises, starts = (
            tuple(np.random.Generator(np.random.PCG64(s)) for s in parent.spawn(count))
            for parent, count in ((noise, queues), (start, functions))
        )
        return cls(np.random.Generator(np.random.PCG64(policy)), noises, starts)


class Noise:
    """Log-normal factors of run times with mean 1, because profiles give means.

    Attributes:
        next_factor: factor of the queue's next run.
    """

    __slots__ = ("_drawn", "_random", "_ratio", "next_factor")

    def __init__(self, random: np.random.Generator, ratio: float) -> None:
        """Take ``ratio`` as the standard deviation of the logarithm."""
        self._random = random
        self._ratio = ratio
        self._drawn: list[float] = []
        self.next_factor = 1.0
        self.take_factor()

    def take_factor(self, sigma: float | None = None) -> float:
        """Return the factor of a run that begins, and draw the next one.

        With ``sigma`` it is the same quantile of the distribution with that deviation.
        """
        factor = self.next_factor
        if sigma is not None and self._ratio > 0:
            z_score = z_score_of(factor, self._ratio)
            factor = exp(sigma * z_score - sigma**2 / 2)
        if self._ratio > 0:
            if not self._drawn:
                logarithms = self._random.normal(-(self._ratio**2) / 2, self._ratio, _BLOCK)
                self._drawn = np.exp(logarithms).tolist()
            self.next_factor = self._drawn.pop()
        return factor


def z_score_of(factor: float, ratio: float) -> float:
    """Return the z score of a factor drawn with this standard deviation of its logarithm."""
    return log(factor) / ratio + ratio / 2
