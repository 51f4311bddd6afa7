"""Progress of simulations, counted in requests."""

from collections.abc import Iterator, Sequence

from scheduler.model.documents import Document
from workbench.commands.series_progress import run_with_bar
from workbench.series.executors import SeriesProcesses
from workbench.simulation.runs.job import Outcome, SimulationJob
from workbench.simulation.runs.processes import SimulationWorker


def run_jobs(
    jobs: Sequence[SimulationJob], documents: Sequence[Document], *, processes: SeriesProcesses
) -> Iterator[tuple[int, Outcome]]:
    """Run the jobs with a bar on a terminal; yield outcomes as they come, with their numbers."""
    requests = [job.requests for job in jobs]
    return run_with_bar(
        jobs,
        SimulationWorker(documents),
        processes=processes,
        total=None if None in requests else sum(filter(None, requests)),
        unit="requests",
        done_of=lambda outcome: 0 if outcome.result is None else outcome.result.requests,
    )
