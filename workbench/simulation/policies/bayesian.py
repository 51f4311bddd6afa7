"""Constrained Bayesian optimisation over configurations; `aquatope` has the rule and its source."""

from collections.abc import Callable, Sequence
from math import erf, inf, log, pi, sqrt
from typing import NamedTuple

import numpy as np

from scheduler.model.plan import Candidate
from scheduler.search.frontiers.arrays import Floats, Integers
from workbench.simulation.policies.choices import size
from workbench.simulation.policies.end_to_end import Choice
from workbench.simulation.policies.surrogates import Prediction, Surrogate

INITIAL = 10
ROUNDS = 20
BATCH = 3
CONFIDENCE = 0.95  # probability that the final choice meets the SLO
LIKELY = 0.5  # the same for the incumbent, on which others must improve
DRAWN = 512
COST_MIN_DOLLARS = 1e-300  # keeps the logarithm finite where prices are 0

Options = tuple[tuple[Candidate, ...], ...]
Sample = Callable[[Choice], tuple[float, float]]  # end-to-end ms, dollars


def optimised(
    options: Options, sample: Sample, slo_ms: float, random: np.random.Generator
) -> Choice:
    """Return the cheapest sampled choice that meets the SLO, as estimated from the samples."""
    space = _Space(options, random)
    if space.features == 0:  # there is only one choice
        return space.drawn(1)[0]
    search = _Search(space, sample, slo_ms)
    search.sample(space.drawn(INITIAL))
    for _ in range(ROUNDS):
        search.sample(search.most_promising(BATCH))
    return search.final_choice()


class _Space:
    """The set of choices and their features."""

    def __init__(self, options: Options, random: np.random.Generator) -> None:
        self._random = random
        self._counts = np.array([len(listed) for listed in options])
        self._of_stage = [_features(listed) for listed in options]
        self.features = sum(features.shape[1] for features in self._of_stage)

    def drawn(self, count: int) -> list[Choice]:
        """Return at most ``count`` random choices, without duplicates."""
        return _distinct(self._at_random(count))

    def near(self, choice: Choice, count: int) -> list[Choice]:
        """Return at most ``count`` random choices that differ from ``choice`` in one stage."""
        choices = np.tile(np.array(choice), (count, 1))
        at = np.arange(count), self._random.integers(0, len(choice), count)
        choices[at] = self._at_random(count)[at]
        return _distinct(choices)

    def at(self, choices: Sequence[Choice]) -> Floats:
        """Features of the choices, (n, features)."""
        table = np.array(choices)
        return np.hstack([features[table[:, v]] for v, features in enumerate(self._of_stage)])

    def _at_random(self, count: int) -> Integers:
        shape = count, len(self._counts)
        return np.asarray(self._random.integers(0, self._counts, shape), np.int64)


class _Sampled(NamedTuple):
    """A choice and its measured or assumed outcome."""

    choice: Choice
    log_ms: float
    log_cost_dollars: float


class _Search:
    """The sampled choices and the posterior over the others."""

    def __init__(self, space: _Space, sample: Sample, slo_ms: float) -> None:
        self._space = space
        self._sample = sample
        self._log_slo = log(slo_ms)
        self._sampled: list[_Sampled] = []
        self._time, self._cost = Surrogate(), Surrogate()

    def sample(self, choices: Sequence[Choice]) -> None:
        """Sample these choices."""
        for choice in choices:
            time_ms, cost = self._sample(choice)
            self._sampled.append(_Sampled(choice, log(time_ms), log(max(cost, COST_MIN_DOLLARS))))

    def most_promising(self, count: int) -> list[Choice]:
        """Return new choices to sample next; fewer than ``count`` when no more are new."""
        self._fit(self._sampled, learn=True)
        best, best_log_cost = self._best(LIKELY)
        pool = dict.fromkeys(self._space.drawn(DRAWN) + self._space.near(best, DRAWN))
        for sampled in self._sampled:
            pool.pop(sampled.choice, None)
        candidates, samples = list(pool), list(self._sampled)
        while candidates and len(samples) < len(self._sampled) + count:
            time, cost = self._posterior(candidates)
            promise = self._slo_probability(time)
            if best_log_cost < inf:
                promise *= improvement(cost, best_log_cost)
            i = int(np.argmax(promise))
            samples.append(_Sampled(candidates.pop(i), float(time.mean[i]), float(cost.mean[i])))
            self._fit(samples, learn=False)
        return [sampled.choice for sampled in samples[len(self._sampled) :]]

    def final_choice(self) -> Choice:
        """Return the best sampled choice."""
        self._fit(self._sampled, learn=True)
        return self._best(CONFIDENCE)[0]

    def _best(self, confidence: float) -> tuple[Choice, float]:
        """Return the cheapest sample that meets the SLO with this confidence, and its log cost.

        If there is none, return the most probable one, and inf.
        """
        choices = [sampled.choice for sampled in self._sampled]
        time, cost = self._posterior(choices)
        probability = self._slo_probability(time)
        if (probability < confidence).all():
            return choices[int(np.argmax(probability))], inf
        i = int(np.argmin(np.where(probability < confidence, inf, cost.mean)))
        return choices[i], float(cost.mean[i])

    def _fit(self, sampled: list[_Sampled], *, learn: bool) -> None:
        features = self._space.at([sample.choice for sample in sampled])
        self._time.fit(features, np.array([sample.log_ms for sample in sampled]), learn=learn)
        self._cost.fit(
            features, np.array([sample.log_cost_dollars for sample in sampled]), learn=learn
        )

    def _posterior(self, choices: Sequence[Choice]) -> tuple[Prediction, Prediction]:
        features = self._space.at(choices)
        return self._time.predict(features), self._cost.predict(features)

    def _slo_probability(self, time: Prediction) -> Floats:
        """Probability that a request meets the SLO, (n,)."""
        return _below((self._log_slo - time.mean) / time.deviation)


def improvement(cost: Prediction, floor_log_dollars: float) -> Floats:
    """Expected improvement on the floor, (n,): the mean of max(floor - cost, 0)."""
    z = (floor_log_dollars - cost.mean) / cost.deviation
    density = np.exp(-0.5 * z**2) / sqrt(2.0 * pi)
    return np.asarray(cost.deviation * (z * _below(z) + density), np.float64)


def _below(z: Floats) -> Floats:
    """Probability that a standard normal variable is below z, (n,)."""
    return np.array([0.5 * (1.0 + erf(value / sqrt(2.0))) for value in z.tolist()])


def _features(listed: Sequence[Candidate]) -> Floats:
    """Logarithms of batch, vCPUs and share scaled to [0, 1], without constant ones, (n, d)."""
    logs = np.log(np.array([size(candidate) for candidate in listed], np.float64))
    smallest, width = logs.min(axis=0), np.ptp(logs, axis=0)
    varied = width > 0
    return np.asarray((logs[:, varied] - smallest[varied]) / width[varied], np.float64)


def _distinct(choices: Integers) -> list[Choice]:
    return list(dict.fromkeys(map(tuple, choices.tolist())))
