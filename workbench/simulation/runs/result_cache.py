"""Summaries of runs in a folder, one file each, to continue an interrupted series."""

import json
from pathlib import Path
from typing import Any

from scheduler import __version__
from workbench.simulation.runs.job import Outcome, SimulationJob
from workbench.simulation.runs.results_json import job_json
from workbench.simulation.runs.summary import summary, timings


class ResultCache:
    """Summaries by name of the run; one of another job or version under that name is ignored."""

    def __init__(self, folder: Path, documents: str = "") -> None:
        """Take ``documents`` as the digest of the documents that the runs are of."""
        self._folder = folder
        self._documents = documents

    def read(self, name: str, job: SimulationJob) -> dict[str, Any] | None:
        """Return the summary of this very job by this version; None without one."""
        try:
            entry = json.loads(self._path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(entry, dict) or entry.get("job") != self._identity(job):
            return None
        numbers: dict[str, Any] = entry["summary"]
        return numbers

    def write(self, name: str, outcome: Outcome) -> dict[str, Any]:
        """Write the summary of a complete run, with its wall times, and return it."""
        numbers = timings(outcome) | summary(outcome)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(name)
        partial_file = path.with_suffix(".half")
        text = json.dumps({"job": self._identity(outcome.job), "summary": numbers})
        partial_file.write_text(text, encoding="utf-8")
        partial_file.replace(path)
        return numbers

    def clear(self) -> None:
        """Delete all summaries."""
        for path in self._folder.glob("*.json"):
            path.unlink()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _identity(self, job: SimulationJob) -> dict[str, Any]:
        return {
            "esg": __version__,
            "documents": self._documents,
            "policy": job.policy,
            "seed": job.seed,
            **job_json(job),
        }
