"""``esg simulate``: what policies would do to an SLO and a bill, on a cluster that is not there."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import typer

from scheduler.model.catalogue import UnknownDocumentError
from scheduler.model.documents import Document
from scheduler.model.quoting import listed
from scheduler.model.reading import DocumentError
from workbench.commands import simulate_options as options
from workbench.commands.simulate_jobs import (
    checked,
    documents_of,
    generated_functions,
    jobs_of,
    profiled_models,
    settings_of,
)
from workbench.commands.simulate_progress import do_all
from workbench.commands.simulate_report import facts_of, write_report
from workbench.commands.simulate_table import print_table
from workbench.simulation.errors import UnknownPolicyError
from workbench.simulation.runs.job import Job, Outcome
from workbench.simulation.runs.results_json import write_results
from workbench.simulation.runs.summary import as_json, together
from workbench.simulation.scenario import ScenarioError

_INTERRUPTED = 130  # what shells say of a program that Ctrl-C ended


def simulate(
    *,
    policy: options.Policies = "exact,esg",
    setting: options.SettingNames = None,
    requests: options.Requests = None,
    seed: options.Seeds = "0",
    profiles: options.Profiles = None,
    trace: options.Trace = None,
    workload: options.WorkloadName = None,
    workload_parameters: options.WorkloadParameters = None,
    slo_factor: options.SloFactor = None,
    nodes: options.Nodes = "16",
    gpus_per_node: options.GpusPerNode = None,
    gpu_model: options.GpuModels = None,
    cpus: options.Cpus = None,
    memory_mib: options.MemoryMib = None,
    noise: options.Noise = None,
    interference: options.Interference = None,
    bandwidth_mib_s: options.Bandwidth = None,
    keep_alive_s: options.KeepAlive = None,
    warm_containers: options.WarmContainers = None,
    sharing: options.Sharings = None,
    no_resizing: options.NoResizing = False,
    no_prewarm: options.NoPrewarm = False,
    no_replan: options.NoReplan = False,
    no_batching: options.NoBatching = False,
    misses_max: options.MissesMax = None,
    give_up: options.GiveUp = None,
    placement: options.Placements = None,
    group_size: options.GroupSize = None,
    k: options.K = None,
    margin_ratio: options.MarginRatio = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="processes; default: one a processor")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="write report.html, results.json, and files of each run"),
    ] = None,
    trace_requests: Annotated[
        int,
        typer.Option(
            min=0,
            help="the Chrome trace of the first seed ends when so many requests have; 0: none",
        ),
    ] = 1_000,
    to_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Let policies serve the same requests on the same simulated cluster, and compare them.

    The code that decides is the live service's; its ESG_… settings of planning and placement hold
    here too. Equal orders give equal results, but for the times that planning takes.
    """
    given = {
        "gpus_per_node": gpus_per_node,
        "gpu_models": None if gpu_model is None else tuple(gpu_model),
        "cpus": cpus,
        "memory_mib": memory_mib,
        "noise_ratio": noise,
        "interference_ratio": interference,
        "bandwidth_mib_s": bandwidth_mib_s,
        "keep_alive_ms": None if keep_alive_s is None else options.MS_PER_S * keep_alive_s,
        "warm_containers": warm_containers,
        "sharing": sharing,
        "resizable": False if no_resizing else None,
        "prewarm": False if no_prewarm else None,
        "replan": False if no_replan else None,
        "batching": False if no_batching else None,
        "misses_max": misses_max,
        "give_up_factor": give_up,
        "placement": placement,
        "group_size": group_size,
        "candidates": k,
        "margin_ratio": margin_ratio,
    }
    try:
        asked = settings_of(
            setting,
            trace=trace,
            workload=workload,
            parameters=workload_parameters,
            slo_factor=slo_factor,
        )
        documents = documents_of(profiles)
        ordered = jobs_of(
            policies=policy,
            settings=asked,
            seeds=seed,
            scenario=options.scenario_of(nodes, profiled_models(documents), given),
            requests=requests,
            out=out,
            trace_requests=trace_requests,
        )
        warnings = checked(ordered, documents)
    except DocumentError as error:
        raise _refused(*map(str, error.problems)) from None
    except (ScenarioError, UnknownPolicyError, UnknownDocumentError) as error:
        raise _refused(str(error)) from None
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    if generated := generated_functions(documents):
        typer.echo(f"generated profiles, not measured: {listed(generated)}", err=True)
    outcomes, written = _done(ordered, documents, jobs or os.cpu_count() or 1, out)
    if to_json:
        typer.echo(json.dumps(as_json(outcomes)))
    else:
        print_table(together(outcomes))
    _tell(outcomes, ordered=len(ordered))
    if not written:
        raise typer.Exit(1)


def _refused(*messages: str) -> typer.Exit:
    for message in messages:
        typer.echo(f"error: {message}", err=True)
    return typer.Exit(1)


def _done(
    jobs: Sequence[Job], documents: Sequence[Document], processes: int, out: Path | None
) -> tuple[list[Outcome], bool]:
    """The outcomes in the order of their jobs, and whether all files could be written."""
    found: list[tuple[int, Outcome]] = []
    facts = facts_of(jobs, documents)
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        found.extend(do_all(jobs, documents, processes=processes))
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    except OSError as error:
        raise _refused(f"{out}: {error.strerror}") from None
    finally:  # come what may
        outcomes = [outcome for _, outcome in sorted(found, key=itemgetter(0))]
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
    """Whether that went well; what did not is told, for the table is still to come."""
    try:
        write(out, outcomes, facts)
    except OSError as error:
        typer.echo(f"error: {error.filename or out}: {error.strerror}", err=True)
        return False
    return True


def _tell(outcomes: Sequence[Outcome], *, ordered: int) -> None:
    """Say what went wrong, and end with a status that says so too."""
    for outcome in outcomes:
        if outcome.failure:
            typer.echo(f"error: {outcome.job}: {outcome.failure}", err=True)
    if len(outcomes) < ordered or any(outcome.stopped for outcome in outcomes):
        raise typer.Exit(_INTERRUPTED)
    if any(outcome.failure for outcome in outcomes):
        raise typer.Exit(1)
