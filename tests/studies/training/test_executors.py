"""Graphs of tasks on executors, their policies, and the distilled tree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.oracles.distillation import fidelity_ratio, grown
from studies.training.cluster import TrainingCluster
from studies.training.engine import simulate_jobs
from studies.training.environment import WorkloadSource
from studies.training.environments.executor_jobs import ExecutorJob, TaskStage
from studies.training.environments.executors import ExecutorEnvironment, ExecutorParameters
from studies.training.errors import ImpossiblePlacementError, JobsError
from studies.training.idle_executors import IdleExecutor
from studies.training.pair_features import PairFeatures, TreeSplit, prefers_first
from tests.studies.training.harness import Scripted, policy, simulated

POLICIES = ("dag-fifo", "dag-fair", "dag-shortest", "dag-tree")


def job_of(name, *stages, submit_s=0.0):
    return ExecutorJob(name=name, model="graph", submit_s=submit_s, gpus=1, stages=stages)


def chain(*tasks_s, tasks=1):
    return tuple(
        TaskStage(tasks, task_s, (number - 1,) if number else ())
        for number, task_s in enumerate(tasks_s)
    )


def environment_of(*jobs, executors=2, move_s=2.0, warmup_s=0.0):
    parameters = ExecutorParameters(move_s=move_s, warmup_s=warmup_s)
    return ExecutorEnvironment(parameters, list(jobs), TrainingCluster.uniform(executors, 1))


def ends_s(name, *jobs, **size):
    return [job.end_s for job in simulated(name, environment_of(*jobs, **size)).jobs]


@pytest.mark.parametrize("name", POLICIES)
def test_a_chain_takes_the_sum_of_its_stages(name):
    """The executor that comes first is late by a move, and then stays."""
    assert ends_s(name, job_of("a", *chain(3.0, 4.0)), executors=1) == [9.0]


def test_tasks_of_a_stage_run_at_the_same_time():
    """Three tasks on two executors take two turns; the child waits for all of them."""
    job = job_of("a", TaskStage(3, 5.0, ()), TaskStage(1, 1.0, (0,)))
    assert ends_s("dag-fifo", job) == [13.0]


def test_fifo_serves_the_first_job_and_fair_shares_halve():
    """Under FIFO the second job waits for all tasks of the first one."""
    jobs = [job_of(name, TaskStage(4, 5.0, ())) for name in "ab"]
    assert ends_s("dag-fifo", *jobs, move_s=0.0) == [10.0, 20.0]
    jobs = [job_of(name, TaskStage(4, 5.0, ())) for name in "ab"]
    assert ends_s("dag-fair", *jobs, move_s=0.0) == [20.0, 20.0]


@pytest.mark.parametrize(
    ("name", "expected_s"),
    [("dag-fifo", [11.0, 16.0]), ("dag-fair", [11.0, 10.0]), ("dag-shortest", [16.0, 5.0])],
)
def test_executors_wait_with_their_job_for_running_parents(name, expected_s):
    """Under FIFO both stay with the first job; a fair share is one; `dag-shortest` uses both."""
    jobs = (
        job_of("first", TaskStage(1, 10.0, ()), TaskStage(2, 1.0, (0,))),
        job_of("second", TaskStage(2, 5.0, ())),
    )
    assert ends_s(name, *jobs, move_s=0.0) == expected_s


def test_the_first_task_of_an_executor_in_a_job_takes_longer():
    """Its second one does not."""
    assert ends_s("dag-fifo", job_of("a", *chain(3.0, 4.0)), executors=1, warmup_s=1.0) == [10.0]


def test_an_executor_moves_while_it_waits():
    """It is there when the parent ends, so the child begins without a delay."""
    job = job_of("a", TaskStage(1, 10.0, ()), TaskStage(2, 1.0, (0,)))
    assert ends_s("dag-fifo", job, move_s=2.0) == [13.0]


def test_the_shortest_rest_comes_first():
    """A short job passes a long one."""
    jobs = (job_of("long", TaskStage(4, 5.0, ())), job_of("short", TaskStage(2, 5.0, ())))
    assert ends_s("dag-shortest", *jobs, move_s=0.0) == [15.0, 5.0]


@pytest.mark.slow
@given(seed=st.integers(0, 20), name=st.sampled_from(POLICIES), executors=st.integers(1, 60))
def test_no_job_is_faster_than_its_path_or_its_work(seed, name, executors):
    """All tasks end, and the time that executors spend is at least that of the tasks."""
    parameters = ExecutorParameters(job_count=4)
    environment = ExecutorEnvironment.load(
        parameters, WorkloadSource(nodes=executors, gpus=1, seed=seed)
    )
    least_s = [(job.critical_path_s, job.remaining_work_s) for job in environment.jobs]
    result = simulated(name, environment)
    for job, record, (path_s, work_s) in zip(environment.jobs, result.jobs, least_s, strict=True):
        assert job.open_tasks == 0
        assert record.jct_s >= path_s - 1e-6
        assert record.service_gpu_s >= work_s * (1 - 1e-9)


def test_a_busy_executor_is_not_taken():
    """The message names time, job and node."""
    answers = iter([{"a": (0,)}, {"b": (0,)}])
    jobs = (job_of("a", *chain(9.0)), job_of("b", *chain(9.0), submit_s=1.0))
    with pytest.raises(ImpossiblePlacementError, match="at 1 s: job a: the executor of node 0"):
        simulate_jobs(environment_of(*jobs), Scripted(lambda *_: next(answers)), "scripted")


def test_a_workload_file_is_refused(tmp_path):
    """There is no trace form."""
    with pytest.raises(JobsError, match="reads no workload; omit it"):
        ExecutorEnvironment.load(
            ExecutorParameters(), WorkloadSource(workload=tmp_path / "jobs.csv")
        )


def test_a_tree_separates_what_one_feature_decides():
    """A limit between two groups of rows is found, and each leaf is right."""
    rows = np.zeros((200, len(PairFeatures._fields)))
    rows[:, PairFeatures._fields.index("work_ratio")] = np.linspace(-1, 1, 200)
    tree = grown(rows, rows[:, PairFeatures._fields.index("work_ratio")] <= 0, 4)
    assert isinstance(tree, TreeSplit)
    assert all(prefers_first(PairFeatures(*row), tree) == (row[2] <= 0) for row in rows[::7])


@pytest.mark.slow
def test_the_tree_chooses_as_its_teacher_does():
    """At least nine of ten choices on seeds that it was not grown from."""
    assert fidelity_ratio() >= 0.9


def test_the_tree_prefers_the_shorter_job():
    """A job with a tenth of the tasks, which are shorter, wins in either order."""
    jobs = [job_of("long", TaskStage(100, 5.0, ())), job_of("short", TaskStage(10, 0.5, ()))]
    tree, counts = policy("dag-tree"), {"long": 0, "short": 0}
    for candidates in (jobs, jobs[::-1]):
        assert tree.choose(IdleExecutor(candidates, counts, None, 2)).name == "short"
