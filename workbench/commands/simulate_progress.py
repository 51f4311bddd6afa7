"""Progress bar and Ctrl-C of a series of runs."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from scheduler.model.documents import Document
from workbench.simulation.engine import Stop
from workbench.simulation.runs.job import Outcome, SimulationJob
from workbench.simulation.runs.processes import run_all


def run_jobs(
    jobs: Sequence[SimulationJob], documents: Sequence[Document], *, processes: int
) -> Iterator[tuple[int, Outcome]]:
    """Run the jobs with a bar on a terminal; yield outcomes as they come, with their numbers.

    The first Ctrl-C stops the arrivals of the running jobs; the second one ends all at once.
    """
    requests = [job.requests for job in jobs]
    total = None if None in requests else sum(filter(None, requests))
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
        task = bar.add_task(_description(0, len(jobs)), total=total)

        def update(number: int, count: int) -> None:
            ended[number] = count
            bar.update(task, completed=sum(ended))

        outcomes = run_all(jobs, documents, processes=processes, stop=stop, progress=update)
        for done, (number, outcome) in enumerate(outcomes, start=1):
            update(number, 0 if outcome.result is None else outcome.result.requests)
            bar.update(task, description=_description(done, len(jobs)))
            yield number, outcome


def _description(done: int, jobs: int) -> str:
    return f"{done} of {jobs} run{'s' * (jobs != 1)}"


@contextmanager
def _ctrl_c() -> Iterator[Stop]:
    """Yield a function that returns true after Ctrl-C; pressed again, it does as before."""
    pressed: list[int] = []

    def press(number: int, _: FrameType | None) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, before)
        typer.echo("stopping: requests that have arrived still end; again: at once", err=True)

    before: signal.Handlers | Callable[[int, FrameType | None], object] | int | None
    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
