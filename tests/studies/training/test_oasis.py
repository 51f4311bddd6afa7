"""OASiS: prices, schedules against brute force, admission, and the environment of its model."""

from math import ceil, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.training.cluster import TrainingCluster, TrainingNode
from studies.training.engine import simulate_jobs
from studies.training.environment import WorkloadSource
from studies.training.environments.servers import (
    ServerEnvironment,
    ServerParameters,
    UtilityJob,
)
from studies.training.errors import JobsError
from studies.training.policies.oasis import schedule
from studies.training.policies.oasis_schedule import PriceBounds, PricedSlots, PriceRange
from tests.studies.training.harness import Scripted, simulated
from tests.studies.training.naive import NaiveOasis

SLOT_S = 100.0


def job_of(
    number=0, *, slot=0, chunks=2, epochs=1, chunk_slots=1.0, cpus=1, importance=10.0,
    urgency=0.0, target=1.0, gpus=1,
):  # fmt: skip
    return UtilityJob(
        name=f"j{number}", model="m", submit_s=slot * SLOT_S, gpus=gpus, chunks=chunks,
        epochs=epochs, chunk_s=chunk_slots * SLOT_S, server_cpus=cpus, servers_per_worker=0.5,
        importance=2 * importance, urgency_per_s=urgency / SLOT_S, target_s=target * SLOT_S,
    )  # fmt: skip


def environment_of(*jobs, slots=20, gpus=4, cpus=4):
    cluster = TrainingCluster((TrainingNode(gpus, cpus=cpus),))
    return ServerEnvironment(ServerParameters(slot_s=SLOT_S, slots=slots), list(jobs), cluster)


drawn_jobs = st.lists(
    st.builds(
        job_of,
        slot=st.integers(0, 1),
        chunks=st.integers(1, 2),
        epochs=st.integers(1, 2),
        chunk_slots=st.sampled_from([0.5, 0.7, 1.0]),
        cpus=st.integers(1, 2),
        importance=st.integers(1, 50),
        urgency=st.sampled_from([0.0, 0.5, 3.0]),
        target=st.integers(1, 3),
    ),
    min_size=1,
    max_size=4,
)


@given(drawn=drawn_jobs, node_gpus=st.sampled_from([(1,), (2,), (1, 2)]), cpus=st.integers(1, 3))
def test_a_schedule_has_the_largest_payoff_of_all(drawn, node_gpus, cpus):
    """Each job in turn gets what brute force over all schedules finds, or nothing pays off."""
    slots = 3
    priced = PricedSlots(slots, SLOT_S, node_gpus, cpus)
    naive = NaiveOasis(slots, SLOT_S, node_gpus, cpus)
    for job in drawn:
        first = round(job.submit_s / SLOT_S)
        best = naive.best_payoff(job, first)
        planned = schedule(job, priced, first, SLOT_S)
        if planned:
            assert naive.payoff(job, planned) == pytest.approx(best)
            assert naive.payoff(job, planned) > 0
        else:
            assert best == pytest.approx(0.0, abs=1e-9)
        naive.reserve(job, planned)


@pytest.mark.parametrize("utility", [10.0, 1e3, 1e6])
def test_capacity_is_kept_for_jobs_that_are_worth_more(utility):
    """Cheap jobs that could fill the slot come first; the competitive ratio holds nevertheless."""
    gpus = 64
    priced = PricedSlots(1, SLOT_S, (gpus,), 100 * gpus)
    jobs = [
        job_of(number, chunks=1, importance=importance)
        for number, importance in enumerate([1.0] * gpus + [utility] * gpus)
    ]
    for job in jobs:
        priced.add_job(job)  # the ratio is that of known ends of the prices
    reached = sum(job.utility(SLOT_S) for job in jobs if schedule(job, priced, 0, SLOT_S))
    ratio = 2 * max(log(prices.high / prices.low) for prices in priced.prices)
    assert gpus * utility / ratio <= reached <= gpus * utility


@given(low=st.floats(1e-6, 1.0), ratio=st.floats(1.0, 1e6))
def test_a_price_rises_from_the_low_end_to_the_high_end(low, ratio):
    """An idle resource has the low price, and a reserved one the high price."""
    prices = PriceRange(low, low * ratio).at(np.linspace(0.0, 1.0, 5))
    assert prices[0] == pytest.approx(low)
    assert prices[-1] == pytest.approx(low * ratio)
    assert all(np.diff(prices) >= 0)


def test_the_range_of_prices_follows_from_the_jobs():
    """The high price is the utility of a unit, the low one a quarter of the least per unit."""
    bounds = PriceBounds(capacity=100)
    bounds.add(utility=20.0, units=2, demand=50)
    assert bounds.prices == pytest.approx((20 / 50 / 4 * 0.5, 10.0))
    bounds.add(utility=10.0, units=1, demand=5)
    assert bounds.prices == pytest.approx((20 / 50 / 4 * 0.05, 10.0))


def test_a_job_is_admitted_from_the_utility_on_that_its_price_has():
    """One that pays off on the idle cluster is refused where half is reserved."""
    assert schedule(job_of(importance=0.1), PricedSlots(3, SLOT_S, (4,), 100), 0, SLOT_S)
    admitted = []
    for importance in np.geomspace(0.1, 500.0, 20):
        priced = PricedSlots(3, SLOT_S, (4,), 100)
        naive = NaiveOasis(3, SLOT_S, (4,), 100)
        for number in range(3):
            important = job_of(number, importance=1000.0)
            naive.best_payoff(important, 0)
            naive.reserve(important, schedule(important, priced, 0, SLOT_S))
        job = job_of(9, importance=importance, urgency=5.0)
        admitted.append(bool(schedule(job, priced, 0, SLOT_S)))
        assert admitted[-1] == (naive.best_payoff(job, 0) > 0)
    assert not admitted[0]
    assert admitted[-1]


