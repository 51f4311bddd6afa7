"""Jobs in as many processes as are wanted, their outcomes as they come."""

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
from workbench.simulation.runs.job import Job, Outcome
from workbench.simulation.runs.running import Stop, run

_LOOK_EVERY_S = 0.1  # at the progress, and at whether to stop
_DIED = (
    "its process ended by itself; was it killed for its memory? try with fewer processes (--jobs)"
)

Told = Callable[[int, int], None]
"""The number of a job, and how many of its requests have ended."""
_Tidings = SimpleQueue[tuple[int, int]]


def run_all(
    jobs: Sequence[Job], documents: Sequence[Document], *, processes: int, stop: Stop, told: Told
) -> Iterator[tuple[int, Outcome]]:
    """Do the jobs; the number and the outcome of each that began, in the order in which they end.

    Args:
        jobs: what is ordered; they begin in this order.
        documents: of all jobs.
        processes: at most so many at a time; 1: this one.
        stop: when it says so, no job begins, and those that run are brought to an end.
        told: is told of the progress.
    """
    if processes == 1 or len(jobs) == 1:
        catalogue = Catalogue.of(documents)
        for number, job in enumerate(jobs):
            if stop():
                return
            yield number, run(job, catalogue, stop=stop, progress=partial(told, number))
    else:
        yield from _run_spawned(jobs, documents, min(processes, len(jobs)), stop, told)


def _run_spawned(
    jobs: Sequence[Job], documents: Sequence[Document], processes: int, stop: Stop, told: Told
) -> Iterator[tuple[int, Outcome]]:
    context = get_context("spawn")
    ending = context.Event()
    tidings: _Tidings = context.SimpleQueue()
    others = set(active_children())
    with ProcessPoolExecutor(
        processes,
        mp_context=context,
        initializer=_prepare,
        initargs=(tuple(documents), ending, tidings),
    ) as pool:
        try:
            waiting: dict[Future[Outcome], int] = {
                pool.submit(_run_here, number, job): number for number, job in enumerate(jobs)
            }
            while waiting:
                done, _ = wait(waiting, _LOOK_EVERY_S, FIRST_COMPLETED)
                while not tidings.empty():
                    told(*tidings.get())
                if stop() and not ending.is_set():
                    ending.set()
                    for future in [future for future in waiting if future.cancel()]:
                        del waiting[future]
                for future in done & waiting.keys():
                    number = waiting.pop(future)
                    yield number, _outcome(future, jobs[number])
        except BaseException:
            # Whoever asked for the outcomes is gone: nobody waits for what still runs.
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(active_children()) - others:
                child.terminate()
            raise


def _outcome(future: Future[Outcome], job: Job) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool:
        return Outcome(job=job, result=None, failure=_DIED)


# -- in a spawned process ------------------------------------------------------------------------


class _Here:
    """What a spawned process was handed when it began."""

    catalogue: Catalogue
    ending: Event
    tidings: _Tidings


def _prepare(documents: tuple[Document, ...], ending: Event, tidings: _Tidings) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal tells all; the parent decides
    _Here.catalogue = Catalogue.of(documents)
    _Here.ending = ending
    _Here.tidings = tidings


def _run_here(number: int, job: Job) -> Outcome:
    def progress(ended: int) -> None:
        _Here.tidings.put((number, ended))

    return run(job, _Here.catalogue, stop=_Here.ending.is_set, progress=progress)
