"""Progress bar of a series of runs, and its end by Ctrl-C."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from scheduler.cli.failure import failing_on, stopped_by_ctrl_c
from workbench.series.executors import DaskError, SeriesProcesses
from workbench.series.runs import JobT, OutcomeT, SeriesWorker, run_series


def run_with_bar(
    jobs: Sequence[JobT],
    worker: SeriesWorker[JobT, OutcomeT],
    *,
    processes: SeriesProcesses,
    total: int | None,
    unit: str,
    done_of: Callable[[OutcomeT], int],
) -> Iterator[tuple[int, OutcomeT]]:
    """Run the jobs with a bar on a terminal; yield outcomes as they come, with their numbers.

    It exits at once after Ctrl-C, and where a Dask cluster cannot run the jobs.

    Args:
        jobs: jobs, in the order in which they begin.
        worker: worker that runs them.
        processes: processes that run them.
        total: total of all jobs, in their unit; None: unknown.
        unit: plural of what the jobs count.
        done_of: function that returns how much of its job an outcome has done.
    """
    done = [0] * len(jobs)
    with _bar(unit) as bar:
        task = bar.add_task(_description(0, len(jobs)), total=total)

        def update(number: int, count: int) -> None:
            done[number] = count
            bar.update(task, completed=sum(done))

        with failing_on(DaskError), stopped_by_ctrl_c():
            outcomes = run_series(jobs, worker, processes=processes, progress=update)
            for ended, (number, outcome) in enumerate(outcomes, start=1):
                update(number, done_of(outcome))
                bar.update(task, description=_description(ended, len(jobs)))
                yield number, outcome


def _description(ended: int, jobs: int) -> str:
    return f"{ended} of {jobs} run{'s' * (jobs != 1)}"


@contextmanager
def progress_bar(unit: str, *, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar on a terminal; yield a function that advances it by one.

    Args:
        unit: plural of what the bar counts.
        total: number of them.
    """
    with _bar(unit) as bar:
        task = bar.add_task("measured", total=total)
        yield lambda: bar.advance(task)


def _bar(unit: str) -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
