"""The loop of a run: decisions are checked, applied and recorded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.training.cluster import TrainingCluster
from studies.training.engine import simulate_jobs
from studies.training.environments.pollux import PolluxEnvironment, PolluxEnvironmentParameters
from studies.training.errors import ImpossiblePlacementError, JobsError
from studies.training.job import ElasticJob, TrainingJob
from tests.studies.training.harness import Scripted, generated, pollux_job, simulated

POLICIES = ("tiresias", "optimus")


def environment_of(*jobs, nodes=2, gpus=2):
    cluster = TrainingCluster.uniform(nodes, gpus)
    return PolluxEnvironment(PolluxEnvironmentParameters(), list(jobs), cluster)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"job": (4,)}, "job job: GPU 4 does not exist; there are 4"),
        ({"job": (0, 0)}, "job job: GPU 0 of node 0 is listed twice"),
        (
            {"job": (2,), "b": (2, 3)},
            "job b: node 1 has 2 GPUs and 3 are assigned: GPU 2 to job, b",
        ),
        ({"ghost": (0,)}, "job ghost: has not arrived, has ended, or does not exist"),
        ({"late": (0,)}, "job late: has not arrived, has ended, or does not exist"),
    ],
)
def test_an_impossible_placement_is_reported_with_job_and_node(answer, message):
    """A policy's mistake ends the run with the policy, the time, the job and the node."""
    jobs = environment_of(pollux_job(), pollux_job("b"), pollux_job("late", submit_s=9e9))
    with pytest.raises(ImpossiblePlacementError) as raised:
        simulate_jobs(jobs, Scripted(answer), "mine")
    assert str(raised.value) == f"policy mine at 60 s: {message}; correct the policy"


def test_a_policy_that_needs_more_than_the_jobs_supply_is_refused():
    """The error names the capability and the environment."""

    class Plain(PolluxEnvironment):
        job_type = TrainingJob

    policy = Scripted({})
    type(policy).needs = (ElasticJob,)
    try:
        with pytest.raises(JobsError, match="needs jobs with ElasticJob; Plain does not supply"):
            simulate_jobs(
                Plain(PolluxEnvironmentParameters(), [], TrainingCluster.uniform(1, 1)), policy, "x"
            )
    finally:
        type(policy).needs = ()


def test_a_workload_that_never_fits_ends_with_an_error():
    """A job larger than the cluster does not keep the clock running forever."""
    with pytest.raises(JobsError, match="job may need more GPUs than there are"):
        simulated("tiresias", environment_of(pollux_job(gpus=5)))


def test_the_progress_counts_all_jobs():
    """The last report is the number of jobs."""
    reports = []
    environment = generated()
    simulate_jobs(
        environment, Scripted(lambda jobs: {jobs[0].name: (0,)}), "x", progress=reports.append
    )
    assert reports == sorted(reports)
    assert reports[-1] == len(environment.jobs)


@given(
    name=st.sampled_from(POLICIES),
    seed=st.integers(0, 50),
    nodes=st.integers(2, 6),
)
def test_no_gpu_is_held_twice_and_no_service_is_lost(name, seed, nodes):
    """Spans of one GPU never overlap, and they sum up to the service of their jobs."""
    result = simulated(name, generated(seed=seed, nodes=nodes, gpus=4))
    by_gpu = {}
    service_gpu_s = [0.0] * len(result.jobs)
    for span in sorted(result.spans, key=lambda span: span.begin_s):
        for gpu in span.gpus:
            assert by_gpu.get(gpu, 0.0) <= span.begin_s
            by_gpu[gpu] = span.end_s
        service_gpu_s[span.job] += len(span.gpus) * (span.end_s - span.begin_s)
    for job, expected_gpu_s in zip(result.jobs, service_gpu_s, strict=True):
        assert job.service_gpu_s == pytest.approx(expected_gpu_s)
        assert job.submit_s <= job.start_s < job.end_s
    assert 0 < result.gpu_use_ratio <= 1
    assert simulated(name, generated(seed=seed, nodes=nodes, gpus=4)) == result
