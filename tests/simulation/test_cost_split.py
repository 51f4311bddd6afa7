"""Parts of what a run pays: they add up, and each counts what it names."""

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.simulation.harness import Fixed, Listed, one_function, quiet, run
from tests.simulation.test_invariants import (
    ScalesAtRandom,
    catalogues,
    scenarios,
    suited,
    workloads,
)
from workbench.simulation.cost_split import PARTS, CostSplit, mean_split
from workbench.simulation.recorder import TimedCost
from workbench.simulation.scenario import Failure

FULL = (4, 1, 50, 100.0)  # batch, vCPUs, percent, ms
SINGLE = (1, 1, 50, 60.0)
VCPU_MS, GPU_MS = 0.034 / 3.6e6, 4.69 / 3.6e6  # dollars
HALF_GPU_MS = VCPU_MS + GPU_MS / 2


def split_of(catalogue, times_ms, policy="minimum", **changes):
    """Run without chance, and return the split and the result."""
    recording = run(quiet(**changes), catalogue, Listed(times_ms), policy)
    return recording.result.split, recording.result


@examples(40)
@given(st.data())
def test_parts_add_up_to_what_is_paid(data):
    """Whatever runs, fails or is dropped, under each kind of policy."""
    catalogue = data.draw(catalogues())
    keys = tuple(catalogue.workflows)
    policy = data.draw(st.sampled_from(("minimum", "exact", ScalesAtRandom, "infless", "warm")))
    arrivals = data.draw(workloads(len(keys)))
    scenario = suited(data.draw(scenarios), policy)
    result = run(scenario, catalogue, arrivals, policy).result
    split = result.split
    if result.bound_dollars is None:
        assert split is None
        return
    assert split.paid == pytest.approx(result.paid_dollars, rel=1e-9, abs=1e-15)
    assert split.limit == result.bound_dollars
    assert split.unserved <= 1e-12
    assert split.batching >= -1e-12
    ran = split.limit + split.unserved + split.batching + split.planning + split.noise
    assert ran == pytest.approx(result.ran_dollars, rel=1e-9, abs=1e-15)
    assert min(split.starts, split.idle) >= 0.0


def test_full_batches_of_the_limit_pay_the_limit():
    """Four requests at once in the only container, which holds nothing while idle."""

    class WaitsForFour(Fixed):
        """The only configuration, once four requests wait."""

        def candidates(self, question):
            return super().candidates(question) if question.queued == 4 else ()

    catalogue = one_function([FULL], slo_ms=100.0)
    split, result = split_of(catalogue, [0.0] * 4, WaitsForFour)
    assert result.paid_dollars == pytest.approx(100.0 * HALF_GPU_MS)
    expected = CostSplit(
        limit=result.paid_dollars, unserved=0, batching=0, planning=0, noise=0, starts=0, idle=0,
        fragmentation=result.split.fragmentation,
    )  # fmt: skip
    assert astuple(split) == pytest.approx(astuple(expected), abs=1e-15)


def test_a_batch_that_is_not_full_costs_what_its_empty_rows_cost():
    split, _ = split_of(one_function([FULL], slo_ms=100.0), [0.0])
    assert split.limit == pytest.approx(100.0 / 4 * HALF_GPU_MS)
    assert split.batching == pytest.approx(100.0 * 3 / 4 * HALF_GPU_MS)
    assert split.planning == pytest.approx(0.0, abs=1e-15)


def test_a_smaller_batch_counts_with_the_cheapest_share_that_is_fast_enough():
    """The limit has the batch of four; a single request would be cheapest with 14 percent.

    Less time would cost nothing here: the slim share fits into a tenth less than the SLO.
    """
    slim = (1, 1, 14, 90.0)
    catalogue = one_function([FULL, slim, SINGLE], slo_ms=200.0)

    class RunsLast(Fixed):
        """The last configuration, for single requests."""

        choice = {"s0": 2}  # noqa: RUF012

    split, _ = split_of(catalogue, [0.0], RunsLast)
    slim_dollars = 90.0 * (VCPU_MS + 0.14 * GPU_MS)
    assert split.batching == pytest.approx(slim_dollars - split.limit)
    assert split.planning == pytest.approx(60.0 * HALF_GPU_MS - slim_dollars)


