"""Limits against brute force, and against schedules that a simulation makes."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler.model.catalogue import Catalogue
from scheduler.model.plan import Prices
from scheduler.search.cost_bound import request_bounds_dollars
from studies.limits.clairvoyant import least_groups_dollars, stage_rooms, trace_bound_dollars
from studies.limits.keep_alive import by_share, kept_ready_ms, least_ready_ms
from studies.limits.whole_processes import NodeRoom, fewest_nodes, least_processes_dollars
from tests.examples import examples
from tests.search.factories import dags
from tests.simulation.harness import Listed, quiet, run
from tests.studies.limits import naive
from workbench.profiles.builders import GPU, profile, workflow

KEY = ("default", "w0")
PRICES = Prices()
ROOM = NodeRoom(GPU, gpus=2, cpus=8, memory_mib=1_000)
points = st.lists(
    st.tuples(
        st.sampled_from((1, 2, 4)),
        st.sampled_from((1, 2)),
        st.sampled_from((10, 50, 100)),
        st.sampled_from((20.0, 50.0, 130.0)),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda row: row[:3],
)


@st.composite
def catalogues(draw, stages_max=3, workflows_max=2):
    """A workflow or two over up to three functions, some of them shared."""
    functions = [f"f{i}" for i in range(draw(st.integers(1, 3)))]
    profiles = [profile(name, draw(points)) for name in functions]
    workflows = []
    for number in range(draw(st.integers(1, workflows_max))):
        after = draw(dags(stages_max))
        used = [draw(st.sampled_from(functions)) for _ in after]
        slo_ms = draw(st.sampled_from((60.0, 200.0, 500.0)))
        workflows.append(workflow(after, name=f"w{number}", slo_ms=slo_ms, functions=used))
    return Catalogue.of([*workflows, *profiles])


rates = st.floats(0.5, 200.0)
reserves = st.sampled_from((0.0, 1.2, 2.33))


# -- whole processes and nodes


@examples(40)
@given(catalogue=catalogues(), rate_rps=rates, other_rps=rates, reserve_ratio=reserves)
def test_processes_are_those_of_brute_force(catalogue, rate_rps, other_rps, reserve_ratio):
    """HiGHS finds the least price of all choices; inf where none is in time."""
    rates_rps = {KEY: rate_rps, ("default", "w1"): other_rps}
    computed = least_processes_dollars(catalogue, rates_rps, PRICES, reserve_ratio=reserve_ratio)
    expected = naive.least_processes_dollars(catalogue, rates_rps, PRICES, reserve_ratio)
    assert computed == pytest.approx(expected, rel=1e-6)


@examples(40)
@given(
    catalogue=catalogues(), rate_rps=rates, reserve_ratio=reserves, pooled=st.booleans(),
    memory_mib=st.sampled_from((300, 1_000, 10_000)),
)  # fmt: skip
def test_nodes_are_those_of_brute_force(catalogue, rate_rps, reserve_ratio, pooled, memory_mib):
    """The resource that is short decides: GPU share, vCPUs or memory."""
    room = replace(ROOM, memory_mib=memory_mib)
    rates_rps = {KEY: rate_rps}
    computed = fewest_nodes(catalogue, rates_rps, room, reserve_ratio=reserve_ratio, pooled=pooled)
    expected = naive.fewest_nodes(catalogue, rates_rps, room, reserve_ratio, pooled=pooled)
    assert computed == pytest.approx(expected)


@examples(40)
@given(catalogue=catalogues(), rate_rps=rates)
def test_whole_processes_cost_no_less_than_b0(catalogue, rate_rps):
    """They serve the same requests in time, and are paid while they are idle."""
    bounds = request_bounds_dollars(catalogue, PRICES)
    rates_rps = dict.fromkeys(bounds, rate_rps)
    minimum = least_processes_dollars(catalogue, rates_rps, PRICES)
    assert minimum >= sum(rate_rps * bound for bound in bounds.values()) * (1 - 1e-9)


def test_nodes_without_the_gpu_hold_nothing():
    catalogue = Catalogue.of([workflow([[]], name="w0"), profile("f0", [(1, 1, 50, 10.0)])])
    room = replace(ROOM, gpu_model="another")
    assert fewest_nodes(catalogue, {KEY: 1.0}, room) == inf


# -- processes that are ready


runs_listed = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda r: (float(r[0]), float(sum(r)))),
    min_size=1,
    max_size=6,
).map(sorted)


@examples(200)
@given(runs=runs_listed, start_ms=st.sampled_from((0.0, 3.0, 10.0, 100.0)))
def test_the_last_used_process_is_the_best_choice(runs, start_ms):
    """No other assignment of runs to processes has less idle time and starts."""
    assert least_ready_ms(runs, start_ms) == naive.least_ready_ms(runs, start_ms)


@examples(60)
@given(runs=runs_listed.map(lambda runs: runs[:3]), start_ms=st.sampled_from((3.0, 10.0, 100.0)))
def test_processes_that_are_ready_at_first_need_no_start(runs, start_ms):
    """A run at the begin costs nothing; later ones cost the wait for them, or a start."""
    assert least_ready_ms(runs, start_ms, ready_at_ms=0.0) == pytest.approx(
        naive.least_ready_ms(runs, start_ms, ready_at_ms=0.0)
    )


@given(
    runs=runs_listed,
    start_ms=st.sampled_from((0.0, 3.0, 10.0, 100.0)),
    keep_ms=st.sampled_from((0.0, 3.0, 10.0, 50.0, 600.0)),
)
def test_no_keep_alive_is_below_the_bound_and_ski_rental_is_within_twice(runs, start_ms, keep_ms):
    least_ms = least_ready_ms(runs, start_ms)
    assert kept_ready_ms(runs, start_ms, keep_ms) >= least_ms
    assert kept_ready_ms(runs, start_ms, start_ms) <= 2.0 * least_ms


def test_a_keep_alive_is_paid_after_the_last_run():
    """A start of 5, a gap of 4, a gap of 20 over a keep-alive of 10, and a last one of 10."""
    runs = [(0.0, 10.0), (14.0, 20.0), (40.0, 50.0)]
    assert kept_ready_ms(runs, 5.0, 10.0) == 5.0 + 4.0 + (10.0 + 5.0) + 10.0
    assert least_ready_ms(runs, 5.0) == 5.0 + 4.0 + 5.0


def test_runs_are_grouped_by_what_can_take_them():
    listed = [(("f", 1, 10), 5.0, 6.0), (("f", 1, 20), 0.0, 1.0), (("f", 1, 10), 2.0, 3.0)]
    assert by_share(listed) == {("f", 1, 10): [(2.0, 3.0), (5.0, 6.0)], ("f", 1, 20): [(0.0, 1.0)]}


# -- a trace that is known beforehand


times_listed = st.lists(st.sampled_from((0.0, 5.0, 40.0, 100.0)), min_size=1, max_size=4)


@examples(60)
@given(catalogue=catalogues(stages_max=1, workflows_max=1), gaps_ms=times_listed)
def test_one_stage_is_grouped_at_the_least_cost(catalogue, gaps_ms):
    """The dynamic programme finds what brute force finds."""
    times_ms = np.cumsum(gaps_ms)
    (room,) = stage_rooms(catalogue.workflow(*KEY), catalogue.profiles, PRICES)
    expected = naive.least_trace_dollars(catalogue, KEY, times_ms.tolist(), PRICES)
    assert least_groups_dollars(room, times_ms) == pytest.approx(expected)


@examples(60)
@given(catalogue=catalogues(workflows_max=1), gaps_ms=times_listed.filter(lambda g: len(g) < 4))
def test_no_schedule_in_order_costs_less(catalogue, gaps_ms):
    """With forks, joins and several stages: below brute force, and not below B0."""
    times_ms = np.cumsum(gaps_ms).tolist()
    bound = trace_bound_dollars(catalogue, {KEY: times_ms}, PRICES)
    minimum = naive.least_trace_dollars(catalogue, KEY, times_ms, PRICES)
    assert bound <= minimum * (1 + 1e-9)
    b0 = request_bounds_dollars(catalogue, PRICES)[KEY]
    assert bound == inf if b0 == inf else bound >= len(times_ms) * b0 * (1 - 1e-9)


@pytest.mark.parametrize("policy", ["exact", "minimum", "warm", "orion"])
@examples(10)
@given(catalogue=catalogues(workflows_max=1), gaps_ms=st.lists(st.sampled_from((0.0, 5.0, 300.0)),
       min_size=1, max_size=20))  # fmt: skip
def test_no_simulated_run_in_time_costs_less(policy, catalogue, gaps_ms):
    """Cost of what ran, where all requests were in time and nothing was left to chance.

    INFless is none of them: its batches have requests of several stages that share a function.
    """
    times_ms = np.cumsum(gaps_ms).tolist()
    result = run(
        quiet(nodes=4, cpus=64), catalogue, Listed(times_ms, workflows=(KEY,)), policy
    ).result
    assume(result.hits == len(times_ms))
    bound = trace_bound_dollars(catalogue, {KEY: times_ms}, PRICES)
    assert bound <= result.ran_dollars * (1 + 1e-9)


def test_sparse_requests_cost_more_than_b0():
    """Batches of four that never fill: each request pays a whole run, which B0 does not know."""
    catalogue = Catalogue.of(
        [workflow([[]], name="w0", slo_ms=100.0), profile("f0", [(4, 1, 50, 60.0)])]
    )
    times_ms = [1_000.0 * i for i in range(10)]
    b0 = request_bounds_dollars(catalogue, PRICES)[KEY]
    assert trace_bound_dollars(catalogue, {KEY: times_ms}, PRICES) == pytest.approx(40 * b0)


def test_waiting_for_a_batch_has_its_price_at_the_next_stage():
    """Two requests that come 40 ms apart: a shared batch leaves no time for the cheap second stage.

    Each stage alone could have its best batch; the price of time knows that not both can.
    """
    first = profile("f0", [(2, 1, 50, 20.0)])
    second = profile("f1", [(1, 1, 10, 80.0), (1, 1, 100, 40.0)])
    catalogue = Catalogue.of([workflow([[], [0]], name="w0", slo_ms=100.0), first, second])
    times_ms = [0.0, 40.0]
    rooms = stage_rooms(catalogue.workflow(*KEY), catalogue.profiles, PRICES)
    apart = sum(least_groups_dollars(room, np.array(times_ms)) for room in rooms)
    bound = trace_bound_dollars(catalogue, {KEY: times_ms}, PRICES)
    minimum = naive.least_trace_dollars(catalogue, KEY, times_ms, PRICES)
    assert apart < bound <= minimum * (1 + 1e-9)
