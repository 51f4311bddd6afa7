"""Tiresias: two queues by attained service."""

from studies.training.cluster import TrainingCluster
from studies.training.job import JobPlacement
from studies.training.policy import JobsState
from tests.studies.training.harness import policy, pollux_job

CLUSTER = TrainingCluster.uniform(2, 4)


def decided(tiresias, jobs):
    placements = {job.name: job.placement for job in jobs if job.running}
    return tiresias.decide(JobsState(0.0, jobs, CLUSTER, placements))


def test_a_large_job_does_not_block_smaller_ones():
    """A job that does not fit is skipped, and what follows may run."""
    jobs = [pollux_job("a", gpus=6), pollux_job("b", gpus=4), pollux_job("c", gpus=2)]
    placements = decided(policy("tiresias"), jobs)
    assert {name: len(p.gpus) for name, p in placements.items()} == {"a": 6, "c": 2}


def test_service_beyond_the_threshold_costs_the_place():
    """A job of the second queue loses its GPUs to a newer job of the first."""
    tiresias = policy("tiresias", threshold_gpu_s=100.0)
    old, new = pollux_job("old", gpus=8), pollux_job("new", gpus=1)
    old.placement = JobPlacement(tuple(range(8)))
    assert decided(tiresias, [old]).keys() == {"old"}
    assert decided(tiresias, [old, new]).keys() == {"old"}
    old.service_gpu_s = 100.0
    assert decided(tiresias, [old, new]).keys() == {"new"}


def test_the_published_threshold_is_the_default():
    """16 GPU-hours end the first queue, and not a second less."""
    tiresias = policy("tiresias")
    old, new = pollux_job("old", gpus=8), pollux_job("new", gpus=1)
    old.placement = JobPlacement(tuple(range(8)))
    old.service_gpu_s = 16 * 3600.0 - 1.0
    assert decided(tiresias, [old, new]).keys() == {"old"}
    old.service_gpu_s += 1.0
    assert decided(tiresias, [old, new]).keys() == {"new"}


def test_new_jobs_take_the_emptiest_node_and_running_ones_stay():
    """A placement changes only by losing all GPUs."""
    running, new = pollux_job("running", gpus=1), pollux_job("new", gpus=3)
    running.placement = JobPlacement((2,))
    placements = decided(policy("tiresias"), [running, new])
    assert placements == {"running": JobPlacement((2,)), "new": JobPlacement((4, 5, 6))}
