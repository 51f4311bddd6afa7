"""Progress bar and Ctrl-C of a series of runs."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from workbench.series.processes import JobT, OutcomeT, SeriesWorker, StopCheck, run_series


def run_with_bar(
    jobs: Sequence[JobT],
    worker: SeriesWorker[JobT, OutcomeT],
    *,
    processes: int,
    total: int | None,
    unit: str,
    done_of: Callable[[OutcomeT], int],
    on_stop: str,
) -> Iterator[tuple[int, OutcomeT]]:
    """Run the jobs with a bar on a terminal; yield outcomes as they come, with their numbers.

    Args:
        jobs: jobs, in the order in which they begin.
        worker: worker that runs them.
        processes: maximum number of processes.
        total: total of all jobs, in their unit; None: unknown.
        unit: plural of what the jobs count.
        done_of: function that returns how much of its job an outcome has done.
        on_stop: message at the first Ctrl-C; the second one ends all at once.
    """
    done = [0] * len(jobs)
    with _bar(unit) as bar, _ctrl_c(on_stop) as stop:
        task = bar.add_task(_description(0, len(jobs)), total=total)

        def update(number: int, count: int) -> None:
            done[number] = count
            bar.update(task, completed=sum(done))

        outcomes = run_series(jobs, worker, processes=processes, stop=stop, progress=update)
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


@contextmanager
def _ctrl_c(message: str) -> Iterator[StopCheck]:
    """Yield a function that returns true after Ctrl-C; pressed again, it does as before."""
    pressed: list[int] = []

    def press(number: int, _: FrameType | None) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, before)
        typer.echo(message, err=True)

    before: signal.Handlers | Callable[[int, FrameType | None], object] | int | None
    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
