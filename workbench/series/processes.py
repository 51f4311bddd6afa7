"""Jobs in several processes; outcomes in the order in which they end."""

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children, get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from typing import Any, Generic, TypeVar

_POLL_S = 0.1  # of the progress, and of `stop`
_DIED = (
    "its process ended by itself; was it killed for its memory? try with fewer processes (--jobs)"
)

JobT = TypeVar("JobT")
OutcomeT = TypeVar("OutcomeT")
StopCheck = Callable[[], bool]
RunProgress = Callable[[int], None]
"""Callback with the completed part of a job, in the unit of the job."""
JobProgress = Callable[[int, int], None]
"""Callback with the number of a job and its completed part."""
_ProgressQueue = SimpleQueue[tuple[int, int]]


class SeriesWorker(ABC, Generic[JobT, OutcomeT]):
    """Execution of the jobs of a series; it is sent to each process once."""

    def prepare(self) -> None:
        """Prepare the process that runs jobs."""

    @abstractmethod
    def run(self, job: JobT, *, stop: StopCheck, progress: RunProgress) -> OutcomeT:
        """Run a job; an error that a user can cause is part of the outcome."""

    @abstractmethod
    def lost(self, job: JobT, reason: str) -> OutcomeT:
        """Return the outcome of a job whose process ended."""


def run_series(
    jobs: Sequence[JobT],
    worker: SeriesWorker[JobT, OutcomeT],
    *,
    processes: int,
    stop: StopCheck,
    progress: JobProgress,
) -> Iterator[tuple[int, OutcomeT]]:
    """Run the jobs; yield the number and the outcome of each that began, as it ends.

    Args:
        jobs: jobs, in the order in which they begin.
        worker: worker that runs them.
        processes: maximum number of processes; 1: only this one.
        stop: function that returns true when no further job may begin; running jobs then end as
            their worker can.
        progress: function that is called at intervals with the progress of the jobs.
    """
    if processes == 1 or len(jobs) == 1:
        worker.prepare()
        for number, job in enumerate(jobs):
            if stop():
                return
            yield number, worker.run(job, stop=stop, progress=partial(progress, number))
    else:
        yield from _run_spawned(jobs, worker, min(processes, len(jobs)), stop, progress)


def _run_spawned(
    jobs: Sequence[JobT],
    worker: SeriesWorker[JobT, OutcomeT],
    processes: int,
    stop: StopCheck,
    progress: JobProgress,
) -> Iterator[tuple[int, OutcomeT]]:
    context = get_context("spawn")
    stop_event = context.Event()
    progress_queue: _ProgressQueue = context.SimpleQueue()
    earlier_children = set(active_children())
    with ProcessPoolExecutor(
        processes,
        mp_context=context,
        initializer=_prepare,
        initargs=(worker, stop_event, progress_queue),
    ) as pool:
        try:
            pending: dict[Future[OutcomeT], int] = {}
            with _ctrl_c_blocked():  # the processes begin with it blocked, too
                for number, job in enumerate(jobs):
                    pending[pool.submit(_run_in_process, number, job)] = number
            while pending:
                done, _ = wait(pending, _POLL_S, FIRST_COMPLETED)
                while not progress_queue.empty():
                    progress(*progress_queue.get())
                if stop() and not stop_event.is_set():
                    stop_event.set()
                    for future in [future for future in pending if future.cancel()]:
                        del pending[future]
                for future in done & pending.keys():
                    number = pending.pop(future)
                    yield number, _outcome(future, jobs[number], worker)
        except BaseException:
            # The caller has ended: nothing waits for the runs that go on.
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(active_children()) - earlier_children:
                child.terminate()
            raise


@contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """Let SIGINT wait while inside."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _outcome(future: Future[OutcomeT], job: JobT, worker: SeriesWorker[JobT, OutcomeT]) -> OutcomeT:
    try:
        return future.result()
    except BrokenProcessPool:
        return worker.lost(job, _DIED)


# -- in a spawned process ------------------------------------------------------------------------


class _Process:
    """Arguments of a spawned process."""

    worker: SeriesWorker[Any, Any]
    stop_event: Event
    progress_queue: _ProgressQueue


def _prepare(
    worker: SeriesWorker[Any, Any], stop_event: Event, progress_queue: _ProgressQueue
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal signals all; the parent decides
    worker.prepare()
    _Process.worker = worker
    _Process.stop_event = stop_event
    _Process.progress_queue = progress_queue


def _run_in_process(number: int, job: Any) -> Any:
    def progress(done: int) -> None:
        _Process.progress_queue.put((number, done))

    return _Process.worker.run(job, stop=_Process.stop_event.is_set, progress=progress)
