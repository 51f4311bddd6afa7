"""Simulations in several processes."""

from collections.abc import Sequence

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import Document
from workbench.series.processes import RunProgress, SeriesWorker, StopCheck
from workbench.simulation.runs.job import Outcome, SimulationJob
from workbench.simulation.runs.runner import run


class SimulationWorker(SeriesWorker[SimulationJob, Outcome]):
    """Runs simulations with the same documents."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = tuple(documents)
        self._catalogue: Catalogue | None = None

    def prepare(self) -> None:
        """Read the documents."""
        self._catalogue = Catalogue.of(self._documents)

    def run(self, job: SimulationJob, *, stop: StopCheck, progress: RunProgress) -> Outcome:
        """Run a simulation; when stopped, requests that have arrived still end."""
        if self._catalogue is None:
            raise AssertionError("a worker is prepared first")
        return run(job, self._catalogue, stop=stop, progress=progress)

    def lost(self, job: SimulationJob, reason: str) -> Outcome:
        """Return a failure without a result."""
        return Outcome(job=job, result=None, failure=reason)
