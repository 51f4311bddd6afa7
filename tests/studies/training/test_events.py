"""Policies on a clock of events: orders, queues, demotions, and the published 60 jobs."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.oracles.catalogue import ORACLES
from studies.training.cluster import TrainingCluster
from studies.training.environment import WorkloadSource
from studies.training.environments.tiresias import ConstantJob, TiresiasEnvironment
from studies.training.policy import JobsState, RunParameters
from tests.data_of_others import DATA, needs_data
from tests.studies.training.harness import policy, simulated

EVENT_POLICIES = ("fifo", "srtf", "srsf", "qssf", "las", "tiresias-events", "gittins", "tiresias")


def job_of(number, submit_s, gpus, duration_s):
    return ConstantJob(
        name=f"j{number}", model="m", submit_s=submit_s, gpus=gpus, duration_s=duration_s
    )


def environment_of(*jobs, nodes=1, gpus=4):
    """Each job is (submit, GPUs, duration)."""
    constant = [job_of(number, *job) for number, job in enumerate(jobs)]
    return TiresiasEnvironment(RunParameters(), constant, TrainingCluster.uniform(nodes, gpus))


def generated(seed):
    return TiresiasEnvironment.load(RunParameters(), WorkloadSource(seed=seed))


def ends_s(name, *jobs, **settings):
    return [job.end_s for job in simulated(name, environment_of(*jobs), **settings).jobs]


def test_first_in_first_out_lets_nothing_pass():
    """A job that does not fit blocks smaller ones behind it."""
    assert ends_s("fifo", (0, 3, 10), (1, 2, 10), (2, 1, 10)) == [10, 20, 20]


def test_the_shortest_remaining_time_preempts():
    """A shorter job takes the GPUs of a longer one, which goes on later."""
    assert ends_s("srtf", (0, 4, 100), (10, 4, 20)) == [120, 30]
    assert ends_s("srtf", (0, 4, 100), (90, 4, 20)) == [100, 120]


def test_the_shortest_remaining_service_counts_gpus():
    """A short job on many GPUs may have more service ahead than a long one on few."""
    assert ends_s("srsf", (0, 2, 30), (0, 4, 20)) == [30, 50]
    assert ends_s("srtf", (0, 2, 30), (0, 4, 20)) == [50, 20]


def test_jobs_are_ordered_by_what_like_ones_took():
    """The job whose kind took less service runs first; a running one stays."""
    kinds = {"long": 100.0, "short": 10.0}

    def typed(number, submit_s, model):
        job = job_of(number, submit_s, 4, kinds[model])
        job.model = model
        return job

    jobs = [
        typed(0, 0.0, "long"), typed(1, 1.0, "short"), typed(2, 2.0, "long"), typed(3, 3.0, "short")
    ]  # fmt: skip
    environment = TiresiasEnvironment(RunParameters(), jobs, TrainingCluster.uniform(1, 4))
    ends_s = [job.end_s for job in simulated("qssf", environment).jobs]
    assert ends_s == [100.0, 110.0, 220.0, 120.0]


def test_a_job_is_demoted_when_its_service_reaches_the_limit():
    """The policy decides at that time, and the newer job of the first queue runs."""
    jobs = ((0, 4, 100), (10, 4, 20))
    assert ends_s("tiresias-events", *jobs, first_limit_s=200.0) == [120, 70]
    assert ends_s("las", *jobs, first_limit_s=50.0) == [120, 70]
    assert ends_s("tiresias-events", *jobs) == [100, 120]


def test_the_published_limits_are_the_defaults():
    """A job on 10 GPUs leaves the first queue after 325 s, and the second one after 720 s."""
    first, second = 3250, 7200
    tiresias = policy("tiresias-events")
    job = job_of(0, 0.0, 10, 1000.0)
    cluster = TrainingCluster.uniform(1, 10)
    wakes_s = []
    for service_gpu_s in (0.0, first, second):
        job.service_gpu_s = service_gpu_s
        tiresias.decide(JobsState(0.0, [job], cluster, {}))
        wakes_s.append(tiresias.wake_s(0.0))
    assert wakes_s == [first / 10, (second - first) / 10, inf]


def test_a_job_that_waits_long_is_promoted():
    """Short jobs that keep arriving delay a demoted one to the end, unless it is promoted."""
    jobs = ((0, 4, 100), *((20.0 * n, 4, 20) for n in range(1, 31)))
    waiting = ends_s("tiresias-events", *jobs, first_limit_s=100.0)
    promoted = ends_s("tiresias-events", *jobs, first_limit_s=100.0, promotion_factor=2.0)
    assert waiting[0] == max(waiting) == 700
    assert promoted[0] < max(promoted) == 700


def test_the_gittins_index_prefers_jobs_that_may_end_soon(tmp_path):
    """With two kinds of past jobs, one that outlived the short kind has a lower rank."""
    file = tmp_path / "past.csv"
    file.write_text("duration\n" + "100\n" * 9 + "10000\n", encoding="utf-8")
    gittins = policy("gittins", distribution=file, quantum_gpu_s=100.0)
    assert gittins.index_score(0.0) > gittins.index_score(150.0)
    assert gittins.index_score(0.0) == pytest.approx(0.9 / 100)
    assert gittins.index_score(20_000.0) == 0.0


def test_jobs_on_one_node_move_where_they_would_not_fit():
    """Two halves on two nodes make room for a job that needs a whole one."""
    environment = environment_of((0, 2, 50), (0, 2, 100), (0, 4, 10), (60, 4, 10), nodes=2)
    result = simulated("tiresias-events", environment, consolidated=True)
    node_of = environment.cluster.node_of
    for span in result.spans:
        assert len({node_of[gpu] for gpu in span.gpus}) == 1


@given(name=st.sampled_from(EVENT_POLICIES), seed=st.integers(0, 100))
def test_every_job_gets_exactly_its_service(name, seed):
    """Preemption loses nothing, and no job ends before its duration has passed."""
    environment = generated(seed)
    result = simulated(name, environment)
    for job, record in zip(environment.jobs, result.jobs, strict=True):
        assert record.service_gpu_s == pytest.approx(job.duration_s * job.gpus)
        assert record.jct_s >= job.duration_s - 1e-6


@needs_data
def test_the_sixty_jobs_end_as_published():
    """All lines of oracle 14 hold."""
    (oracle,) = (oracle for oracle in ORACLES if oracle.number == 14)
    comparisons = list(oracle.compare(DATA))
    assert len(comparisons) == 13
    assert [comparison.text for comparison in comparisons if not comparison.holds] == []
