"""The queue of a stage: order by deadline, removal in batches."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from scheduler.dispatch.queues import JobQueue


@dataclass(frozen=True)
class Job:
    deadline_ms: float
    joined: int


@given(deadlines=st.lists(st.integers(0, 8), min_size=1, max_size=30), batch=st.integers(1, 8))
def test_jobs_leave_by_deadline_and_then_in_the_order_they_joined(deadlines, batch):
    """The order is that of a stable sort by deadline; no job is lost, no batch is too large."""
    queue: JobQueue[Job] = JobQueue()
    jobs = [Job(float(deadline), i) for i, deadline in enumerate(deadlines)]
    for job in jobs:
        queue.add(job)
    removed = []
    while queue.jobs:
        assert queue.deadline_ms == min(job.deadline_ms for job in queue.jobs)
        jobs_of_run = queue.take(batch)
        assert len(jobs_of_run) == batch or not queue.jobs
        removed += jobs_of_run
    assert removed == sorted(jobs, key=lambda job: job.deadline_ms)
