"""``esg simulate``: compare policies by SLO hits and cost on a simulated cluster."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import typer
import yaml

from scheduler.model.catalogue import UnknownDocumentError
from scheduler.model.documents import Document
from scheduler.model.quoting import listed
from scheduler.model.reading import DocumentError
from workbench.commands.simulate_jobs import checked, generated_functions
from workbench.commands.simulate_progress import run_jobs
from workbench.commands.simulate_report import facts_of, write_report
from workbench.commands.simulate_scenario import read_scenario
from workbench.commands.simulate_table import print_table
from workbench.simulation.errors import UnknownPolicyError
from workbench.simulation.runs.job import Job, Outcome
from workbench.simulation.runs.results_json import write_results
from workbench.simulation.runs.summary import aggregate, as_json
from workbench.simulation.scenario import ScenarioError

_INTERRUPTED = 130  # exit status by which shells report an end by Ctrl-C
_NAMES = "NAME[,NAME…]"


def simulate(
    *,
    scenario: Annotated[
        Path | None, typer.Argument(metavar="[SCENARIO.yaml]", help="keys of docs/simulator.md")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="any key of the scenario; repeatable"),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(metavar=_NAMES, help="policies to compare, or all; default: exact,esg"),
    ] = None,
    setting: Annotated[
        str | None,
        typer.Option(
            metavar=_NAMES,
            help="SLO and load of the paper: strict-, moderate- or relaxed- with light, normal or "
            "heavy; or all; default: moderate-normal",
        ),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(min=1, help="per run; default: 10,000, or all that the trace has"),
    ] = None,
    seed: Annotated[
        str | None, typer.Option(metavar="N[,N…]", help="a run for each; default: 0")
    ] = None,
    profiles: Annotated[
        Path | None,
        typer.Option(
            help="file or folder with Workflows and FunctionProfiles; default: the generated "
            "samples"
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", help="your own requests: columns workflow, time_ms or time_s"
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="N|FILE.yaml", help="number of nodes, or a file of Node documents; default: 16"
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="processes; default: one per processor")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="write report.html, results.json, and files of each run"),
    ] = None,
    show_scenario: Annotated[
        bool, typer.Option("--show-scenario", help="print all keys and values as YAML, and end")
    ] = False,
    to_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Compare policies on the same requests and the same simulated cluster.

    The code that decides is the live service's; its ESG_… settings of planning and placement apply
    here too. Equal scenarios give equal results, except for the times that planning takes.
    """
    options = {
        "policy": policy,
        "setting": setting,
        "requests": requests,
        "seed": seed,
        "profiles": profiles,
        "nodes": nodes,
    }
    try:
        experiment, documents = read_scenario(scenario, options, assignments or (), trace)
        ordered = experiment.jobs(out)
        warnings = checked(ordered, documents)
    except DocumentError as error:
        raise _refused(*map(str, error.problems)) from None
    except (ScenarioError, UnknownPolicyError, UnknownDocumentError) as error:
        raise _refused(str(error)) from None
    if show_scenario:
        typer.echo(yaml.safe_dump(experiment.effective(), sort_keys=False), nl=False)
        return
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    if generated := generated_functions(documents):
        typer.echo(f"generated profiles, not measured: {listed(generated)}", err=True)
    outcomes, written = _outcomes(ordered, documents, jobs or os.cpu_count() or 1, out)
    if to_json:
        typer.echo(json.dumps(as_json(outcomes)))
    else:
        print_table(aggregate(outcomes))
    _report_failures(outcomes, ordered=len(ordered))
    if not written:
        raise typer.Exit(1)


def _refused(*messages: str) -> typer.Exit:
    for message in messages:
        typer.echo(f"error: {message}", err=True)
    return typer.Exit(1)


def _outcomes(
    jobs: Sequence[Job], documents: Sequence[Document], processes: int, out: Path | None
) -> tuple[list[Outcome], bool]:
    """Run the jobs; return outcomes in their order, and true when all files were written."""
    numbered: list[tuple[int, Outcome]] = []
    facts = facts_of(jobs, documents)
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        numbered.extend(run_jobs(jobs, documents, processes=processes))
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    except OSError as error:
        raise _refused(f"{out}: {error.strerror}") from None
    finally:  # an interrupted series keeps the runs that are complete
        outcomes = [outcome for _, outcome in sorted(numbered, key=itemgetter(0))]
        written = out is None or not out.is_dir() or _wrote(write_results, out, outcomes, facts)
    if out is not None:
        written = _wrote(write_report, out, outcomes, facts) and written
    return outcomes, written


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
        typer.echo(f"error: {error.filename or out}: {error.strerror}", err=True)
        return False
    return True


def _report_failures(outcomes: Sequence[Outcome], *, ordered: int) -> None:
    """Print the failures; exit with a status that is not 0 after any."""
    for outcome in outcomes:
        if outcome.failure:
            typer.echo(f"error: {outcome.job}: {outcome.failure}", err=True)
    if len(outcomes) < ordered or any(outcome.stopped for outcome in outcomes):
        raise typer.Exit(_INTERRUPTED)
    if any(outcome.failure for outcome in outcomes):
        raise typer.Exit(1)
