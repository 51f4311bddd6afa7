"""Synergy: CPUs and memory by demand, and the environment in which they decide the speed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.document_reader import DocumentError
from studies.oracles.synergy import mean_jct_s
from studies.training.cluster import TrainingCluster, TrainingNode
from studies.training.engine import simulate_jobs
from studies.training.environment import WorkloadSource
from studies.training.environments.synergy import (
    SynergyEnvironment,
    SynergyEnvironmentParameters,
    SynergyJob,
)
from studies.training.environments.synergy_files import PROFILES_FILE, DemandProfile, read_workload
from studies.training.errors import ImpossiblePlacementError, JobsError
from studies.training.job import JobPlacement
from studies.training.policy import JobsState
from tests.data_of_others import DATA, needs_data
from tests.studies.training.harness import Scripted, policy, simulated

PARAMETERS = SynergyEnvironmentParameters()


def job_of(
    name="a", *, gpus=1, cpus=3, memory_gib=60.0, iterations=1000, speedup=2.0, iteration_s=1.0
):
    profile = DemandProfile(
        cpu_demand=cpus, mem_gb_demand=memory_gib, iteration_time_s=iteration_s, speedup=speedup
    )
    return SynergyJob(
        name=name, model="m", submit_s=0.0, gpus=gpus, profile=profile, iterations=iterations
    )


def environment_of(*jobs, nodes=1):
    cluster = TrainingCluster((TrainingNode(2, "", 6, 125.0),) * nodes)
    return SynergyEnvironment(PARAMETERS, list(jobs), cluster)


def generated(seed):
    return SynergyEnvironment.load(PARAMETERS, WorkloadSource(seed=seed))


def decided(jobs, **settings):
    environment = environment_of(*jobs)
    return policy("synergy", **settings).decide(JobsState(1.0, jobs, environment.cluster, {}))


def test_a_full_demand_makes_a_job_faster():
    """With its demand the job completes in half the rounds; it ends with a round."""
    hungry = {"cpus": 6, "iterations": 1000}
    assert simulated("synergy", environment_of(job_of(**hungry)), mode="fair").mean_jct_s == 1201
    assert simulated("synergy", environment_of(job_of(**hungry)), mode="tune").mean_jct_s == 601


def test_an_iteration_that_is_longer_than_a_round_is_reported():
    """Such a job would never end."""
    long = job_of(iteration_s=500.0, speedup=1.0)
    with pytest.raises(JobsError, match="job a: an iteration takes 500 s and a round 300 s"):
        simulated("synergy", environment_of(long))


def test_a_greedy_job_waits_for_its_demand_and_a_tuned_one_does_not():
    """Two jobs that each need all CPUs: one at a time, or both, the first cut to its share."""
    jobs = [job_of("a", cpus=6), job_of("b", cpus=6)]
    assert decided(jobs, mode="greedy").keys() == {"a"}
    tuned = decided(jobs, mode="tune")
    assert {name: p.cpus for name, p in tuned.items()} == {"a": 3, "b": 3}


def test_what_a_modest_job_leaves_goes_to_a_hungry_one():
    """A job that needs one CPU gets no more, and five stay for its neighbour."""
    tuned = decided([job_of("a", cpus=1), job_of("b", cpus=5)], mode="tune")
    assert {name: p.cpus for name, p in tuned.items()} == {"a": 1, "b": 5}


@pytest.mark.parametrize("order", ["fifo", "las", "srtf", "ftf"])
def test_the_order_decides_who_gets_gpus(order):
    """With GPUs for one of two jobs, each order prefers another for its own reason."""
    old, new = job_of("old", gpus=2, iterations=900), job_of("new", gpus=2, iterations=1800)
    new.submit_s = 0.5
    old.service_gpu_s = 600.0
    expected = {"fifo": "old", "las": "new", "srtf": "old", "ftf": "new"}
    assert decided([old, new], order=order).keys() == {expected[order]}


def test_tune_places_large_jobs_first():
    """The demand of a large job is served before a small one, which comes first in the order."""
    small, large = job_of("small", cpus=6, iterations=100), job_of("large", gpus=2, cpus=5)
    cluster = TrainingCluster((TrainingNode(3, "", 14, 187.5),))
    tune = policy("synergy", order="fifo")
    placed = tune.decide(JobsState(1.0, [small, large], cluster, {}))
    assert {name: p.cpus for name, p in placed.items()} == {"large": 10, "small": 4}


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        (JobPlacement((0,), 7), "job a: node 0 has 6 CPUs and 7 are assigned"),
        (JobPlacement((0,), 1, 200.0), "job a: node 0 has 125 GiB and 200 are assigned"),
    ],
)
def test_more_cpus_or_memory_than_a_node_has_is_an_error(placement, message):
    """The message names job and node."""
    greedy = Scripted({})
    greedy.decide = lambda *_: {"a": placement}
    with pytest.raises(ImpossiblePlacementError, match=message):
        simulate_jobs(environment_of(job_of()), greedy, "mine")


@given(
    seed=st.integers(0, 100),
    mode=st.sampled_from(["fair", "greedy", "tune"]),
    order=st.sampled_from(["fifo", "las", "srtf", "ftf"]),
)
def test_every_job_completes_within_its_shares(seed, mode, order):
    """No node is overcommitted, and no job is faster than its speed-up allows."""
    environment = generated(seed)
    result = simulated("synergy", environment, mode=mode, order=order)
    for job, record in zip(environment.jobs, result.jobs, strict=True):
        limit = 1.0 if mode == "fair" else job.profile.speed_ratio
        assert record.service_gpu_s >= job.ideal_s / limit * job.gpus - 1e-6


def write(tmp_path, text, *, speedup=2.0):
    profiles = tmp_path / PROFILES_FILE
    profiles.parent.mkdir(parents=True)
    profile = {"cpu_demand": 1, "mem_gb_demand": 1, "iteration_time_s": 1, "speedup": speedup}
    profiles.write_text(json.dumps({"m_1": profile, "m_2": profile}), encoding="utf-8")
    trace = tmp_path / "trace"
    trace.write_text(text, encoding="utf-8")
    return trace


def test_a_trace_is_read_with_its_profiles(tmp_path):
    """The profile of one GPU holds for any number."""
    (row,) = read_workload(write(tmp_path, "7,m,0.5,20,4\n"), tmp_path)
    assert (row.name, row.submit_s, row.iterations, row.gpus) == ("7", 0.5, 20, 4)
    assert row.profile.speed_ratio == 2.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,m,0,20,1\n1,x,0,20,1\n", "line 2: column model: there is no model 'x'; there are m"),
        ("0,m,0,0,1\n", "line 1: column iterations: '0' is no whole number from 1"),
        ("0,m,0,20\n", "line 1: has 4 values for 5 columns"),
        ("0,m,0,20,1\n0,m,0,20,1\n", "line 2: column id: '0' is the id of line 1 already"),
        ("", "the file: has no job"),
    ],
)
def test_a_wrong_row_is_reported(tmp_path, text, message):
    """Line and column are named."""
    with pytest.raises(DocumentError) as raised:
        read_workload(write(tmp_path, text), tmp_path)
    assert message in str(raised.value)


def test_profiles_are_checked_and_needed(tmp_path):
    """A wrong profile is reported with its place, and a missing folder with the option."""
    trace = write(tmp_path, "0,m,0,20,1\n", speedup=0.5)
    with pytest.raises(
        DocumentError, match=r"line 1: column 70: m_1: speedup: Input should be greater than"
    ):
        read_workload(trace, tmp_path)
    with pytest.raises(DocumentError, match="cannot be read"):
        read_workload(trace, tmp_path / "none")
    with pytest.raises(JobsError, match="name a folder with --data"):
        read_workload(trace, None)


@needs_data
def test_the_proportional_share_is_exact():
    """100 published jobs on 32 GPUs by remaining time."""
    assert mean_jct_s(DATA, "fair", "srtf", 4) == pytest.approx(15882.9505, abs=1e-6)
