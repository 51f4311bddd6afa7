"""Results of many runs as one JSON document; wall times in a document of their own."""

import json
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from scheduler import __version__
from workbench.simulation.runs.job import Outcome, SimulationJob
from workbench.simulation.runs.summary import summary, timings

RESULTS_FILE = "results.json"
TIMINGS_FILE = "timings.json"


def write_results(folder: Path, outcomes: Sequence[Outcome], facts: Mapping[str, str]) -> None:
    """Write both documents; ``facts`` describe to people what all runs have in common."""
    head = {"esg": __version__, "facts": dict(facts)}
    _write(folder / RESULTS_FILE, head, map(_run, outcomes))
    _write(folder / TIMINGS_FILE, {"esg": __version__}, map(timings, outcomes))


def job_json(job: SimulationJob) -> dict[str, Any]:
    """Return all that a run depends on, except its policy and its seed."""
    return {
        "requests_ordered": job.requests,
        "workload": {
            "name": job.workload.name,
            **_plain(job.workload.model_dump(mode="json", by_alias=True)),
        },
        "scenario": _plain(job.scenario.model_dump(mode="json")),
    }


def _run(outcome: Outcome) -> dict[str, Any]:
    fields = {**summary(outcome), **job_json(outcome.job)}
    if outcome.result is not None:
        fields["result"] = _sparse(outcome.result.as_json())
    return fields


def _sparse(value: Any) -> Any:
    """Write histograms as pairs of a bin and its count, because nearly all bins are empty."""
    if isinstance(value, dict):
        return {
            name: [[i, n] for i, n in enumerate(item) if n] if name == "counts" else _sparse(item)
            for name, item in value.items()
        }
    return [_sparse(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """Replace infinity, which JSON does not have, by null: "without a limit"."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _write(path: Path, head: Mapping[str, Any], runs: Iterable[Mapping[str, Any]]) -> None:
    """Write a run a line: such files are searched and compared by line."""
    lines = ",\n".join(json.dumps(run) for run in runs)
    path.write_text(f'{json.dumps(head)[:-1]}, "runs": [\n{lines}\n]}}\n', encoding="utf-8")
