"""These policies in whole runs: everything ends, and most of it in time."""

from itertools import product

import pytest

from tests.simulation.policies.asking import catalogue
from tests.simulation.worlds import Poisson, quiet, run

GRID = list(product((1, 2, 4), (1, 2), (10, 20, 50)))


def rows(t0_ms):
    return [
        (b, c, p, t0_ms * (0.3 * b / c**0.7 + 0.7 * b**0.6 / (p / 10) ** 0.5)) for b, c, p in GRID
    ]


DOCUMENTS = catalogue([rows(40.0), rows(90.0), rows(60.0)], after=[[], [0], [0]], slo_ms=400.0)


@pytest.mark.parametrize(
    ("name", "least"),
    [("infless", 0.8), ("fast-gshare", 0.4), ("orion", 0.9), ("aquatope", 0.9)],
)
def test_requests_end_and_most_in_time(name, least):
    """Two GPUs have room for three times the load; FaST-GShare leaves it a fifth short."""
    told = run(
        quiet(nodes=2, noise_ratio=0.05), DOCUMENTS, Poisson(100.0, seed=4), name, requests=300
    )
    result = told.result
    assert result.hits + result.misses == result.requests == 300
    assert result.hit_ratio > least


@pytest.mark.parametrize("name", ["infless", "fast-gshare", "grandslam"])
def test_the_margin_is_kept_by_whoever_splits_the_slo(name):
    """As if the SLO were so much shorter: what runs is the same, and when."""
    arrivals = Poisson(100.0, seed=4)
    shorter = quiet(nodes=2, noise_ratio=0.05)
    kept = quiet(nodes=2, noise_ratio=0.05, slo_factor=1.25, margin_ratio=0.25)
    spans = [run(each, DOCUMENTS, arrivals, name, requests=300).spans for each in (shorter, kept)]
    assert spans[0] == spans[1]
