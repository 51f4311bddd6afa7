"""The headroom at which a policy reaches a target, searched step by step."""

import pytest

from studies.headrooms import HEADROOM_RATIOS
from studies.paper.equal_hits import at_target, next_orders, variant_of
from studies.paper.evaluation import EvaluationSize, Findings

SIZE = EvaluationSize(minutes=0.01, seeds=2, settings=("strict-light",))


def searched(hits_of, *, target_ratio=0.95):
    """Search a policy whose hit rate is that of its headroom; it pays a dollar and the headroom."""
    by_key = {}
    tried = []
    for _ in range(2 * len(HEADROOM_RATIOS)):
        orders = next_orders(Findings(by_key), ["infless"], SIZE, target_ratio)
        if not orders:
            break
        assert {order.job.seed for order in orders} == {0, 1}
        ratio = orders[0].job.scenario.headroom_ratio
        tried.append(ratio)
        for order in orders:
            by_key[order.key] = {
                "hit_rate": hits_of(ratio),
                "cost_per_1000": 1.0 + ratio,
                "paid_over_bound": 2.0 + 2 * ratio,
            }
    return tried, at_target(Findings(by_key), "infless", "strict-light", target_ratio)


def test_headroom_grows_until_the_target_is_reached():
    tried, best = searched(lambda ratio: 0.9 + ratio / 4)
    assert tried == [0.0, 0.1, 0.2]
    assert (best.headroom_ratio, best.reached) == (0.2, True)
    assert best.dollars.mean == pytest.approx(1.2)
    assert best.bound_ratio.mean == pytest.approx(2.4)


def test_headroom_falls_while_the_target_is_reached():
    """A policy above the target pays for less, down to the last step that reaches it."""
    tried, best = searched(lambda ratio: 0.99 + ratio / 10)
    assert tried == [0.0, -0.3, -0.6]
    assert best.headroom_ratio == -0.3


def test_a_target_that_nothing_reaches_is_said():
    tried, best = searched(lambda ratio: 0.5 + ratio / 100)
    assert tried == [ratio for ratio in HEADROOM_RATIOS if ratio >= 0.0]
    assert (best.reached, best.headroom_ratio) == (False, HEADROOM_RATIOS[-1])


def test_without_a_run_there_is_no_cost():
    assert at_target(Findings({}), "infless", "strict-light", 0.95) is None


def test_no_headroom_is_the_policy_as_it_is():
    """Its runs are those of the other tables."""
    names = [variant_of("infless", ratio, 0.95).name for ratio in (0.0, 0.2, -0.3)]
    assert names[0] == "as it is"
    assert len(set(names)) == 3
    assert 0.0 in HEADROOM_RATIOS
    assert list(HEADROOM_RATIOS) == sorted(HEADROOM_RATIOS)


def test_the_shipped_policy_runs_once_with_the_target_as_objective():
    """Its reserve follows from the objective, and no headroom is searched."""
    orders = next_orders(Findings({}), ["warm"], SIZE, 0.95)
    assert {order.job.scenario.objective for order in orders} == {0.95}
    assert {order.job.scenario.headroom_ratio for order in orders} == {0.0}
    figures = {"hit_rate": 0.9, "cost_per_1000": 1.0, "paid_over_bound": None}
    findings = Findings({order.key: figures for order in orders})
    assert next_orders(findings, ["warm"], SIZE, 0.95) == []
    outcome = at_target(findings, "warm", "strict-light", 0.95)
    assert not outcome.reached
    assert outcome.bound_ratio is None
