"""Variants that follow the public code of INFless, FaST-GShare and Orion where it differs."""

import numpy as np
import pytest

from tests.simulation.policies.factories import catalogue, context, desired_containers
from workbench.simulation.policies.autoscaling import parts_of
from workbench.simulation.policies.end_to_end import EndToEnd
from workbench.simulation.policies.fast_gshare import FastGshare, FastGshareCode
from workbench.simulation.policies.infless import Infless, InflessCode
from workbench.simulation.policies.orion import sized

# Of a part of 1,000 ms; by the plain prices they take 2, 3 and 7 dollars an hour.
ONE = (1, 1, 10, 500.0)  # 2 requests/s
FOUR = (4, 1, 20, 400.0)  # 10 requests/s; 6.67 fill it
LARGE = (8, 1, 60, 100.0)  # 80 requests/s, and more than half of a GPU
A, B, C = ONE[:3], FOUR[:3], LARGE[:3]


def test_inflesss_code_has_no_container_over_half_of_a_gpu():
    documents = catalogue([[ONE, FOUR, LARGE]])
    assert C in desired_containers(Infless(context(documents)), 90.0)
    assert C not in desired_containers(InflessCode(context(documents)), 90.0)


@pytest.mark.parametrize(
    ("policy", "limit_rps"),
    # Two of four and three of one serve 13.3 to 26 requests/s.
    [(Infless, 0.8 * 13.33 + 0.2 * 26), (InflessCode, 0.2 * 13.33 + 0.8 * 26)],
)
def test_the_lower_limit_of_inflesss_band(policy, limit_rps):
    """The code ends containers from a much higher rate on: 0.8 (max - min) + min."""
    running = {B: 2, A: 3}

    def scaled(rate_rps):
        tested = policy(context(catalogue([[ONE, FOUR]]), rate_rps=rate_rps))
        desired_containers(tested, rate_rps, now_ms=0.0)
        return desired_containers(tested, rate_rps, running)

    assert scaled(limit_rps + 0.1) == running
    assert scaled(limit_rps - 0.1) != running


def test_fast_gshares_code_runs_one_at_a_time_and_takes_its_tolerance_of_the_capacity():
    """Ten containers serve 20 requests/s; 24.5 are 18 % of the rate above it, and 22 % of it."""
    documents = catalogue([[ONE, FOUR]])
    assert desired_containers(FastGshareCode(context(documents)), 20.0) == {A: 10}
    assert desired_containers(FastGshare(context(documents)), 24.5, {A: 10}) == {A: 10}
    assert desired_containers(FastGshareCode(context(documents)), 24.5, {A: 10}) == {A: 13}


def test_orions_code_steps_by_the_percentile_alone():
    """The paper takes the cheap step, the code the one that is fastest."""
    rows = [(1, 1, 10, 800.0), (1, 2, 10, 500.0), (1, 1, 90, 400.0)]
    ctx = context(catalogue([rows], slo_ms=600.0))
    whole = EndToEnd(ctx, ctx.catalogue.workflow("default", "w"))
    noise = np.ones((4, 1))
    assert whole.candidates(sized(whole, noise))[0].stage_ms == 500.0
    assert whole.candidates(sized(whole, noise, by_cost=False))[0].stage_ms == 400.0


def test_a_slo_is_split_by_minimum_latencies_where_a_part_is_out_of_reach():
    """By mean times the second stage gets less than its function can do."""
    slow = [(1, 1, 10, 1_000.0), (1, 1, 20, 100.0)]
    steady = [(1, 1, 10, 260.0), (1, 1, 20, 250.0)]
    ctx = context(catalogue([slow, steady], slo_ms=400.0))
    parts_ms = parts_of(ctx, ("default", "w"))
    assert parts_ms["default", "w", "s0"] == pytest.approx(400.0 * 100 / 350)
    assert parts_ms["default", "w", "s1"] == pytest.approx(400.0 * 250 / 350)


def test_without_a_configuration_in_time_the_cheapest_of_the_nearly_fastest_runs():
    """The last millisecond would cost five times as much."""
    rows = [(1, 1, 10, 1_004.0), (1, 1, 50, 1_001.0), (1, 2, 10, 3_000.0)]
    assert desired_containers(Infless(context(catalogue([rows]))), 0.5) == {(1, 1, 10): 1}
