"""Errors of predicted latencies of pairs that a prediction was not fitted on."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from studies.interference.model import SlowdownModel, Solos
from studies.interference.pairs import MeasuredPair

Prediction = Callable[[MeasuredPair], float]
Fit = Callable[[Sequence[MeasuredPair], Solos], Prediction]
Split = tuple[list[MeasuredPair], list[MeasuredPair]]  # what is fitted, and what is held back


class PredictionError(NamedTuple):
    """Relative errors of predicted latencies, as absolute values."""

    median_ratio: float
    p95_ratio: float


def without_pair(pairs: Sequence[MeasuredPair]) -> Iterator[Split]:
    """Hold back each two models side by side, whichever of them is the victim."""
    yield from _splits(pairs, lambda pair: frozenset((pair.victim.model, pair.neighbour.model)))


def without_model(pairs: Sequence[MeasuredPair]) -> Iterator[Split]:
    """Hold back each victim, and leave it out as a neighbour, too."""
    for model in dict.fromkeys(pair.victim.model for pair in pairs):
        fitted = [p for p in pairs if model not in {p.victim.model, p.neighbour.model}]
        yield fitted, [p for p in pairs if p.victim.model == model]


def _splits(
    pairs: Sequence[MeasuredPair], key_of: Callable[[MeasuredPair], frozenset[str]]
) -> Iterator[Split]:
    for key in dict.fromkeys(map(key_of, pairs)):
        yield [p for p in pairs if key_of(p) != key], [p for p in pairs if key_of(p) == key]


def no_interference(pairs: Sequence[MeasuredPair], solos: Solos) -> Prediction:  # noqa: ARG001 - its contract
    """Predict the latency alone."""
    return lambda _: 1.0


def mean_slowdown(pairs: Sequence[MeasuredPair], solos: Solos) -> Prediction:  # noqa: ARG001 - its contract
    """Predict the mean of all pairs."""
    mean = fmean(pair.slowdown for pair in pairs)
    return lambda _: mean


def fitted_model(pairs: Sequence[MeasuredPair], solos: Solos) -> Prediction:
    """Predict by what both models do alone."""
    model = SlowdownModel.fit(pairs, solos)
    return lambda pair: model.slowdown(pair.victim, pair.neighbour)


def own_mean(pairs: Sequence[MeasuredPair], solos: Solos) -> Prediction:  # noqa: ARG001 - its contract
    """Predict what the victim had with its batch and share beside all models, in the mean."""
    slowdowns = defaultdict(list)
    for pair in pairs:
        slowdowns[pair.victim].append(pair.slowdown)
    return lambda pair: fmean(slowdowns[pair.victim])


PREDICTIONS: Mapping[str, Fit] = {
    "no interference": no_interference,
    "the mean of all pairs": mean_slowdown,
    "by what both models do alone": fitted_model,
    "the victim's own mean, whatever is beside it": own_mean,
}


def error_of(fit: Fit, splits: Iterator[Split], solos: Solos) -> PredictionError:
    """Predict each pair that is held back."""
    errors = []
    for fitted, held_back in splits:
        predict = fit(fitted, solos)
        errors += [abs(predict(pair) / pair.slowdown - 1.0) for pair in held_back]
    return PredictionError(float(np.median(errors)), float(np.quantile(errors, 0.95)))
