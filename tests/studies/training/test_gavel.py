"""Policies of time shares, and the environment of Gavel's simulator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.document_reader import DocumentError
from studies.oracles.gavel import EXACT, different_jobs, run
from studies.training.cluster import TrainingCluster
from studies.training.environment import WorkloadSource
from studies.training.environments.gavel import (
    GavelEnvironment,
    GavelEnvironmentParameters,
    GavelJob,
)
from studies.training.environments.gavel_files import read_workload
from studies.training.environments.gavel_throughputs import THROUGHPUTS_FILE, Throughputs
from studies.training.errors import JobsError
from studies.training.policy import JobsState
from tests.data_of_others import DATA, needs_data
from tests.studies.training.harness import policy, simulated

PARAMETERS = GavelEnvironmentParameters()
POLICIES = (
    "gavel-fifo", "isolated", "max-min", "themis", "min-makespan", "max-throughput", "gandiva",
)  # fmt: skip


def job_of(name, *, gpus=1, steps=7200, packed_rps=0.8, weight=1.0, alone_rps=1.0):
    pairs = {("m", gpus): (packed_rps, packed_rps)}
    return GavelJob(
        name=name, model="m", submit_s=0.0, gpus=gpus, steps=steps, weight_ratio=weight,
        throughputs=Throughputs(alone_rps, pairs),
    )  # fmt: skip


def environment_of(*jobs, gpus=1):
    return GavelEnvironment(PARAMETERS, list(jobs), TrainingCluster.uniform(1, gpus))


def shares(name, *jobs, gpus=1, now_s=0.0):
    return policy(name).time_shares(now_s, jobs, TrainingCluster.uniform(1, gpus))


def test_a_round_ends_with_its_last_job():
    """A job of 100 steps ends after 100 s, and the next round begins then."""
    result = simulated("isolated", environment_of(job_of("a", steps=100), job_of("b", steps=360)))
    assert sorted(job.end_s for job in result.jobs) == [100, 460]


def test_a_step_that_is_longer_than_a_round_is_reported():
    """Such a job would never end."""
    with pytest.raises(JobsError, match=r"job a: a step takes 500 s and a round 360 s, .* round_s"):
        simulated("isolated", environment_of(job_of("a", alone_rps=0.002)))


def test_equal_shares_take_turns():
    """Two equal jobs on one GPU end one round apart."""
    result = simulated("isolated", environment_of(job_of("a"), job_of("b")))
    assert sorted(job.end_s for job in result.jobs) == [14040, 14400]


def test_isolated_and_max_min_count_gpus_and_weights():
    """A job of two GPUs has half the time of a job of one; a weight multiplies it."""
    jobs = (job_of("a"), job_of("b"), job_of("c", gpus=2), job_of("d", gpus=2))
    expected = {"a": 0.5, "b": 0.5, "c": 0.25, "d": 0.25}
    assert shares("isolated", *jobs, gpus=2) == expected
    assert shares("max-min", *jobs, gpus=2) == expected
    assert shares("max-min", job_of("a", weight=3.0), job_of("b")) == {"a": 0.75, "b": 0.25}


def test_the_makespan_is_that_of_the_work_or_of_the_longest_job():
    """Shares are remaining times over it."""
    jobs = (job_of("a", steps=900), job_of("b", steps=300))
    assert shares("min-makespan", *jobs) == pytest.approx({"a": 0.75, "b": 0.25})
    assert shares("min-makespan", *jobs, gpus=2) == pytest.approx({"a": 1.0, "b": 1 / 3})


def test_throughput_goes_first_to_the_fastest_jobs():
    """Full shares by steps per second and GPU; what is left goes to the next one."""
    jobs = (job_of("slow", alone_rps=0.5), job_of("fast", alone_rps=4.0, gpus=2), job_of("next"))
    assert shares("max-throughput", *jobs, gpus=3) == {"fast": 1.0, "next": 1.0, "slow": 0.0}


@given(steps=st.lists(st.integers(1, 10**6), min_size=1, max_size=8), gpus=st.integers(1, 4))
def test_the_worst_fairness_is_minimal(steps, gpus):
    """The shares fit, no other shares are fairer to the worst job, and no GPU is left over."""
    jobs = [job_of(str(number), steps=count) for number, count in enumerate(steps)]
    ratios = shares("themis", *jobs, gpus=gpus)
    assert max(ratios.values()) <= 1.0 + 1e-9
    assert sum(ratios.values()) == pytest.approx(min(gpus, len(jobs)))
    alone_ratio = min(1.0, gpus / len(jobs))  # all jobs arrive at once: isolated is the optimum
    assert min(ratios.values()) >= alone_ratio - 1e-6


def test_gpus_that_no_share_claims_are_not_idle():
    """A job of one GPU runs next to a job of three on four, also when it has no share."""
    jobs = (
        job_of("wide", gpus=3, alone_rps=9.0),
        job_of("none", gpus=2, alone_rps=4.0),
        job_of("small", alone_rps=0.5),
    )
    environment = environment_of(*jobs, gpus=4)
    decided = policy("max-throughput").decide(JobsState(0.0, jobs, environment.cluster, {}))
    assert sorted(decided) == ["small", "wide"]


def test_fifo_replaces_an_ended_job_by_the_next_that_fits_beside_earlier_ones():
    """Jobs that arrived after the ended one do not count, so GPUs are allocated twice."""
    fifo, cluster = policy("gavel-fifo"), TrainingCluster.uniform(1, 2)
    a, b, c, d = job_of("a"), job_of("b"), job_of("c", gpus=2), job_of("d")
    assert sorted(fifo.time_shares(0.0, (a, b, c, d), cluster)) == ["a", "b"]
    assert sorted(fifo.time_shares(1.0, (b, c, d), cluster)) == ["b", "c"]
    assert sorted(fifo.time_shares(2.0, (c, d), cluster)) == ["c", "d"]


def test_idle_gpus_wait_for_the_next_arrival_before_fifo_admits_anyone():
    """Shares are computed again after 1,920 s, at once only if no job is still to arrive."""
    jobs = [job_of(name, steps=100) for name in ("early", "waits", "late")]
    for job, submit_s in zip(jobs, (10.0, 20.0, 700.0), strict=True):
        job.submit_s = submit_s
    result = simulated("gavel-fifo", environment_of(*jobs, gpus=1))
    ends_s = {job.name: job.end_s for job in result.jobs}
    assert ends_s == {"early": 110.0, "waits": 800.0, "late": 900.0}


def test_fifo_does_not_start_a_job_without_a_share():
    """Nothing passes the first job that does not fit, even if GPUs are idle."""
    jobs = (job_of("a"), job_of("b", gpus=2), job_of("c"))
    environment = environment_of(*jobs, gpus=2)
    assert list(policy("gavel-fifo").decide(JobsState(0.0, jobs, environment.cluster, {}))) == ["a"]


@pytest.mark.parametrize(("packed_rps", "end_s"), [(0.8, 9000), (0.4, 14400)])
def test_jobs_are_paired_only_if_that_is_faster(packed_rps, end_s):
    """Together at 80 % two jobs end sooner than one after the other; at 40 % they take turns."""
    jobs = [job_of(name, packed_rps=packed_rps) for name in "ab"]
    result = simulated("gandiva", environment_of(*jobs))
    assert max(job.end_s for job in result.jobs) == end_s


@given(seed=st.integers(0, 50), name=st.sampled_from(POLICIES))
def test_all_jobs_complete_their_steps(seed, name):
    """No job is lost, and without pairs none has less than its time alone."""
    environment = GavelEnvironment.load(PARAMETERS, WorkloadSource(nodes=2, seed=seed))
    result = simulated(name, environment)
    for job, record in zip(environment.jobs, result.jobs, strict=True):
        assert job.remaining_steps == 0
        assert record.service_gpu_s >= job.steps / job.throughput_rps() * job.gpus - 1e-6


def write(tmp_path, row):
    table = tmp_path / THROUGHPUTS_FILE
    table.parent.mkdir(parents=True)
    table.write_text("""{"v100": {"('m', 1)": {"null": 2.0}}}""", encoding="utf-8")
    trace = tmp_path / "a.trace"
    trace.write_text("\t".join(row), encoding="utf-8")
    return trace


GOOD = ("m", "run", "dir", "-n", "1", "50", "1", "1", "-1.0", "7")


def test_a_trace_is_read_with_its_throughputs(tmp_path):
    """Jobs have the number of their line as name."""
    (row,) = read_workload(write(tmp_path, GOOD), tmp_path, "v100")
    assert (row.job.name, row.job.submit_s, row.job.steps, row.throughputs.alone_rps) == (
        "0",
        7.0,
        50,
        2.0,
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("x", *GOOD[1:]), "line 1: column type: 'x' on 1 GPUs has no throughput on v100"),
        ((*GOOD[:5], "0", *GOOD[6:]), "line 1: column steps: '0' is no whole number from 1"),
        ((*GOOD[:7], "0", *GOOD[8:]), "line 1: column weight: is 0; a job needs a weight above 0"),
        (GOOD[:9], "line 1: has 9 values for 10 columns"),
        ((), "the file: has no job"),
    ],
)
def test_a_wrong_row_is_reported(tmp_path, row, message):
    """Line and column are named."""
    with pytest.raises(DocumentError) as raised:
        read_workload(write(tmp_path, row), tmp_path, "v100")
    assert message in str(raised.value)


def test_throughputs_are_needed(tmp_path):
    """A missing folder or GPU model is reported with its option."""
    trace = write(tmp_path, GOOD)
    with pytest.raises(JobsError, match="name a folder with --data"):
        read_workload(trace, None, "v100")
    with pytest.raises(JobsError, match="gpu_model=a100: there are v100"):
        read_workload(trace, tmp_path, "a100")


@needs_data
@pytest.mark.parametrize(
    ("name", "mean_s"), [("min-makespan", 236.289076), ("gavel-fifo", 281.288232)]
)
def test_the_published_small_trace_is_repeated(name, mean_s):
    """20 jobs on 4 GPUs, to the digit."""
    assert run(DATA, name, "small_test", 1).mean_jct_s == pytest.approx(mean_s)


@needs_data
@pytest.mark.slow
def test_fifo_with_idle_gpus_is_repeated():
    """96 jobs on 4 GPUs, to the digit."""
    mean_s = run(DATA, "gavel-fifo", "max_min_fairness", 1).mean_jct_s
    assert mean_s == pytest.approx(195013.0497)


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_every_job_completes_at_its_published_time(name):
    """96 jobs on 16 GPUs, each within a millisecond."""
    result = run(DATA, name, "max_min_fairness", 4)
    assert different_jobs(DATA, name, result) == 0
