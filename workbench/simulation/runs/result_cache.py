"""Outcomes of complete runs in a folder, one file each, to continue an interrupted series."""

import json
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from scheduler import __version__
from scheduler.model.documents import Document, to_manifest
from workbench.simulation.result import Result
from workbench.simulation.runs.job import Outcome, SimulationJob
from workbench.simulation.runs.results_json import job_json

_RESULT: TypeAdapter[Result] = TypeAdapter(Result)


class ResultCache:
    """Outcomes by name of the run; one of another job or version under that name is ignored."""

    def __init__(self, folder: Path, documents: Sequence[Document]) -> None:
        """Take the documents that the runs are of: outcomes of others are ignored."""
        manifests = [to_manifest(document) for document in documents]
        self._folder = folder
        self._documents = sha256(json.dumps(manifests, sort_keys=True).encode()).hexdigest()

    def read(self, name: str, job: SimulationJob) -> Outcome | None:
        """Return the outcome of this very job by this version; None without one."""
        try:
            entry = json.loads(self._path(name).read_text(encoding="utf-8"))
            if not isinstance(entry, dict) or entry.get("job") != self._identity(job):
                return None
            result = _RESULT.validate_python(entry["result"])
        except (OSError, ValueError, KeyError):
            return None
        return Outcome(job=job, result=result, wall_s=entry["wall_s"])

    def write(self, name: str, outcome: Outcome) -> None:
        """Write the outcome of a complete run."""
        if outcome.result is None:
            raise AssertionError("a complete run has a result")
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(name)
        partial_file = path.with_suffix(".half")
        entry = {
            "job": self._identity(outcome.job),
            "result": _RESULT.dump_python(outcome.result, mode="json"),
            "wall_s": outcome.wall_s,
        }
        partial_file.write_text(json.dumps(entry), encoding="utf-8")
        partial_file.replace(path)

    def clear(self) -> None:
        """Delete all outcomes, and the folder where nothing else is in it."""
        for path in self._folder.glob("*.json"):
            path.unlink()
        with suppress(OSError):
            self._folder.rmdir()

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
