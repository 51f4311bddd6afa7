"""The results of many runs as one JSON document; wall times in one of their own."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from scheduler import __version__
from workbench.simulation.runs.job import Job, Outcome
from workbench.simulation.runs.summary import figures, timings

RESULTS_FILE = "results.json"
TIMINGS_FILE = "timings.json"


def write_results(folder: Path, outcomes: Sequence[Outcome], facts: Mapping[str, str]) -> None:
    """Write both documents; ``facts`` are what all runs have in common, for people."""
    head = {"esg": __version__, "facts": dict(facts)}
    _write(folder / RESULTS_FILE, head, map(_run, outcomes))
    _write(folder / TIMINGS_FILE, {"esg": __version__}, map(timings, outcomes))


def ordered_json(job: Job) -> dict[str, Any]:
    """What a run was made of, but for its policy and its seed."""
    return {
        "requests_ordered": job.requests,
        "workload": {"name": job.workload.name, **_plain(job.workload.model_dump(by_alias=True))},
        "scenario": _plain(job.scenario),
    }


def _run(outcome: Outcome) -> dict[str, Any]:
    told = {**figures(outcome), **ordered_json(outcome.job)}
    if outcome.result is not None:
        told["result"] = _sparse(outcome.result.as_json())
    return told


def _sparse(value: Any) -> Any:
    """Histograms as pairs of a bin and its count, for nearly all bins are empty."""
    if isinstance(value, dict):
        return {
            name: [[i, n] for i, n in enumerate(each) if n] if name == "counts" else _sparse(each)
            for name, each in value.items()
        }
    return [_sparse(each) for each in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """As JSON has it, which knows no infinity: null is "without a limit"."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def _write(path: Path, head: Mapping[str, Any], runs: Iterable[Mapping[str, Any]]) -> None:
    """A run a line: such files are searched and compared by line."""
    lines = ",\n".join(json.dumps(run) for run in runs)
    path.write_text(f'{json.dumps(head)[:-1]}, "runs": [\n{lines}\n]}}\n', encoding="utf-8")
