"""The paper's evaluation: which runs, and what is made of their figures."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.paper.evaluation import ABLATION, AS_IS, Estimate, EvaluationSize, Findings, orders
from tests.simulation.test_runs import JOB, outcomes_of
from workbench.simulation.scenario import Scenario
from workbench.simulation.workloads.paper import PAPER_SETTINGS, SETTINGS

POLICIES = ("esg", "exact", "minimum")


def findings(**by_policy):
    """Hit rates by seed, all under one setting."""
    return Findings(
        {
            (AS_IS, policy, "strict-light", seed): {"hit_rate": rate}
            for policy, rates in by_policy.items()
            for seed, rate in enumerate(rates)
        }
    )


def test_every_policy_runs_under_every_setting():
    wanted = orders(POLICIES, EvaluationSize(minutes=0.01, seeds=2))
    plain = Counter((o.job.policy, o.job.setting) for o in wanted if o.variant == AS_IS)
    assert plain == {(policy, setting): 2 for policy in POLICIES for setting in SETTINGS}
    assert len({order.key for order in wanted}) == len(wanted)


def test_the_ablation_runs_where_the_paper_reports():
    wanted = orders(POLICIES, EvaluationSize(minutes=0.01, seeds=2))
    for variant in ABLATION:
        conditions = {
            (o.job.setting, o.job.seed)
            for o in wanted
            if (o.variant, o.job.policy) == (variant.name, variant.policy)
        }
        assert conditions >= {(setting, seed) for setting in PAPER_SETTINGS for seed in (0, 1)}


def test_a_broken_evaluation_has_whole_seeds():
    seeds = [order.job.seed for order in orders(POLICIES, EvaluationSize(minutes=0.01, seeds=3))]
    assert seeds == sorted(seeds)


def test_no_variant_is_another_one_or_none():
    """Each is of another policy, or changes the scenario as no other does."""
    variants = [(variant.policy, variant.of(Scenario())) for variant in ABLATION]
    assert variants[0] == ("esg", Scenario(resizable=True))
    for i, one in enumerate(variants):
        assert one not in variants[:i]


def test_settings_scale_the_slo_and_choose_the_load():
    """Ten minutes at 13.4 ms on average."""
    (order,) = (
        order
        for order in orders(["esg"], EvaluationSize(minutes=10, seeds=1))
        if order.key == (AS_IS, "esg", "relaxed-heavy", 0)
    )
    assert order.job.scenario == Scenario(slo_factor=1.2)
    assert order.job.workload.load == "heavy"
    assert order.job.requests == 44_776


@pytest.mark.parametrize(
    ("values", "mean", "half_width"),
    [
        ([4.0, 6.0], 5.0, 12.706),  # standard errors of 1, so half a width is the quantile itself
        ([1.0, 4.0, 4.0], 3.0, 4.303),
        ([0.0, 5.0, 5.0, 5.0, 5.0], 4.0, 2.776),
    ],
)
def test_the_interval_is_of_published_quantiles(values, mean, half_width):
    """Student's t, two-sided at 95 %, with one degree of freedom less than values."""
    estimate = Estimate.of(values)
    assert estimate == Estimate(mean, pytest.approx(half_width, abs=5e-4), len(values))


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=11), st.integers(-1000, 1000))
def test_the_interval_moves_and_grows_with_its_values(values, shift):
    """Three times the values, and a constant: three times the width around the moved mean."""
    before, after = Estimate.of(values), Estimate.of([shift + 3.0 * value for value in values])
    assert after.mean == pytest.approx(shift + 3.0 * before.mean, abs=1e-9)
    assert after.half_width == pytest.approx(3.0 * before.half_width, abs=1e-9)


def test_one_seed_has_no_interval():
    assert Estimate.of([3.0]) == Estimate(3.0, None, 1)


def test_policies_are_compared_seed_by_seed():
    """Effects that a seed has on all runs cancel in the comparison."""
    runs = findings(esg=[0.9, 0.6], minimum=[0.45, 0.3])
    excess = runs.against("hit_rate", "minimum", "strict-light", inverse=True, to="esg")
    assert excess.mean == pytest.approx(1.0)
    assert excess.half_width == pytest.approx(0.0, abs=1e-12)
    less = runs.difference("hit_rate", "minimum", "strict-light", to="esg")
    assert less.mean == pytest.approx(-0.375)


def test_policies_are_compared_on_the_same_requests_after_one_warm_up():
    """The longest warm-up counts for all; one seed gives an interval of differences."""
    first, second = outcomes_of([replace(JOB, policy=name) for name in ("minimum", "random")])
    outcomes = {
        (AS_IS, outcome.job.policy, "test", 3): replace(
            outcome, result=outcome.result.since(warmup_ms)
        )
        for outcome, warmup_ms in ((first, 1_000.0), (second, 3_000.0))
    }
    runs = Findings.of(outcomes)
    assert runs.values("warmup_s", "minimum", "test") == [3.0]
    assert runs.values("warmup_s", "random", "test") == [3.0]
    paid = runs.against("cost_per_1000", "random", "test", to="minimum")
    costs = [runs.estimate("cost_per_1000", name, "test").mean for name in ("random", "minimum")]
    assert paid.mean == pytest.approx(costs[0] / costs[1] - 1)
    assert paid.half_width > 0
    assert runs.difference("hit_rate", "random", "test", to="minimum").half_width is not None
    assert runs.difference("ran_per_1000", "random", "test", to="minimum").half_width is None


def test_nothing_is_no_base_of_a_ratio():
    runs = findings(esg=[0.9, 0.6], minimum=[0.0, 0.3])
    assert runs.against("hit_rate", "minimum", "strict-light", inverse=True, to="esg") is None
    assert runs.against("hit_rate", "minimum", "strict-light", to="esg") is not None


def test_what_did_not_run_has_no_figure():
    runs = findings(esg=[0.9])
    assert runs.estimate("hit_rate", "orion", "strict-light") is None
    assert runs.against("hit_rate", "orion", "strict-light") is None
    assert runs.difference("hit_rate", "orion", "strict-light", AS_IS) is None


def test_totals_are_of_policies_as_they_are():
    runs = Findings(
        {
            (AS_IS, "esg", "strict-light", 0): {"requests": 10},
            (AS_IS, "esg", "strict-heavy", 1): {"requests": 20},
            ("no batching", "esg", "strict-light", 0): {"requests": 40},
        }
    )
    assert runs.total("requests", "esg") == 30


def test_pools_are_of_the_shipped_policy_alone():
    """The containers of other policies hold their shares."""
    size = EvaluationSize(minutes=0.1, seeds=1, pooled=True)
    jobs = [order.job for order in orders(["warm", "esg"], size)]
    assert {job.policy for job in jobs if job.scenario.pool} == {"warm"}
    assert "esg" in {job.policy for job in jobs}
    assert "pooled pods" in size.pooled_text
