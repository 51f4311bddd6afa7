"""Policies in whole runs: every request ends, and most end in time."""

from itertools import product

import pytest

from tests.simulation.harness import Poisson, quiet, run
from tests.simulation.policies.factories import catalogue

GRID = list(product((1, 2, 4), (1, 2), (10, 20, 50)))


def rows(t0_ms):
    return [
        (b, c, p, t0_ms * (0.3 * b / c**0.7 + 0.7 * b**0.6 / (p / 10) ** 0.5)) for b, c, p in GRID
    ]


DOCUMENTS = catalogue([rows(40.0), rows(90.0), rows(60.0)], after=[[], [0], [0]], slo_ms=400.0)


@pytest.mark.parametrize(
    ("name", "hit_ratio_min"),
    [
        ("infless", 0.8),
        ("fast-gshare", 0.4),
        ("orion", 0.9),
        pytest.param("aquatope", 0.9, marks=pytest.mark.slow),
    ],
)
def test_requests_end_and_most_in_time(name, hit_ratio_min):
    """Two GPUs have room for three times the load; FaST-GShare leaves it a fifth short."""
    outcome = run(
        quiet(nodes=2, noise_ratio=0.05), DOCUMENTS, Poisson(100.0, seed=4), name, requests=300
    )
    result = outcome.result
    assert result.hits + result.misses == result.requests == 300
    assert result.hit_ratio > hit_ratio_min


@pytest.mark.parametrize("name", ["infless", "fast-gshare", "grandslam"])
def test_the_margin_is_kept_by_whoever_splits_the_slo(name):
    """A margin equals a shorter SLO: the same runs at the same times."""
    arrivals = Poisson(100.0, seed=4)
    shorter = quiet(nodes=2, noise_ratio=0.05)
    with_margin = quiet(nodes=2, noise_ratio=0.05, slo_factor=1.25, margin_ratio=0.25)
    spans = [
        run(scenario, DOCUMENTS, arrivals, name, requests=300).spans
        for scenario in (shorter, with_margin)
    ]
    assert spans[0] == spans[1]
