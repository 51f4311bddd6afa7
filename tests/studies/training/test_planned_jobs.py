"""BFTrainer and A_online against brute force."""

from itertools import combinations, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.training.cluster import TrainingCluster, TrainingNode
from studies.training.environment import WorkloadSource
from studies.training.environments.andreas import (
    AndreasEnvironment,
    AndreasEnvironmentParameters,
    EnergyJob,
)
from studies.training.job import JobPlacement
from tests.studies.training.harness import policy, pollux_job, simulated

MODELS = ("generated-small", "generated-medium")
drawn_jobs = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=4
)


@given(
    drawn=st.lists(st.tuples(st.sampled_from(MODELS), st.integers(0, 3)), min_size=1, max_size=3),
    gpus=st.integers(1, 6),
    change_s=st.sampled_from([0.0, 30.0, 500.0]),
)
def test_bftrainer_chooses_the_largest_gain(drawn, gpus, change_s):
    """No other numbers of GPUs gain more, changes included."""
    jobs = []
    for number, (model, count) in enumerate(drawn):
        jobs.append(pollux_job(f"j{number}", model=model))
        jobs[-1].placement = JobPlacement(tuple(range(count)))
    bftrainer = policy("bftrainer", up_s=change_s, down_s=change_s)
    counts = bftrainer.gpu_counts(jobs, gpus)
    gains_s = [[bftrainer.gain_s(job, n) for n in range(gpus + 1)] for job in jobs]
    best_s = max(
        sum(gain[n] for gain, n in zip(gains_s, split, strict=True))
        for split in product(range(gpus + 1), repeat=len(jobs))
        if sum(split) <= gpus and all(n <= job.gpus_max for n, job in zip(split, jobs, strict=True))
    )
    assert sum(counts.values()) <= gpus
    gain_s = sum(gain[counts[job.name]] for gain, job in zip(gains_s, jobs, strict=True))
    assert gain_s == pytest.approx(best_s)


def test_a_change_that_does_not_pay_is_not_made():
    """With a long change a job stays at its size, although more GPUs are free."""
    job = pollux_job()
    job.placement = JobPlacement((0,))
    assert policy("bftrainer", up_s=0.0).gpu_counts([job], 4)["job"] > 1
    assert policy("bftrainer", up_s=1e6).gpu_counts([job], 4) == {"job": 1}


def test_bftrainer_changes_only_when_jobs_come_or_go():
    """A run ends, with as many decisions as rounds."""
    result = simulated("bftrainer")
    assert result.restarts > 0
    assert all(job.end_s > job.submit_s for job in result.jobs)


def job_of(number, submit_s, duration_s, weight):
    return EnergyJob(
        name=f"j{number}", model="m", submit_s=float(submit_s), gpus=1, work_count=1.0,
        times_s={"": {1: float(duration_s)}}, time_limit_s=1e9, late_cost_per_s=float(weight),
    )  # fmt: skip


def jobs_of(drawn):
    return [job_of(number, *job) for number, job in enumerate(drawn)]


@given(drawn=drawn_jobs, window=st.integers(1, 8))
def test_a_window_serves_the_largest_weight(drawn, window):
    """On one GPU, a set of jobs fits if its durations do."""
    jobs = jobs_of(drawn)
    cluster = TrainingCluster((TrainingNode(1),))
    planned = policy("a-online", slots=window).planned(jobs, cluster, 0.0, float(window))
    weight = sum(job.late_cost_per_s for job in jobs if job.name in planned)
    assert weight == max(
        sum(job.late_cost_per_s for job in selected)
        for size in range(len(jobs) + 1)
        for selected in combinations(jobs, size)
        if sum(job.times_s[""][1] for job in selected) <= window
    )


@given(drawn=drawn_jobs)
def test_weighted_completion_is_within_the_bound_of_doubling_windows(drawn):
    """At most four times the best order's, and two intervals for what arrives within the first."""
    jobs = jobs_of(drawn)
    weights = [job.late_cost_per_s for job in jobs]

    def completion(order):
        now_s, total = 0.0, 0.0
        for submit_s, duration_s, weight in order:
            now_s = max(now_s, submit_s) + duration_s
            total += weight * now_s
        return total

    best = min(completion(order) for order in permutations(drawn))
    environment = AndreasEnvironment(
        AndreasEnvironmentParameters(), jobs, TrainingCluster((TrainingNode(1),))
    )
    result = simulated("a-online", environment, interval_s=1.0, slots=64)
    reached = sum(w * job.end_s for w, job in zip(weights, result.jobs, strict=True))
    assert best - 1e-9 <= reached <= 4 * best + 2 * sum(weights)
    assert result.restarts == 0


def test_a_generated_workload_is_planned_on_all_models():
    """Every job runs once, uninterrupted, on one node."""
    environment = AndreasEnvironment.load(
        AndreasEnvironmentParameters(job_count=10), WorkloadSource(nodes=3, gpus=2, seed=1)
    )
    result = simulated("a-online", environment)
    assert result.restarts == 0
    node_of = environment.cluster.node_of
    assert all(len({node_of[gpu] for gpu in span.gpus}) == 1 for span in result.spans)
