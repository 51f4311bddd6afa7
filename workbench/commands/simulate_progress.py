"""Jobs done under a person's eyes: a bar, and Ctrl-C."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from scheduler.model.documents import Document
from workbench.simulation.runs.job import Job, Outcome
from workbench.simulation.runs.processes import run_all
from workbench.simulation.runs.running import Stop


def do_all(
    jobs: Sequence[Job], documents: Sequence[Document], *, processes: int
) -> Iterator[tuple[int, Outcome]]:
    """Do the jobs, with a bar on a terminal; the outcomes as they come, each with its number.

    The first Ctrl-C stops the arrivals of the runs that go on; the second one ends all at once.
    """
    ordered = [job.requests for job in jobs]
    total = None if None in ordered else sum(filter(None, ordered))
    ended = [0] * len(jobs)
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("requests"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar, _ctrl_c() as stop:
        task = bar.add_task(_told(0, len(jobs)), total=total)

        def told(number: int, count: int) -> None:
            ended[number] = count
            bar.update(task, completed=sum(ended))

        outcomes = run_all(jobs, documents, processes=processes, stop=stop, told=told)
        for done, (number, outcome) in enumerate(outcomes, start=1):
            told(number, 0 if outcome.result is None else outcome.result.requests)
            bar.update(task, description=_told(done, len(jobs)))
            yield number, outcome


def _told(done: int, jobs: int) -> str:
    return f"{done} of {jobs} run{'s' * (jobs != 1)}"


@contextmanager
def _ctrl_c() -> Iterator[Stop]:
    """Whether Ctrl-C was pressed; pressed again, it does what it always does."""
    pressed: list[int] = []

    def press(number: int, _: FrameType | None) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, before)
        typer.echo("stopping: what has arrived is brought to its end; again: at once", err=True)

    before: signal.Handlers | Callable[[int, FrameType | None], object] | int | None
    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
