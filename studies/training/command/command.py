"""``esg jobs``: compare policies of training clusters by job completion times."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from operator import itemgetter
from pathlib import Path

import typer

from scheduler.cli.failure import failing_on
from scheduler.model.document_reader import DocumentError
from scheduler.model.message_text import os_error_text
from studies.training.command.report import write_jobs_report
from studies.training.command.table import print_jobs_table
from studies.training.errors import JobsError
from studies.training.registry import POLICIES
from studies.training.runs.setup import JobsOutcome, JobsSetup, load
from studies.training.runs.worker import JobsWorker
from workbench.commands.series_progress import run_with_bar
from workbench.series.executors import SeriesProcesses

_ALL = "all"


def compare_job_policies(
    setup: JobsSetup,
    *,
    policies: str,
    workloads: Sequence[Path],
    seeds: str,
    assignments: Sequence[str],
    processes: SeriesProcesses,
    out: Path | None,
    to_json: bool,
) -> None:
    """Run each policy on each workload with each seed and value, and print the results."""
    with failing_on(DocumentError, JobsError):
        setups = _setups(setup, policies, workloads, seeds, assignments)
        jobs = _checked(setups)
    if any(None in (run.workload, run.data) for run in setups):
        typer.echo("generated jobs and models, not measured", err=True)
    setups = _with_folders(setups, out)
    outcomes = _run(setups, processes, jobs)
    if to_json:
        typer.echo(json.dumps({"runs": [outcome.summary() for outcome in outcomes]}))
    else:
        print_jobs_table(outcomes)
    written = out is None or _wrote(out, outcomes)
    for outcome in outcomes:
        if outcome.failure:
            typer.echo(f"error: {outcome.setup}: {outcome.failure}", err=True)
    if not written or any(outcome.failure for outcome in outcomes):
        raise typer.Exit(1)


def _setups(
    setup: JobsSetup,
    policies: str,
    workloads: Sequence[Path],
    seeds: str,
    assignments: Sequence[str],
) -> list[JobsSetup]:
    names = list(POLICIES) if policies == _ALL else _items("--policy", policies)
    try:
        numbers = [int(seed) for seed in _items("--seed", seeds)]
    except ValueError as error:
        raise JobsError(f"--seed: {error}; write whole numbers and commas") from None
    files: list[Path | None] = [_located(file, setup.data) for file in workloads]
    axes = []
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not (key and equals):
            raise JobsError(f"--set {assignment}: must be KEY=VALUE")
        axes.append([(key, value) for value in _items(f"--set {key}", text)])
    return [
        replace(setup, policy=name, workload=file, seed=seed, settings=dict(settings))
        for settings in product(*axes)
        for file in files or [None]
        for name in names
        for seed in numbers
    ]


def _items(option: str, text: str) -> list[str]:
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items:
        raise JobsError(f"{option}: names nothing")
    return list(dict.fromkeys(items))


def _located(file: Path, data: Path | None) -> Path:
    """Return a workload's path, which may be relative to the data folder."""
    return data / file if data is not None and not file.exists() else file


def _checked(setups: Sequence[JobsSetup]) -> int:
    """Load each workload once before the first run; return the number of jobs of all runs."""
    counts: dict[Path | None, int] = {}
    for setup in setups:
        setup.parameters()
        if setup.workload not in counts:
            counts[setup.workload] = len(load(setup)[0].jobs)
    return sum(counts[setup.workload] for setup in setups)


def _with_folders(setups: Sequence[JobsSetup], out: Path | None) -> list[JobsSetup]:
    if out is None:
        return list(setups)
    names = [f"{s.policy}-{s.workload_name}-{s.seed}" for s in setups]
    several = len(set(names)) < len(names)
    return [
        replace(s, folder=out / "runs" / (f"{number}-{name}" if several else name))
        for number, (s, name) in enumerate(zip(setups, names, strict=True))
    ]


def _run(setups: Sequence[JobsSetup], processes: SeriesProcesses, jobs: int) -> list[JobsOutcome]:
    numbered = run_with_bar(
        setups,
        JobsWorker(),
        processes=processes,
        total=jobs,
        unit="jobs",
        done_of=lambda outcome: 0 if outcome.result is None else len(outcome.result.jobs),
    )
    return [outcome for _, outcome in sorted(numbered, key=itemgetter(0))]


def _wrote(out: Path, outcomes: Sequence[JobsOutcome]) -> bool:
    try:
        write_jobs_report(out, outcomes)
    except OSError as error:
        typer.echo(f"error: {os_error_text(error, out)}", err=True)
        return False
    return True
