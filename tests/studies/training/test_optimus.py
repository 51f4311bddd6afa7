"""Optimus: GPUs by marginal gain."""

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from studies.training.cluster import TrainingCluster
from studies.training.job import JobPlacement
from studies.training.policy import JobsState
from tests.studies.training.harness import policy, pollux_job


def counts(jobs, gpus, placements=None):
    optimus = policy("optimus")
    cluster = TrainingCluster.uniform(1, gpus)
    decided = optimus.decide(JobsState(0.0, jobs, cluster, placements or {}))
    return {name: len(placement.gpus) for name, placement in decided.items()}


def remaining_s(job, gpus):
    return job.iteration_s(gpus) * job.remaining_iterations


@given(
    models=st.lists(
        st.sampled_from(["generated-small", "generated-medium"]), min_size=1, max_size=3
    ),
    gpus=st.integers(1, 8),
)
def test_no_gpu_is_better_spent_elsewhere(models, gpus):
    """With gains that fall, the greedy choice minimises the sum of remaining times."""
    jobs = [pollux_job(f"j{i}", model=model) for i, model in enumerate(models)]
    gpu_counts = counts(jobs, gpus)
    served = [job for job in jobs if job.name in gpu_counts]
    assert len(served) == min(len(jobs), gpus)
    gains = {
        job.name: [remaining_s(job, n) - remaining_s(job, n + 1) for n in range(1, 8)]
        for job in served
    }
    if any(low < high for gain in gains.values() for low, high in pairwise(gain)):
        return  # a gain that rises again stops the greedy choice before it
    best_s = min(
        sum(remaining_s(job, n) for job, n in zip(served, split, strict=True))
        for split in product(range(1, gpus + 1), repeat=len(served))
        if sum(split) <= gpus
    )
    assert sum(remaining_s(job, gpu_counts[job.name]) for job in served) <= best_s * (1 + 1e-12)


def test_jobs_come_before_gains():
    """Every job has a GPU before any has two; without enough GPUs the first jobs run."""
    jobs = [pollux_job(f"j{i}") for i in range(5)]
    assert counts(jobs, 5) == dict.fromkeys(("j0", "j1", "j2", "j3", "j4"), 1)
    assert counts(jobs, 3) == dict.fromkeys(("j0", "j1", "j2"), 1)


def test_a_job_of_unchanged_size_stays():
    """Only jobs whose number of GPUs changed are placed again."""
    jobs = [pollux_job(f"j{i}") for i in range(4)]
    placements = {"j2": JobPlacement((0,))}
    optimus = policy("optimus")
    decided = optimus.decide(JobsState(0.0, jobs, TrainingCluster.uniform(2, 2), placements))
    assert decided["j2"] == JobPlacement((0,))


def test_the_prediction_for_one_gpu_accumulates():
    """Also a batch that fits one GPU is predicted in two steps, whose parts both compute."""
    job = pollux_job(model="generated-small", batch=64)
    step_s, sync_s = job.tables.step_s((1,), 32)
    assert job.iteration_s(1) == 2 * step_s - sync_s
    assert job.iteration_s(2) == job.tables.step_s((2,), 32)[0]


def test_iterations_are_interpolated_between_measured_batches():
    """Halfway between two measured batch sizes are the mean iterations of both."""
    low, middle, high = (pollux_job(batch=batch) for batch in (256, 384, 512))
    for job in (low, middle, high):
        job.epoch = 2
    mean = (low.remaining_iterations + high.remaining_iterations) / 2
    assert low.remaining_iterations > middle.remaining_iterations == mean
