"""Aquatope: Bayesian optimisation over noisy samples, held against brute force."""

import sys
from itertools import product
from math import exp, pi, sqrt

import numpy as np
import pytest

from scheduler.model.plan import Prices
from tests.simulation.policies.factories import catalogue, context, sizes
from workbench.simulation.policies.aquatope import Aquatope
from workbench.simulation.policies.bayesian import improvement, optimised
from workbench.simulation.policies.end_to_end import EndToEnd
from workbench.simulation.policies.surrogates import MissingLibraryError, Prediction, Surrogate

NOISE_RATIO = 0.05
GRID = list(product((1, 2), (1, 2), (10, 20, 40)))


def rows(t0_ms):
    """Twelve configurations: a part on the CPU, a part on the GPU."""
    return [
        (b, c, p, t0_ms * (0.3 * b / c**0.7 + 0.7 * b**0.6 / (p / 10) ** 0.5)) for b, c, p in GRID
    ]


DOCUMENTS = catalogue([rows(100.0), rows(300.0)], slo_ms=300.0)


def fixed(documents, seed, **changes):
    """The choice that Aquatope fixes, in topological order."""
    settings = {"rate_rps": 100.0, "noise_ratio": NOISE_RATIO} | changes
    tested = Aquatope(context(documents, seed=seed, **settings))
    return tuple(stage.candidate for stage in tested.fixed.values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_keeps_the_slo_and_costs_little_more_than_the_cheapest(seed):
    """70 of 144 choices are sampled; the cheapest has no room for noise."""
    whole = EndToEnd(context(DOCUMENTS, rate_rps=100.0), DOCUMENTS.workflow("default", "w"))
    plain = np.ones((1, 2))
    best_cost = min(
        whole.cost_dollars(choice)
        for choice in product(range(len(GRID)), repeat=2)
        if whole.times_ms(choice, plain)[0] <= whole.slo_ms
    )
    entry = fixed(DOCUMENTS, seed)[0]
    assert entry.path_ms <= whole.slo_ms
    assert entry.path_cost_dollars <= 1.25 * best_cost


@pytest.mark.slow
def test_the_same_seed_gives_the_same_answer():
    assert fixed(DOCUMENTS, 5) == fixed(DOCUMENTS, 5)


@pytest.mark.slow
def test_where_nothing_keeps_the_slo_what_keeps_it_most_probably():
    """Half of the time that the fastest takes: all that is left is to be fast."""
    documents = catalogue([rows(100.0)], slo_ms=25.0)
    (selected,) = fixed(documents, 1)
    fastest_ms = min(row[3] for row in rows(100.0))
    assert selected.stage_ms <= 1.1 * fastest_ms


@pytest.mark.slow
def test_one_choice_needs_no_samples():
    (selected,) = fixed(catalogue([[(2, 1, 10, 50.0)]]), 1)
    assert sizes([selected]) == [(2, 1, 10)]


def test_where_nothing_has_a_price_the_slo_is_kept_all_the_same():
    (selected,) = fixed(catalogue([rows(100.0)], slo_ms=90.0), 1, prices=Prices(0.0, 0.0))
    assert selected.stage_ms <= 90.0


def test_without_noise_and_with_few_choices_it_finds_the_best():
    """All of them are sampled."""
    listed = [(1, 1, 10, 100.0), (1, 2, 10, 60.0), (1, 1, 20, 70.0)]
    (selected,) = fixed(catalogue([listed], slo_ms=90.0), 1, noise_ratio=0.0)
    assert sizes([selected]) == [(1, 2, 10)]  # 60 x 3 dollars an hour, against 70 x 3


@pytest.mark.slow
def test_no_choice_is_sampled_twice():
    """And no more than 10 and 20 rounds of 3."""
    documents = catalogue([rows(100.0), rows(300.0)], slo_ms=300.0)
    whole = EndToEnd(context(documents), documents.workflow("default", "w"))
    sampled = []

    def sample(choice):
        sampled.append(choice)
        return float(whole.times_ms(choice, np.ones((1, 2)))[0]), whole.cost_dollars(choice)

    optimised(whole.options, sample, whole.slo_ms, np.random.default_rng(3))
    assert len(sampled) == len(set(sampled)) <= 70


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'esg-scheduler\[workbench\]'"):
        fixed(DOCUMENTS, 1)


def test_improvement_is_what_is_expected_below_the_floor():
    """At the floor itself: the mean of the lower half of a normal distribution."""
    belief = Prediction(np.array([5.0, 0.0, 9.0]), np.array([2.0, 1e-3, 1e-3]))
    at_floor = 2.0 / sqrt(2.0 * pi)
    assert improvement(belief, 5.0) == pytest.approx([at_floor, 5.0, 0.0], abs=1e-9)
    one_below = improvement(Prediction(np.array([6.0]), np.array([1.0])), 5.0)[0]
    assert one_below == pytest.approx(exp(-0.5) / sqrt(2.0 * pi) - 0.158655, abs=1e-6)


def test_a_surrogate_follows_its_samples_and_doubts_elsewhere():
    """A line with some noise, known at its ends alone."""
    process = Surrogate()
    features = np.concatenate([np.linspace(0.0, 0.2, 10), np.linspace(0.8, 1.0, 10)])[:, None]
    noise = np.random.default_rng(1).normal(0.0, 0.02, 20)
    process.fit(features, 3.0 + features[:, 0] + noise, learn=True)
    mean, deviation = process.predict(np.array([[0.1], [0.9], [0.5]]))
    assert mean == pytest.approx([3.1, 3.9, 3.5], abs=0.1)
    assert deviation[2] > deviation[0]
