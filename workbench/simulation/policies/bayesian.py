"""Constrained Bayesian optimisation over configurations; `aquatope` says how, and whence."""

from collections.abc import Callable, Sequence
from math import erf, inf, log, pi, sqrt
from typing import NamedTuple

import numpy as np

from scheduler.model.plan import Candidate
from scheduler.search.arrays import Floats, Integers
from workbench.simulation.policies.choices import size
from workbench.simulation.policies.end_to_end import Choice
from workbench.simulation.policies.surrogates import Belief, Surrogate

INITIAL = 10
ROUNDS = 20
BATCH = 3
CONFIDENCE = 0.95  # that the choice fixed in the end keeps the SLO
LIKELY = 0.5  # the same of the choice that others must improve on
DRAWN = 512
COST_MIN = 1e-300  # dollars: where prices are 0, so that there is a logarithm

Options = tuple[tuple[Candidate, ...], ...]
Sample = Callable[[Choice], tuple[float, float]]  # end-to-end ms, dollars


def optimised(
    options: Options, sample: Sample, slo_ms: float, random: np.random.Generator
) -> Choice:
    """The cheapest choice sampled that keeps the SLO, as far as samples can tell."""
    space = _Space(options, random)
    if space.features == 0:  # there is but one choice
        return space.drawn(1)[0]
    search = _Search(space, sample, slo_ms)
    search.take(space.drawn(INITIAL))
    for _ in range(ROUNDS):
        search.take(search.most_promising(BATCH))
    return search.fixed()


class _Space:
    """All choices, and where they lie among the features."""

    def __init__(self, options: Options, random: np.random.Generator) -> None:
        self._random = random
        self._counts = np.array([len(listed) for listed in options])
        self._of_stage = [_features(listed) for listed in options]
        self.features = sum(each.shape[1] for each in self._of_stage)

    def drawn(self, count: int) -> list[Choice]:
        """At most so many choices, at random, each once."""
        return _distinct(self._at_random(count))

    def near(self, choice: Choice, count: int) -> list[Choice]:
        """At most so many choices that differ from that one in one stage, at random, each once."""
        choices = np.tile(np.array(choice), (count, 1))
        at = np.arange(count), self._random.integers(0, len(choice), count)
        choices[at] = self._at_random(count)[at]
        return _distinct(choices)

    def at(self, choices: Sequence[Choice]) -> Floats:
        """(n, features) of the choices."""
        table = np.array(choices)
        return np.hstack([each[table[:, v]] for v, each in enumerate(self._of_stage)])

    def _at_random(self, count: int) -> Integers:
        shape = count, len(self._counts)
        return np.asarray(self._random.integers(0, self._counts, shape), np.int64)


class _Sampled(NamedTuple):
    """A choice, and what came of it, or is taken to."""

    choice: Choice
    log_ms: float
    log_cost: float


class _Search:
    """The choices sampled, and what they make believe of the others."""

    def __init__(self, space: _Space, sample: Sample, slo_ms: float) -> None:
        self._space = space
        self._sample = sample
        self._log_slo = log(slo_ms)
        self._sampled: list[_Sampled] = []
        self._time, self._cost = Surrogate(), Surrogate()

    def take(self, choices: Sequence[Choice]) -> None:
        """Sample these choices."""
        for choice in choices:
            time_ms, cost = self._sample(choice)
            self._sampled.append(_Sampled(choice, log(time_ms), log(max(cost, COST_MIN))))

    def most_promising(self, count: int) -> list[Choice]:
        """The choices to sample next; none again, so that there may be fewer."""
        self._fit(self._sampled, learn=True)
        best, floor = self._best(LIKELY)
        pool = dict.fromkeys(self._space.drawn(DRAWN) + self._space.near(best, DRAWN))
        for sampled in self._sampled:
            pool.pop(sampled.choice, None)
        left, taken = list(pool), list(self._sampled)
        while left and len(taken) < len(self._sampled) + count:
            time, cost = self._believed(left)
            promise = self._kept(time)
            if floor < inf:
                promise *= improvement(cost, floor)
            i = int(np.argmax(promise))
            taken.append(_Sampled(left.pop(i), float(time.mean[i]), float(cost.mean[i])))
            self._fit(taken, learn=False)
        return [sampled.choice for sampled in taken[len(self._sampled) :]]

    def fixed(self) -> Choice:
        """What is best in the end."""
        self._fit(self._sampled, learn=True)
        return self._best(CONFIDENCE)[0]

    def _best(self, confidence: float) -> tuple[Choice, float]:
        """Of the sampled the cheapest that keeps the SLO so surely, and its logarithm of cost.

        Or the one that keeps it most surely, and inf.
        """
        choices = [sampled.choice for sampled in self._sampled]
        time, cost = self._believed(choices)
        kept = self._kept(time)
        if (kept < confidence).all():
            return choices[int(np.argmax(kept))], inf
        i = int(np.argmin(np.where(kept < confidence, inf, cost.mean)))
        return choices[i], float(cost.mean[i])

    def _fit(self, sampled: list[_Sampled], *, learn: bool) -> None:
        features = self._space.at([one.choice for one in sampled])
        self._time.fit(features, np.array([one.log_ms for one in sampled]), learn=learn)
        self._cost.fit(features, np.array([one.log_cost for one in sampled]), learn=learn)

    def _believed(self, choices: Sequence[Choice]) -> tuple[Belief, Belief]:
        features = self._space.at(choices)
        return self._time.believed(features), self._cost.believed(features)

    def _kept(self, time: Belief) -> Floats:
        """(n,) the probability that a request keeps the SLO."""
        return _below((self._log_slo - time.mean) / time.deviation)


def improvement(cost: Belief, floor: float) -> Floats:
    """(n,) by how much a cost is expected to be below the floor, where it is below it at all."""
    z = (floor - cost.mean) / cost.deviation
    density = np.exp(-0.5 * z**2) / sqrt(2.0 * pi)
    return np.asarray(cost.deviation * (z * _below(z) + density), np.float64)


def _below(z: Floats) -> Floats:
    """(n,) the probability that a standard normal variable is below z."""
    return np.array([0.5 * (1.0 + erf(each / sqrt(2.0))) for each in z.tolist()])


def _features(listed: Sequence[Candidate]) -> Floats:
    """(n, d) logarithms of batch, vCPUs and share, from 0 to 1; what is the same in all is out."""
    logs = np.log(np.array([size(candidate) for candidate in listed], np.float64))
    least, width = logs.min(axis=0), np.ptp(logs, axis=0)
    varied = width > 0
    return np.asarray((logs[:, varied] - least[varied]) / width[varied], np.float64)


def _distinct(choices: Integers) -> list[Choice]:
    return list(dict.fromkeys(map(tuple, choices.tolist())))
