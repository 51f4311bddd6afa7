"""Slowdown of a model beside another one, from what each of them does alone.

The logarithm of the slowdown is linear in the bandwidths of memory and L2 cache that both models
use alone under their shares, as in gpulet's own model (Choi et al., USENIX ATC 2022), and in the
logarithm of the victim's batch and its share. Ordinary least squares.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from studies.interference.pairs import WHOLE_PERCENT, MeasuredPair, ModelPoint, Solo

Floats = NDArray[np.float64]
Solos = Mapping[ModelPoint, Solo]


class SlowdownModel(NamedTuple):
    """A fitted model.

    Attributes:
        weights: weight of each feature, the constant first.
        solos: models alone.
    """

    weights: Floats
    solos: Solos

    @classmethod
    def fit(cls, pairs: Sequence[MeasuredPair], solos: Solos) -> Self:
        """Fit the weights to measured pairs."""
        features = np.array([_features(pair.victim, pair.neighbour, solos) for pair in pairs])
        logarithms = np.log([pair.slowdown for pair in pairs])
        weights, *_ = np.linalg.lstsq(features, logarithms, rcond=None)
        return cls(weights, solos)

    def slowdown(self, victim: ModelPoint, neighbour: ModelPoint) -> float:
        """Return the slowdown of a model beside another one; 1: none."""
        return float(np.exp(self.weights @ _features(victim, neighbour, self.solos)))

    def table(self, models: Sequence[str]) -> dict[str, dict[str, float]]:
        """Return the `interference` of a scenario: the slowdown by each neighbour, as a ratio.

        It is that beside the whole GPU, in proportion to the neighbour's share: the one that is
        nearest to the model's slowdowns over all batches and divisions of the GPU.
        """
        return {
            victim: {neighbour: round(self._ratio(victim, neighbour), 3) for neighbour in models}
            for victim in models
        }

    def _ratio(self, victim: str, neighbour: str) -> float:
        ratios, shares = [], []
        for point in self.solos:
            rest = WHOLE_PERCENT - point.percent
            for beside in self.solos:
                if (point.model, beside.model, beside.percent) == (victim, neighbour, rest):
                    ratios.append(self.slowdown(point, beside) - 1.0)
                    shares.append(rest / WHOLE_PERCENT)
        return max(float(np.dot(ratios, shares) / np.dot(shares, shares)), 0.0)


def _features(victim: ModelPoint, neighbour: ModelPoint, solos: Solos) -> Floats:
    of_victim, of_other = solos[victim], solos[neighbour]
    return np.array(
        [
            1.0,
            of_victim.memory_percent / WHOLE_PERCENT,
            of_victim.cache_percent / WHOLE_PERCENT,
            of_other.memory_percent / WHOLE_PERCENT,
            of_other.cache_percent / WHOLE_PERCENT,
            np.log2(victim.batch),
            victim.percent / WHOLE_PERCENT,
        ]
    )
