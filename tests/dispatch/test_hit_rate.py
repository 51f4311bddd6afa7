"""Hit rate of a workflow's recent requests, against its objective."""

import pytest

from scheduler.dispatch.hit_rate import WINDOW, HitRate


def rate_after(ends, objective=0.99):
    """Return a rate after requests in time (true) and missed ones."""
    rate = HitRate(objective)
    for is_hit in ends:
        rate.record(is_hit=is_hit)
    return rate


@pytest.mark.parametrize(("objective", "misses"), [(0.99, 5), (0.95, 21)])
def test_a_few_misses_in_a_row_fall_below_the_objective(objective, misses):
    """A burst is seen at once, whatever was in time before."""
    rate = rate_after([True] * 5_000, objective)
    assert rate.shortfall_ratio(objective) < 0
    for _ in range(misses):
        rate.record(is_hit=False)
    assert rate.shortfall_ratio(objective) > 0


def test_old_misses_are_forgotten():
    """After some windows in time the objective is kept again."""
    rate = rate_after([False] * 1_000 + [True] * int(6 * WINDOW))
    assert rate.shortfall_ratio(0.99) < 0


def test_the_aim_is_above_the_objective_by_a_standard_error():
    """A rate at the objective itself falls short, a little more the fewer misses are allowed."""
    at_objective = {
        objective: rate_after(
            [i % round(1 / (1 - objective)) != 0 for i in range(20_000)], objective
        ).shortfall_ratio(objective)
        for objective in (0.9, 0.99)
    }
    assert at_objective[0.9] == pytest.approx((0.9 / 0.1 / (2 * WINDOW)) ** 0.5, abs=0.05)
    assert at_objective[0.99] == pytest.approx((0.99 / 0.01 / (2 * WINDOW)) ** 0.5, abs=0.15)


def test_a_new_workflow_is_at_its_aim():
    """The first miss counts."""
    assert HitRate(0.95).shortfall_ratio(0.95) == 0.0
    assert rate_after([False], 0.95).shortfall_ratio(0.95) > 0.0
