"""AntMan, and the environment of Muri's simulator: events that cost, and two classes of jobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.document_reader import DocumentError
from studies.oracles.muri import different_jobs, run
from studies.training.cluster import TrainingCluster
from studies.training.environment import WorkloadSource
from studies.training.environments.muri import MuriEnvironment, MuriEnvironmentParameters, MuriJob
from studies.training.environments.muri_files import read_workload
from studies.training.job import JobPlacement
from studies.training.policy import JobsState
from tests.data_of_others import DATA, needs_data
from tests.studies.training.harness import policy, simulated

HEADER = (
    "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,"
    "resource_time_0,resource_time_1,resource_time_2,priority\n"
)


def job_of(name, *, gpus=4, submit_s=0.0, iterations=100, guaranteed=True, resources_s=None):
    return MuriJob(
        name=name,
        model="m",
        submit_s=submit_s,
        gpus=gpus,
        iterations=iterations,
        iteration_s=1.015,
        resources_s=resources_s or (0.1, 0.8, 0.1),
        startup_s=5.0,
        guaranteed=guaranteed,
    )


def environment_of(*jobs, nodes=1, gpus=4):
    cluster = TrainingCluster.uniform(nodes, gpus)
    return MuriEnvironment(MuriEnvironmentParameters(), list(jobs), cluster)


def generated(seed):
    return MuriEnvironment.load(MuriEnvironmentParameters(), WorkloadSource(nodes=2, seed=seed))


def ends_s(name, *jobs, **size):
    return [job.end_s for job in simulated(name, environment_of(*jobs, **size)).jobs]


def test_an_event_costs_running_jobs_their_start_up():
    """The arrival of a second job delays the first one; nothing else happens to it."""
    assert ends_s("srtf", job_of("a")) == pytest.approx([101.5])
    late = job_of("b", gpus=1, submit_s=50.0, iterations=1)
    assert ends_s("srtf", job_of("a", gpus=1), late) == pytest.approx([101.5 + 5 + 1.015, 51.015])


def test_an_opportunistic_job_runs_on_what_is_left():
    """A phase of 0.75 s on a GPU that is free for 0.2 s of an iteration takes four of them."""
    both = (job_of("a", iterations=1000), job_of("b", guaranteed=False, resources_s=(0, 0.75, 0)))
    assert ends_s("antman", *both) == pytest.approx([1015 + 5, 406])


@pytest.mark.parametrize(
    ("resources_s", "periods"),
    [
        ((0.25, 0, 0), 1),  # within the 0.5 s of GPU and network
        ((0.625, 0, 0), 2),
        ((0.25, 0.25, 0), 1),  # the rest of the window is network, where the GPU is free
        ((0.25, 0.375, 0), 2),
        ((0, 0.25, 0.625), 1),  # the rest is storage and GPU, where the network is free
        ((0, 0.625, 0.625), 2),
        ((0, 0, 0.5), 0),  # ends while the other one is on storage
        ((0, 0, 0.625), 1),
    ],
)
def test_phases_run_in_windows_of_other_resources(resources_s, periods):
    """Next to phases of 0.5, 0.25 and 0.25 s; a slow-down is at least 1."""
    job = job_of("b", guaranteed=False, resources_s=resources_s, iterations=10)
    first = job_of("a", iterations=1000, resources_s=(0.5, 0.25, 0.25))
    expected_s = 10 * 1.015 * max(periods, 1)
    assert ends_s("antman", first, job)[1] == pytest.approx(expected_s)


def test_a_guaranteed_job_waits_for_no_opportunistic_one():
    """It starts at once on the same GPUs; the opportunistic one is slower from then on."""
    first = job_of("a", guaranteed=False, iterations=1000)
    start_s = simulated("antman", environment_of(first, job_of("b", submit_s=10.0))).jobs[1].start_s
    assert start_s == 10.0


def decided(*jobs, nodes=2, gpus=4, antman=None):
    cluster = TrainingCluster.uniform(nodes, gpus)
    placements = {job.name: job.placement for job in jobs if job.running}
    return (antman or policy("antman")).decide(JobsState(0.0, jobs, cluster, placements))


def test_a_waiting_guaranteed_job_reserves_gpus():
    """A job that needs a whole node keeps what is free of it from smaller ones behind it."""
    running = [job_of("a", gpus=2), job_of("b", gpus=2)]
    running[0].placement = JobPlacement((0, 1))
    running[1].placement = JobPlacement((4, 5))
    large, small = job_of("large", gpus=4), job_of("small", gpus=2)
    antman = policy("antman")
    assert decided(*running, large, small, antman=antman).keys() == {"a", "b", "small"}
    small.placement = JobPlacement((6, 7))
    placements = decided(running[1], large, small, antman=antman)
    assert placements["large"] == JobPlacement((2, 3, 0, 1))


def test_a_job_larger_than_a_node_takes_whole_nodes():
    """Part of a node is not enough, and whole nodes are reserved one by one."""
    running, large = job_of("a", gpus=1), job_of("large", gpus=8)
    running.placement = JobPlacement((0,))
    antman = policy("antman")
    assert decided(running, large, antman=antman).keys() == {"a"}
    assert len(decided(large, antman=antman)["large"].gpus) == 8


@given(seed=st.integers(0, 100))
def test_guaranteed_jobs_share_with_opportunistic_ones_only(seed):
    """No GPU has two jobs of one class at a time, and all jobs end."""
    environment = generated(seed)
    result = simulated("antman", environment)
    for guaranteed in (True, False):
        ends = {}
        for span in sorted(result.spans, key=lambda span: span.begin_s):
            if environment.jobs[span.job].guaranteed == guaranteed:
                for gpu in span.gpus:
                    assert ends.get(gpu, 0.0) <= span.begin_s
                    ends[gpu] = span.end_s


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,8,0,1,vgg11,1,1,1,1,0", "line 2: column model_name: there is no model 'vgg11'"),
        ("0,3,0,1,vgg16,1,1,1,1,0", "line 2: column num_gpu: '3' has no start-up time"),
        ("0,8,x,1,vgg16,1,1,1,1,0", "line 2: column submit_time: 'x' is no number"),
        ("0,8,0,1,vgg16,1,1,1,1,2", "line 2: column priority: '2' is no whole number from 0 to 1"),
    ],
)
def test_a_wrong_row_is_reported(tmp_path, row, message):
    """Line and column are named."""
    file = tmp_path / "trace.csv"
    file.write_text(HEADER + row + "\n", encoding="utf-8")
    with pytest.raises(DocumentError) as raised:
        read_workload(file)
    assert message in str(raised.value)


def test_a_trace_without_jobs_is_reported(tmp_path):
    """The columns' names alone are no workload."""
    file = tmp_path / "trace.csv"
    file.write_text(HEADER, encoding="utf-8")
    with pytest.raises(DocumentError, match="has no job"):
        read_workload(file)


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["srtf", "srsf", "tiresias-events"])
def test_every_job_completes_at_the_published_time(name):
    """All 992 jobs of Muri's trace, with Muri's own quirks."""
    assert different_jobs(DATA, name, "trace3", run(DATA, name, "trace3")) == 0


def test_themis_runs_first_the_job_that_has_received_least():
    """A second job takes the GPUs of the first one as soon as it arrives, and both end."""
    first, second = job_of("a", iterations=1000), job_of("b", iterations=1000, submit_s=100.0)
    jobs = simulated("themis-events", environment_of(first, second)).jobs
    assert jobs[1].start_s == 100.0
    assert jobs[1].end_s < jobs[0].end_s


def test_themis_keeps_a_job_on_one_node():
    """Two free halves of nodes do not hold a job of a whole one."""
    jobs = [job_of("a", gpus=3), job_of("b", gpus=3), job_of("c", gpus=2)]
    cluster = TrainingCluster.uniform(2, 4)
    decided = policy("themis-events").decide(JobsState(0.0, jobs, cluster, {}))
    assert sum(len(placement.gpus) for placement in decided.values()) <= 6
    for placement in decided.values():
        assert len({cluster.node_of[gpu] for gpu in placement.gpus}) == 1
