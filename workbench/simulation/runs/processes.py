"""Simulations in several processes."""

from collections.abc import Sequence

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import Document
from workbench.series.runs import RunProgress, SeriesWorker
from workbench.simulation.runs.job import Outcome, SimulationJob
from workbench.simulation.runs.runner import run


class SimulationWorker(SeriesWorker[SimulationJob, Outcome]):
    """Runs simulations with the same documents."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = tuple(documents)

    def run(self, job: SimulationJob, progress: RunProgress) -> Outcome:
        """Run a simulation."""
        return run(job, Catalogue.of(self._documents), progress=progress)

    def lost(self, job: SimulationJob, reason: str) -> Outcome:
        """Return a failure without a result."""
        return Outcome(job=job, result=None, failure=reason)
