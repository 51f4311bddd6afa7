"""Hit rate of a workflow's recent requests, against its objective."""

from random import Random

import pytest

from scheduler.dispatch.hit_rate import (
    FADING_MS,
    RESERVE_MAX_RATIO,
    WINDOW,
    FurtherReserve,
    HitRate,
)


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


class Served:
    """A workflow of ten requests a second that the scaler looks at once a second."""

    def __init__(self, objective=0.99):
        self.objective, self.reserve, self.now_ms = objective, FurtherReserve(), 0.0
        self.has_pods = True

    def serve(self, seconds, is_hit):
        """Serve requests for some seconds; ``is_hit`` is called for each."""
        for _ in range(seconds):
            for _ in range(10):
                self.reserve.record(self.objective, is_hit=is_hit())
            self.now_ms += 1_000.0
            self.reserve.look(self.now_ms, has_pods=self.has_pods)


def drawn(miss_ratio, seed):
    """Return a function that draws hits and misses at random."""
    random = Random(seed)
    return lambda: random.random() >= miss_ratio


@pytest.mark.parametrize("objective", [0.9, 0.99])
def test_a_further_reserve_grows_while_the_objective_is_missed(objective):
    """Up to a limit: what misses for another reason would not end with any reserve."""
    ratios = []
    for seed in range(10):
        served = Served(objective)
        served.serve(300, drawn(3 * (1 - objective), seed))
        ratios.append(served.reserve.ratio)
        served.serve(10_000, drawn(3 * (1 - objective), seed))
        assert served.reserve.ratio == RESERVE_MAX_RATIO
    assert min(ratios) > 0.0


def test_chance_alone_brings_no_further_reserve():
    """At half of the allowed misses it is away nearly always, in a quarter of an hour each."""
    served = [Served() for _ in range(40)]
    for seed, one_served in enumerate(served):
        one_served.serve(900, drawn(0.005, seed))
    assert sum(one_served.reserve.ratio > 0.0 for one_served in served) <= 2


def test_a_further_reserve_that_is_not_needed_goes():
    """It fell short once, and no request has missed since."""
    served = Served()
    served.serve(120, drawn(0.05, 1))
    assert served.reserve.ratio > 0.0
    served.serve(1_200, lambda: True)
    assert served.reserve.ratio == 0.0


def test_misses_count_once_the_last_change_has_its_effect():
    """Those of the beginning, and of a reserve that has just grown, do not: its pods start."""
    served = Served()
    served.serve(30, lambda: False)
    assert served.reserve.ratio == 0.0
    served.serve(1, lambda: False)
    grown = served.reserve.ratio
    assert grown > 0.0
    served.serve(29, lambda: False)
    assert served.reserve.ratio == grown
    served.serve(1, lambda: False)
    assert served.reserve.ratio > grown


def test_misses_while_pods_are_missing_bring_no_further_reserve():
    """A full cluster, or a burst: those that are needed say nothing until they are there."""
    served = Served()
    served.has_pods = False
    served.serve(600, lambda: False)
    served.has_pods = True
    served.serve(30, lambda: True)
    assert served.reserve.ratio == 0.0


def test_a_further_reserve_fades_where_few_requests_come():
    """Too few for a decision in a day: it is gone after some hours in time."""
    served = Served()
    served.serve(60, lambda: False)
    assert served.reserve.ratio > 0.0
    for _ in range(24):
        served.serve(1, lambda: True)
        served.now_ms += FADING_MS
    assert served.reserve.ratio == 0.0
