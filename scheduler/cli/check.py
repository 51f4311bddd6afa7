"""``esg check``: validate documents, and their references to one another.

The kernels are imported where a plan is computed: for a workflow whose profiles are all there.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import typer

from scheduler.cli.document_files import DocumentSet, duplicates, read_paths, read_settings
from scheduler.model.catalogue import Catalogue, missing_profiles
from scheduler.model.document_reader import Problem, stage_limit_problems
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.fleet_capacity import FleetCapacity
from scheduler.model.function_server import FunctionServer
from scheduler.model.message_text import listed, quoted
from scheduler.model.names import GROUP, LABEL_GATEWAY_GROUP
from scheduler.settings import Settings


def check_documents(
    paths: list[Path], nodes: Path | None = None, *, strict: bool = False, as_json: bool = False
) -> None:
    """Print every problem and a summary; exit 1 on an error or without any document.

    Args:
        paths: files and folders with documents.
        nodes: file with the Nodes of the cluster that the documents are for.
        strict: true if a warning is an error, too.
        as_json: true if all is printed as one object.
    """
    settings = read_settings()
    fleet = None
    if nodes is not None:
        from scheduler.cli.fleet_file import read_fleet

        fleet = read_fleet(nodes, settings.limits)
    documents = read_paths(paths)
    problems = documents.with_lines(
        [
            *documents.problems,
            *duplicates(documents),
            *(
                problem
                for source, document in documents.documents
                if isinstance(document, Workflow)
                for problem in stage_limit_problems(document, settings.stages_max, source)
            ),
            *_excess_problems(documents, fleet),
            *_cross_reference_problems(documents, settings, fleet),
            *_server_problems(documents),
            *_undeclared_ports(documents),
            *_group_problems(documents),
        ]
    )
    if not documents.documents and not problems:
        text = (
            f"no Workflow, FunctionProfile or FunctionServer of {GROUP}; name files or folders "
            "that have some"
        )
        problems = [Problem(", ".join(map(str, paths)), "", "", text)]
    errors = [problem for problem in problems if strict or not problem.warning]
    kinds = Counter[str](document.kind for _, document in documents.documents)
    if as_json:
        report = {"documents": kinds, "problems": [asdict(problem) for problem in problems]}
        typer.echo(json.dumps(report, indent=2))
    else:
        _print(problems, kinds)
    if errors:
        raise typer.Exit(1)


def _print(problems: list[Problem], kinds: Mapping[str, int]) -> None:
    for problem in problems:
        typer.echo(f"{'warning' if problem.warning else 'error'}: {problem}", err=True)
    counts = ", ".join(
        f"{count} {kind}{'s' * (count > 1)}" for kind, count in sorted(kinds.items())
    )
    warnings = sum(problem.warning for problem in problems)
    errors = len(problems) - warnings
    typer.echo(
        f"{counts or 'no document'}: {errors} error{'s' * (errors != 1)}, "
        f"{warnings} warning{'s' * (warnings != 1)}"
    )


def _excess_problems(documents: DocumentSet, fleet: FleetCapacity | None) -> Iterator[Problem]:
    """Find configurations that no node of the fleet can hold."""
    for source, document in documents.documents:
        if fleet is not None and isinstance(document, FunctionProfile):
            name = f"FunctionProfile {document.metadata.name}"
            for text in fleet.excess(document):
                yield Problem(source, name, "spec.gpus", text, warning=True)


def _cross_reference_problems(
    documents: DocumentSet, settings: Settings, fleet: FleetCapacity | None
) -> list[Problem]:
    """Find stages without a profile or a node, and SLOs that no configuration meets."""
    catalogue = Catalogue.of(document for _, document in documents.documents)
    sources = {d.key: source for source, d in documents.documents if isinstance(d, Workflow)}
    missing = missing_profiles(catalogue, sources)
    incomplete = {problem.document for problem in missing}
    complete = {
        key: sources[key] for key in sources if f"Workflow {'/'.join(key)}" not in incomplete
    }
    problems = []
    if complete:
        from scheduler.cli.attainability import unattainable

        problems = list(unattainable(catalogue, complete, settings, fleet))
    invalid = _invalid_profiles(documents)
    return [*missing_profiles(catalogue, sources, invalid), *problems, *_unmeasured(documents)]


def _invalid_profiles(documents: DocumentSet) -> set[str]:
    """Return the names of profiles with a fault, whose users need no fault of their own."""
    kind = "FunctionProfile "
    return {
        problem.document.removeprefix(kind)
        for problem in documents.problems
        if problem.document.startswith(kind)
    }


def _server_problems(documents: DocumentSet) -> Iterator[Problem]:
    """Find FunctionServers without a profile, and functions with several in one namespace."""
    profiles = _invalid_profiles(documents)
    profiles |= {d.metadata.name for _, d in documents.documents if isinstance(d, FunctionProfile)}
    first: dict[tuple[str, str], str] = {}
    for source, document in documents.documents:
        if not isinstance(document, FunctionServer):
            continue
        function = document.spec.function
        serving = first.setdefault(document.function_key, document.metadata.name)
        if function not in profiles:
            text = f"function {function!r} has no FunctionProfile"
        elif serving != document.metadata.name:
            text = (
                f"function {function!r} has the FunctionServer {serving!r} in this namespace too; "
                "keep one"
            )
        else:
            continue
        yield Problem(source, f"FunctionServer {'/'.join(document.key)}", "spec.function", text)


def _undeclared_ports(documents: DocumentSet) -> Iterator[Problem]:
    """Find FunctionServers whose template declares ports, and not that of its server."""
    for source, document in documents.documents:
        if not isinstance(document, FunctionServer) or document.spec.template is None:
            continue
        declared = [
            port["containerPort"]
            for container in document.spec.template["spec"]["containers"]
            if isinstance(ports := container.get("ports"), list)
            for port in ports
            if isinstance(port, Mapping) and "containerPort" in port
        ]
        if declared and document.spec.port not in declared:
            text = (
                f"{document.spec.port} is no containerPort of the template "
                f"({listed([quoted(port) for port in declared])}); correct one of them"
            )
            where = f"FunctionServer {'/'.join(document.key)}"
            yield Problem(source, where, "spec.port", text, warning=True)


def _group_problems(documents: DocumentSet) -> Iterator[Problem]:
    """Find empty groups of gateways, and functions that Workflows of two groups use."""
    grouped = [(s, d) for s, d in documents.documents if not isinstance(d, FunctionProfile)]
    for source, document in grouped:
        if document.metadata.group_label == "":
            text = (
                f"{LABEL_GATEWAY_GROUP} is empty, and no gateway serves such an object; name a "
                "group, or remove the label"
            )
            where = f"{document.kind} {'/'.join(document.key)}"
            yield Problem(source, where, "metadata.labels", text)
    groups = {d.function_key: d.metadata.group for _, d in grouped if isinstance(d, FunctionServer)}
    for source, document in grouped:
        if isinstance(document, FunctionServer):
            continue
        group = document.metadata.group
        for function in dict.fromkeys(stage.function for stage in document.spec.stages):
            owner = groups.setdefault((document.key[0], function), group)
            if owner != group:
                text = (
                    f"function {function!r} is of {_named(owner)}, and this Workflow of "
                    f"{_named(group)}; give those that share it the same {LABEL_GATEWAY_GROUP}"
                )
                yield Problem(source, f"Workflow {'/'.join(document.key)}", "metadata.labels", text)


def _named(group: str) -> str:
    return f"the gateway group {group!r}" if group else "no gateway group"


def _unmeasured(documents: DocumentSet) -> list[Problem]:
    """Find profiles that have a 95th percentile for some configurations only."""
    return [
        Problem(
            source,
            f"FunctionProfile {document.metadata.name}",
            f"spec.gpus[{index}].configurations",
            f"{count} of {len(gpu.configurations)} have no p95Ms; they count with the largest "
            "ratio of p95Ms to latencyMs of the function. Measure all or none",
            warning=True,
        )
        for source, document in documents.documents
        if isinstance(document, FunctionProfile)
        and any(c.p95_ms is not None for gpu in document.spec.gpus for c in gpu.configurations)
        for index, gpu in enumerate(document.spec.gpus)
        if (count := sum(c.p95_ms is None for c in gpu.configurations))
    ]
