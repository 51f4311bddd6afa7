"""ANDREAS: unlike GPUs, prices of energy and delay, and the search of a schedule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.oracles.andreas import (
    least_dollars,
    lowest_dollars,
    proxy_dollars,
    searched_dollars,
    small_case,
)
from studies.training.cluster import TrainingCluster, TrainingNode
from studies.training.environment import WorkloadSource
from studies.training.environments.andreas import (
    AndreasEnvironment,
    AndreasEnvironmentParameters,
    EnergyJob,
)
from studies.training.policies.andreas import EnergySchedule, GpuOption, schedule_dollars
from studies.training.policy import JobsState
from tests.data_of_others import DATA, needs_data
from tests.studies.training.harness import policy, simulated

FAST = TrainingNode(2, "fast", cost_per_h=36.0, gpu_cost_per_h=72.0)
SLOW = TrainingNode(2, "slow", cost_per_h=36.0, gpu_cost_per_h=3.6)
TIMES_S = {"fast": {1: 100.0, 2: 60.0}, "slow": {1: 400.0, 2: 240.0}}


def job_of(number, time_limit_s, *, submit_s=0.0, price_per_s=1.0):
    return EnergyJob(
        name=f"j{number}", model="m", submit_s=submit_s, gpus=1, work_count=1.0, times_s=TIMES_S,
        time_limit_s=time_limit_s, late_cost_per_s=price_per_s,
    )  # fmt: skip


def environment_of(*jobs, nodes=(FAST, SLOW)):
    parameters = AndreasEnvironmentParameters(restart_s=0.0)
    return AndreasEnvironment(parameters, jobs, TrainingCluster(nodes))


def decided_gpus(*jobs, now_s=0.0, **settings):
    environment = environment_of(*jobs)
    decided = policy("andreas", **settings).decide(JobsState(now_s, jobs, environment.cluster, {}))
    return {name: placement.gpus for name, placement in decided.items()}


def test_the_cheapest_configuration_in_time_is_taken():
    """A loose deadline gets slow GPUs, a tight one fast ones, a hopeless one the fastest."""
    assert set(decided_gpus(job_of(0, 500.0), randomized=False)["j0"]) == {2, 3}
    assert set(decided_gpus(job_of(0, 150.0), randomized=False)["j0"]) <= {0, 1}
    assert set(decided_gpus(job_of(0, 10.0), randomized=False)["j0"]) == {0, 1}


def test_jobs_at_risk_are_first():
    """The job with the least slack gets the fast node; orders of arrival and deadline differ."""
    jobs = (job_of(0, 1e6), job_of(1, 60.0), job_of(2, 60.0))
    assert set(decided_gpus(*jobs, randomized=False)["j1"]) == {0, 1}
    late = (job_of(0, 50.0), job_of(1, 40.0, submit_s=1.0))
    assert set(decided_gpus(*late, order="arrival", randomized=False)["j0"]) == {0, 1}
    assert set(decided_gpus(*late, order="deadline", randomized=False)["j1"]) == {0, 1}


def test_leftover_gpus_go_to_the_job_that_gains():
    """A job that is alone on a node in use gets the other GPU, too."""
    assert decided_gpus(job_of(0, 150.0), randomized=False)["j0"] == (0, 1)


def test_jobs_run_at_the_speed_of_their_gpus():
    """The number and the model of the GPUs decide."""
    environment = environment_of(job_of(0, 150.0), job_of(1, 1e6))
    ends_s = {job.name: job.end_s for job in simulated("andreas", environment).jobs}
    assert ends_s == {"j0": 60.0, "j1": 240.0}


def test_a_duration_is_that_on_the_requested_gpus():
    """Jobs take their duration on as many of the fastest GPUs, so the load is the one requested."""
    parameters = AndreasEnvironmentParameters(load_ratio=0.5)
    environment = AndreasEnvironment.load(parameters, WorkloadSource(seed=1))
    requested_gpu_s = sum(job.gpus * job.remaining_s for job in environment.jobs)
    arrivals_s = max(job.submit_s for job in environment.jobs)
    assert requested_gpu_s / (environment.cluster.gpus * arrivals_s) == pytest.approx(0.5, rel=1e-3)


def test_the_price_of_a_run_is_energy_and_delay():
    """One job on one fast GPU for 100 s that is 40 s late."""
    environment = environment_of(job_of(0, 60.0, price_per_s=2.0), nodes=(FAST,))
    result = simulated("fifo", environment)
    assert environment.price_dollars(result) == pytest.approx(1.0 + 2.0 + 80.0)


def test_the_price_of_a_schedule_ends_with_its_first_job():
    """Energy until then, delay of placed jobs by then, and a hundredfold risk of waiting ones."""
    jobs = [job_of(0, 50.0), job_of(1, 100.0)]
    schedule = EnergySchedule([2, 2])
    schedule.put("j0", GpuOption("fast", 1, 100.0), 0)
    options = {"j1": [GpuOption("slow", 1, 400.0)]}
    cost = schedule_dollars(schedule, 0.0, jobs, options, environment_of(*jobs).cluster)
    assert cost == pytest.approx(2.0 + 1.0 + 50.0 + 100 * 300.0)


@given(seed=st.integers(0, 300))
def test_the_search_finds_the_best_order(seed):
    """Randomised is never worse than greedy, nor better than the best of all orders."""
    case = small_case(seed)
    greedy = searched_dollars(case, seed, randomized=False)
    randomized = searched_dollars(case, seed, randomized=True)
    assert lowest_dollars(case) - 1e-9 <= randomized <= greedy
    assert least_dollars(case) - 1e-9 <= lowest_dollars(case)
    assert greedy <= proxy_dollars(case, {}) or len(case.jobs) > 1


def test_the_best_order_is_not_the_least_price():
    """Brute force over placements shares no rule with the search: here four jobs could all run."""
    case = small_case(7)
    assert len(case.jobs) == 4
    assert least_dollars(case) < 0.1 * lowest_dollars(case)


@given(seed=st.integers(0, 50))
def test_every_job_ends(seed):
    """Generated jobs run on nodes of their own size and end, whatever is moved."""
    environment = AndreasEnvironment.load(
        AndreasEnvironmentParameters(job_count=8), WorkloadSource(nodes=3, gpus=2, seed=seed)
    )
    result = simulated("andreas", environment, repeats_max=10)
    shortest_s = [job.shortest_s for job in environment.jobs]
    for record, time_s in zip(result.jobs, shortest_s, strict=True):
        assert record.jct_s >= time_s * (1 - 1e-9)
    assert environment.price_dollars(result) > 0


@needs_data
def test_measured_throughputs_give_run_times():
    """Each generated job has a run time on some GPU model."""
    environment = AndreasEnvironment.load(
        AndreasEnvironmentParameters(), WorkloadSource(data=DATA, seed=0)
    )
    assert all(job.shortest_s > 0 for job in environment.jobs)
