"""The figures of runs in a folder, a file each, so that a broken series can be continued."""

import json
from pathlib import Path
from typing import Any

from scheduler import __version__
from workbench.simulation.runs.job import Job, Outcome
from workbench.simulation.runs.results_json import ordered_json
from workbench.simulation.runs.summary import figures, timings


class KeptFigures:
    """Figures by the name of their run; those of another order under that name do not count."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str, job: Job) -> dict[str, Any] | None:
        """What was kept of this very job by this version; None: nothing that holds."""
        try:
            kept = json.loads(self._path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(kept, dict) or kept.get("ordered") != self._ordered(job):
            return None
        found: dict[str, Any] = kept["figures"]
        return found

    def keep(self, name: str, outcome: Outcome) -> dict[str, Any]:
        """Keep the figures of a whole run, wall times among them; they are answered too."""
        found = timings(outcome) | figures(outcome)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(name)
        half = path.with_suffix(".half")
        text = json.dumps({"ordered": self._ordered(outcome.job), "figures": found})
        half.write_text(text, encoding="utf-8")
        half.replace(path)
        return found

    def forget(self) -> None:
        """All of it."""
        for path in self._folder.glob("*.json"):
            path.unlink()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    @staticmethod
    def _ordered(job: Job) -> dict[str, Any]:
        return {"esg": __version__, "policy": job.policy, "seed": job.seed, **ordered_json(job)}
