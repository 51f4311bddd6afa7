"""Attainment of an SLO: the fastest configurations, the margin, and what the text says of them."""

import pytest

from scheduler.model.catalogue import Catalogue
from scheduler.search.attainment import attainment
from scheduler.search.planner import Planner
from workbench.profiles.builders import chain, profile, workflow


def attained(slo_ms, margin_ratio):
    """Attain an SLO with two stages that take 100 ms each at their fastest."""
    profiles = [profile(f"f{i}", [(1, 1, 10, 300.0), (1, 1, 20, 100.0)]) for i in range(2)]
    catalogue = Catalogue.of([workflow(chain(2), slo_ms=slo_ms), *profiles])
    return attainment(Planner(catalogue).workflow("default", "w"), None, margin_ratio)


@pytest.mark.parametrize(
    ("slo_ms", "meets", "text"),
    [
        (199.0, (False, False), "no configuration meets 199 ms; the fastest takes 200 ms"),
        (
            210.0,
            (True, False),
            (
                "210 ms are too few for an objective of 0.99: the fastest takes 200 ms, and its "
                "margin is 10 %"
            ),
        ),
        (
            220.0,
            (True, True),
            "the fastest configurations take 200 ms, with the margin of 10 % 220 ms of 220 ms",
        ),
    ],
)
def test_an_slo_is_attained_with_and_without_its_margin(slo_ms, meets, text):
    """The text has the numbers that decide."""
    state = attained(slo_ms, 0.1)
    assert ((state.meets_latency, state.meets_objective), str(state)) == (meets, text)


def test_the_margin_is_a_part_of_the_slo():
    """A margin of a quarter of the planned time is a fifth of the SLO."""
    assert attained(500.0, 0.25).margin_share == pytest.approx(0.2)


def test_without_a_margin_that_is_given_the_objective_has_its_own():
    """It is that of the longest path of the workflow."""
    state = attained(1_000.0, None)
    assert 0.0 < state.margin_ratio < 1.0
    assert state.fastest_ms == 200.0
