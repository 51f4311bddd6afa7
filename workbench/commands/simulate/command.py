"""``esg simulate``: compare policies by SLO hits and cost on a simulated cluster."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import yaml

from scheduler.cli.failure import fail, failing_on
from scheduler.model.catalogue import UnknownDocumentError
from scheduler.model.document_reader import DocumentError
from scheduler.model.documents import Document
from scheduler.model.message_text import listed, os_error_text
from workbench.commands.simulate.jobs import checked, generated_functions
from workbench.commands.simulate.progress import run_jobs
from workbench.commands.simulate.report import facts_of, write_report
from workbench.commands.simulate.scenario import read_scenario
from workbench.commands.simulate.table import print_differences, print_table
from workbench.series.executors import SeriesProcesses
from workbench.simulation.errors import UnknownPolicyError
from workbench.simulation.runs.comparison import with_common_warm_up
from workbench.simulation.runs.job import Outcome, SimulationJob
from workbench.simulation.runs.paired import policy_differences
from workbench.simulation.runs.result_cache import ResultCache
from workbench.simulation.runs.results_json import write_results
from workbench.simulation.runs.summary import aggregate, as_json
from workbench.simulation.scenario import ScenarioError

SCENARIO_FILE = "scenario.yaml"
UNFINISHED_FOLDER = "unfinished"  # outcomes of a series that has not ended


def compare_policies(
    scenario: Path | None,
    *,
    options: Mapping[str, Any],
    assignments: Sequence[str],
    trace: Path | None,
    processes: SeriesProcesses,
    out: Path | None,
    resume: bool,
    show_scenario: bool,
    to_json: bool,
) -> None:
    """Run the experiment of file, options and assignments, and print its results."""
    if resume and out is None:
        fail("--continue: goes on with the runs in a folder; name it by --out")
    with failing_on(DocumentError, ScenarioError, UnknownPolicyError, UnknownDocumentError):
        experiment, documents = read_scenario(scenario, options, assignments, trace)
        ordered = experiment.jobs(out)
        warnings = checked(ordered, documents)
    effective = yaml.safe_dump(experiment.effective(), sort_keys=False)
    if show_scenario:
        typer.echo(effective, nl=False)
        return
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    if generated := generated_functions(documents):
        typer.echo(f"generated profiles, not measured: {listed(generated)}", err=True)
    if out is not None:
        _write_scenario(out, effective)
    series = _Series(ordered, documents, processes)
    outcomes, written = _outcomes(series, out, resume=resume)
    _print(outcomes, to_json=to_json)
    _report_failures(outcomes)
    if not written:
        raise typer.Exit(1)


def _print(outcomes: Sequence[Outcome], *, to_json: bool) -> None:
    """Print the results; a table without a row is not printed."""
    if to_json:
        typer.echo(json.dumps(as_json(outcomes)))
    elif aggregates := aggregate(outcomes):
        print_table(aggregates)
        if differences := policy_differences(outcomes):
            print_differences(differences)


def _write_scenario(out: Path, effective: str) -> None:
    """Write the scenario that the results are of; read again, it orders the same runs."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / SCENARIO_FILE).write_text(effective, encoding="utf-8")
    except OSError as error:
        fail(os_error_text(error, out))


@dataclass(frozen=True, slots=True)
class _Series:
    """Jobs with equal documents, and the processes that run them."""

    jobs: Sequence[SimulationJob]
    documents: Sequence[Document]
    processes: SeriesProcesses


def _outcomes(series: _Series, out: Path | None, *, resume: bool) -> tuple[list[Outcome], bool]:
    """Run the jobs; return outcomes in their order, and true when all files were written."""
    jobs, numbered = series.jobs, dict[int, Outcome]()
    facts = facts_of(jobs, series.documents)
    cache = None if out is None else ResultCache(out / UNFINISHED_FOLDER, series.documents)
    try:
        if cache is not None:
            numbered = _cached(cache, jobs, resume=resume)
        missing = [number for number in range(len(jobs)) if number not in numbered]
        if numbered:
            typer.echo(f"{len(numbered)} of {len(jobs)} runs are complete already", err=True)
        for place, outcome in run_jobs(
            [jobs[number] for number in missing], series.documents, processes=series.processes
        ):
            numbered[missing[place]] = outcome
            if cache is not None and outcome.whole:
                cache.write(outcome.job.file_stem, outcome)
        if cache is not None and sum(outcome.whole for outcome in numbered.values()) == len(jobs):
            cache.clear()
    except OSError as error:
        fail(os_error_text(error, out))
    finally:  # an interrupted series keeps the runs that are complete
        outcomes = with_common_warm_up([numbered[number] for number in sorted(numbered)])
        written = out is None or not out.is_dir() or _wrote(write_results, out, outcomes, facts)
    if out is not None:
        written = _wrote(write_report, out, outcomes, facts) and written
    return outcomes, written


def _cached(
    cache: ResultCache, jobs: Sequence[SimulationJob], *, resume: bool
) -> dict[int, Outcome]:
    """Return the outcomes of an interrupted series by number of the job, or discard them."""
    if not resume:
        cache.clear()
        return {}
    read = {number: cache.read(job.file_stem, job) for number, job in enumerate(jobs)}
    return {number: outcome for number, outcome in read.items() if outcome is not None}


def _wrote(
    write: Callable[[Path, Sequence[Outcome], Mapping[str, str]], None],
    out: Path,
    outcomes: Sequence[Outcome],
    facts: Mapping[str, str],
) -> bool:
    """Write files; report a failure and go on, because the table is still to be printed."""
    try:
        write(out, outcomes, facts)
    except OSError as error:
        typer.echo(f"error: {os_error_text(error, out)}", err=True)
        return False
    return True


def _report_failures(outcomes: Sequence[Outcome]) -> None:
    """Print the failures; exit with a status that is not 0 after any."""
    if failures := [f"{o.job}: {o.failure}" for o in outcomes if o.failure]:
        fail(*failures)
