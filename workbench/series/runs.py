"""Jobs in several processes; outcomes in the order in which they end."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from functools import partial
from typing import Generic, TypeVar

from workbench.series.executors import SeriesProcesses, ctrl_c_blocked

_DIED = (
    "its process ended by itself; was it killed for its memory? try with fewer processes (--jobs)"
)

JobT = TypeVar("JobT")
OutcomeT = TypeVar("OutcomeT")
RunProgress = Callable[[int], None]
"""Callback with the completed part of a job, in the unit of the job."""
JobProgress = Callable[[int, int], None]
"""Callback with the number of a job and its completed part."""


class SeriesWorker(ABC, Generic[JobT, OutcomeT]):
    """Execution of the jobs of a series; it is sent to the processes with each job."""

    @abstractmethod
    def run(self, job: JobT, progress: RunProgress) -> OutcomeT:
        """Run a job; an error that a user can cause is part of the outcome."""

    @abstractmethod
    def lost(self, job: JobT, reason: str) -> OutcomeT:
        """Return the outcome of a job whose process ended."""


def run_series(
    jobs: Sequence[JobT],
    worker: SeriesWorker[JobT, OutcomeT],
    *,
    processes: SeriesProcesses,
    progress: JobProgress,
) -> Iterator[tuple[int, OutcomeT]]:
    """Run the jobs; yield the number and the outcome of each, as it ends.

    Args:
        jobs: jobs, in the order in which they begin.
        worker: worker that runs them.
        processes: processes that run them; one without Dask is this one.
        progress: function that is called during the jobs that run in this process.

    Raises:
        DaskError: the Dask cluster cannot run them.
    """
    if processes.dask is None and min(processes.count, len(jobs)) <= 1:
        for number, job in enumerate(jobs):
            yield number, worker.run(job, partial(progress, number))
        return
    with processes.executor(len(jobs)) as executor:
        with ctrl_c_blocked():  # a pool starts its processes when jobs are submitted
            numbers = {
                executor.submit(worker.run, job, _unreported): number
                for number, job in enumerate(jobs)
            }
        for future in as_completed(list(numbers)):
            number = numbers.pop(future)  # Dask keeps a result as long as its future
            try:
                outcome = future.result()
            except processes.lost_errors:
                outcome = worker.lost(jobs[number], _DIED)
            yield number, outcome


def _unreported(_: int) -> None:
    """Report no progress: the job runs in another process."""