def test_nothing_is_admitted_without_capacity_or_utility():
    """No free GPU, no free CPU, no time left, or a utility of 0 at any time."""
    priced = PricedSlots(1, SLOT_S, (2,), 10)
    assert schedule(job_of(chunks=2), priced, 0, SLOT_S)
    assert schedule(job_of(1, chunks=1, importance=1e9), priced, 0, SLOT_S) == {}
    priced = PricedSlots(1, SLOT_S, (2,), 1)
    assert schedule(job_of(cpus=2), priced, 0, SLOT_S) == {}
    assert schedule(job_of(), priced, 1, SLOT_S) == {}
    worthless = job_of(urgency=100.0, target=-100.0)
    assert schedule(worthless, priced, 0, SLOT_S) == {}


def test_the_number_of_workers_follows_the_prices():
    """A job that may take long avoids the slot that others have reserved."""
    priced = PricedSlots(3, SLOT_S, (4,), 100)
    assert schedule(job_of(chunks=3, urgency=5.0), priced, 0, SLOT_S).keys() == {0}
    plan = schedule(job_of(1, chunks=2, epochs=2), priced, 0, SLOT_S)
    workers = [sum(plan[slot].workers) if slot in plan else 0 for slot in range(3)]
    assert workers == [0, 2, 2]


@pytest.mark.slow
def test_admitted_jobs_keep_their_schedule_and_refused_ones_never_run():
    """On generated jobs, whoever starts is complete, and nobody else has a GPU."""
    environment = ServerEnvironment.load(
        ServerParameters(load_ratio=2.0), WorkloadSource(nodes=4, seed=1)
    )
    result = simulated("oasis", environment)
    complete = [job.complete for job in environment.jobs]
    assert complete == [record.service_gpu_s > 0 for record in result.jobs]
    assert 0 < sum(complete) < len(complete)


@pytest.mark.slow
def test_less_utility_is_lost_than_without_admission():
    """At twice the capacity, than by arrival, by deadline, and with elastic workers for all."""
    lost_ratio = {}
    for name in ("oasis", "fifo", "edf", "optimus"):
        environment = ServerEnvironment.load(
            ServerParameters(load_ratio=2.0), WorkloadSource(nodes=4, seed=1)
        )
        lost_ratio[name] = environment.lost_utility_ratio(simulated(name, environment))
    assert min(lost_ratio, key=lost_ratio.__getitem__) == "oasis"


def test_workers_train_chunks_and_a_job_ends_with_a_slot():
    """Four chunks by two workers take two slots, counted from the first decision."""
    environment = environment_of(job_of(chunks=4, gpus=2))
    assert [job.end_s for job in simulated("fifo", environment).jobs] == [3 * SLOT_S]


def test_servers_without_enough_cpus_slow_all_jobs():
    """Two jobs that need twice the CPUs take twice the time."""
    jobs = (job_of(n, chunks=4, gpus=2, cpus=4) for n in range(2))
    environment = environment_of(*jobs)
    assert [job.end_s for job in simulated("fifo", environment).jobs] == [5 * SLOT_S] * 2


def test_jobs_that_are_not_complete_end_with_the_last_slot_and_have_no_utility():
    """One job is complete, one has run in part, and one never."""
    environment = environment_of(job_of(), job_of(1, epochs=99), job_of(2))
    idle = Scripted(lambda jobs: {job.name: (n,) for n, job in enumerate(jobs) if job.name != "j2"})
    result = simulate_jobs(environment, idle, "mine")
    assert [job.end_s for job in result.jobs] == [3 * SLOT_S, 20 * SLOT_S, 20 * SLOT_S]
    assert result.jobs[2].start_s == result.jobs[2].end_s
    assert environment.lost_utility_ratio(result) == pytest.approx(2 / 3)


def test_a_utility_is_half_at_its_target_and_falls():
    """Long after the target nothing is left."""
    job = job_of(importance=10.0, urgency=2.0, target=3.0)
    assert job.utility(3 * SLOT_S) == pytest.approx(10.0)
    assert job.utility(0.0) == pytest.approx(20.0, rel=0.01)
    assert job.utility(1e9) == 0.0
    assert job_of(urgency=0.0).utility(1e9) == 10.0


@given(seed=st.integers(0, 50), load_ratio=st.sampled_from([0.5, 2.0]))
def test_generated_jobs_have_the_load_and_reachable_targets(seed, load_ratio):
    """All could reach half of their utility alone, before the end of the last slot."""
    parameters = ServerParameters(load_ratio=load_ratio)
    environment = ServerEnvironment.load(parameters, WorkloadSource(seed=seed))
    end_s = parameters.slots * parameters.slot_s
    demand_s = sum(job.epochs * job.chunks * job.chunk_s for job in environment.jobs)
    assert demand_s / (environment.cluster.gpus * end_s) == pytest.approx(load_ratio, rel=0.1)
    for job in environment.jobs:
        assert job.epochs * job.chunk_s <= job.target_s + 1e-6
        assert ceil(job.submit_s + job.target_s) <= end_s


def test_there_is_no_form_of_a_trace(tmp_path):
    """The message names the file."""
    source = WorkloadSource(workload=tmp_path / "jobs.csv")
    with pytest.raises(JobsError, match=r"jobs\.csv: environment servers reads no workload"):
        ServerEnvironment.load(ServerParameters(), source)


def test_the_policy_needs_the_jobs_of_this_environment():
    """No other environment has parameter servers."""
    with pytest.raises(JobsError, match="needs jobs with ParameterServerJob"):
        simulated("oasis")
