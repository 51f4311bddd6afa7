"""Jobs in several processes; outcomes in the order in which they end."""

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import active_children, get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import Document
from workbench.simulation.engine import Stop
from workbench.simulation.runs.job import Outcome, SimulationJob
from workbench.simulation.runs.runner import run

_POLL_S = 0.1  # of the progress, and of `stop`
_DIED = (
    "its process ended by itself; was it killed for its memory? try with fewer processes (--jobs)"
)

JobProgress = Callable[[int, int], None]
"""Takes the number of a job, and how many of its requests have ended."""
_ProgressQueue = SimpleQueue[tuple[int, int]]


def run_all(
    jobs: Sequence[SimulationJob],
    documents: Sequence[Document],
    *,
    processes: int,
    stop: Stop,
    progress: JobProgress,
) -> Iterator[tuple[int, Outcome]]:
    """Run the jobs; yield the number and the outcome of each that began, as it ends.

    Args:
        jobs: they begin in this order.
        documents: of all jobs.
        processes: upper limit of processes; 1: this one.
        stop: when it returns true, no job begins, and the requests of running jobs end.
        progress: is called now and then.
    """
    if processes == 1 or len(jobs) == 1:
        catalogue = Catalogue.of(documents)
        for number, job in enumerate(jobs):
            if stop():
                return
            yield number, run(job, catalogue, stop=stop, progress=partial(progress, number))
    else:
        yield from _run_spawned(jobs, documents, min(processes, len(jobs)), stop, progress)


def _run_spawned(
    jobs: Sequence[SimulationJob],
    documents: Sequence[Document],
    processes: int,
    stop: Stop,
    progress: JobProgress,
) -> Iterator[tuple[int, Outcome]]:
    context = get_context("spawn")
    stop_event = context.Event()
    progress_queue: _ProgressQueue = context.SimpleQueue()
    earlier_children = set(active_children())
    with ProcessPoolExecutor(
        processes,
        mp_context=context,
        initializer=_prepare,
        initargs=(tuple(documents), stop_event, progress_queue),
    ) as pool:
        try:
            pending: dict[Future[Outcome], int] = {
                pool.submit(_run_in_worker, number, job): number for number, job in enumerate(jobs)
            }
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
                    yield number, _outcome(future, jobs[number])
        except BaseException:
            # The caller is gone: nothing waits for the runs that go on.
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(active_children()) - earlier_children:
                child.terminate()
            raise


def _outcome(future: Future[Outcome], job: SimulationJob) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool:
        return Outcome(job=job, result=None, failure=_DIED)


# -- in a spawned process ------------------------------------------------------------------------


class _Worker:
    """Arguments of a spawned process."""

    catalogue: Catalogue
    stop_event: Event
    progress_queue: _ProgressQueue


def _prepare(
    documents: tuple[Document, ...], stop_event: Event, progress_queue: _ProgressQueue
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal signals all; the parent decides
    _Worker.catalogue = Catalogue.of(documents)
    _Worker.stop_event = stop_event
    _Worker.progress_queue = progress_queue


def _run_in_worker(number: int, job: SimulationJob) -> Outcome:
    def progress(ended: int) -> None:
        _Worker.progress_queue.put((number, ended))

    return run(job, _Worker.catalogue, stop=_Worker.stop_event.is_set, progress=progress)