def test_a_start_is_paid_while_it_lasts():
    """The container holds its share for 300 ms before its run, and for 500 ms after it."""
    catalogue = one_function([SINGLE], slo_ms=9_000.0, cold_start_ms=300.0)
    changes = {"resizable": False, "warm_containers": 0}
    split, _ = split_of(catalogue, [0.0, 860.0], **changes)
    assert split.starts == pytest.approx(300.0 * HALF_GPU_MS)
    assert split.idle == pytest.approx(500.0 * HALF_GPU_MS)


def test_times_beside_the_profile_are_noise():
    """Two runs on one GPU slow each other down; a failure ends a run half-way."""
    catalogue = one_function([SINGLE], slo_ms=9_000.0)
    split, _ = split_of(catalogue, [0.0, 0.0], interference_ratio=1.0, warm_containers=2)
    assert split.noise == pytest.approx(0.5 * 60.0 * HALF_GPU_MS)
    failures = (Failure(at_ms=20.0, node=0),)
    lost, _ = split_of(catalogue, [0.0], nodes=2, failures=failures, resizable=False)
    assert lost.noise in (pytest.approx(20.0 * HALF_GPU_MS), pytest.approx(0.0, abs=1e-15))


def test_dropped_requests_lower_what_is_paid_below_the_limit():
    """The second one is given up while it waits."""
    catalogue = one_function([(1, 1, 100, 100.0)], slo_ms=100.0)
    split, result = split_of(catalogue, [0.0, 1.0], give_up_factor=0.5)
    assert result.dropped == 1
    assert split.unserved == pytest.approx(-split.limit / 2)


def test_fragmentation_is_the_rest_of_the_nodes_that_hold_anything():
    """One node of two has the container for the 60 ms of its run."""
    catalogue = one_function([SINGLE], slo_ms=100.0)
    changes = {"nodes": 2, "cpus": 8, "resizable": False, "warm_containers": 0}
    split, _ = split_of(catalogue, [0.0], **changes)
    assert split.rented == pytest.approx(60.0 * (8 * VCPU_MS + GPU_MS))
    assert split.fragmentation == pytest.approx(60.0 * (7 * VCPU_MS + GPU_MS / 2))


def test_stations_have_no_split():
    """Their shares change while a stage runs, and whole nodes are paid."""
    split, result = split_of(one_function([(1, 1, 100, 10.0)], slo_ms=100.0), [0.0], "fcfs")
    assert split is None
    assert result.paid_bound_ratio > 1.0


def test_the_mean_is_of_each_part():
    one, two = (CostSplit(**dict.fromkeys(PARTS, x)) for x in (1.0, 3.0))
    assert set(astuple(mean_split([one, two]))) == {2.0}
    assert set(astuple(two.of_limit())) == {1.0}


@given(
    st.lists(
        st.tuples(st.floats(0.0, 2e4), st.floats(0.0, 5e3), st.floats(0.1, 3.0)),
        min_size=1,
        max_size=20,
    )
)
def test_timed_cost_is_the_integral(held):
    """An amount that is taken back half-way counts until then."""
    cost, total = TimedCost(), 0.0
    events = []
    for begin_ms, width_ms, rate in held:
        events += [(begin_ms, begin_ms + width_ms, rate)]
        events += [(begin_ms + width_ms / 2, begin_ms + width_ms, -rate)]
        total += rate * width_ms / 2
    for event in sorted(events):
        cost.hold(*event)
    end_ms = max(end for _, end, _ in events) + 1.0
    assert cost.total_dollars(end_ms) == pytest.approx(total, abs=1e-9)
