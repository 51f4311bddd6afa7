"""``esg openb``: fill a cluster with the pods of a trace, by this placement and by other rules."""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from scheduler.cli.failure import fail, failing_on
from scheduler.model.document_reader import DocumentError
from studies.packing.arrivals import arrivals
from studies.packing.filling import CpuPods, Filled, fill
from studies.packing.rules import RuleName
from studies.packing.trace import Machine, TracePod, read_machines, read_pods


def compare_rules(
    pods: Path,
    nodes: Path,
    *,
    rules: Sequence[str] | None,
    inflation_ratio: float | None,
    seed: int | None,
    cpu_pods: str,
    as_json: bool,
) -> None:
    """Place the pods of a trace by each rule and print the results."""
    trace, machines = read_trace(pods, nodes)
    capacity_percent = 100 * sum(machine.gpus for machine in machines)
    try:
        stream = arrivals(trace, capacity_percent, inflation_ratio=inflation_ratio, seed=seed)
    except ValueError as error:
        fail(f"{pods}: {error}")
    names = _rule_names(rules)
    with Progress(console=Console(stderr=True)) as bar:
        results = [
            fill(
                machines,
                stream,
                rule,
                expected=trace,
                seed=seed or 0,
                cpu_pods=CpuPods(cpu_pods),
                track=_track(bar, rule),
            )
            for rule in names
        ]
    if as_json:
        cluster = {"gpus": capacity_percent // 100, "nodes": len(machines)}
        typer.echo(json.dumps(cluster | {"rules": [result.as_json() for result in results]}))
    else:
        _print(results, f"{len(machines):,} nodes, {capacity_percent // 100:,} GPUs")


def _rule_names(rules: Sequence[str] | None) -> list[RuleName]:
    try:
        return list(dict.fromkeys(map(RuleName, rules or RuleName)))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--rule") from None


def read_trace(pods: Path, nodes: Path) -> tuple[list[TracePod], list[Machine]]:
    """Read a trace's files; a problem is printed and ends the command."""
    with failing_on(DocumentError):
        return read_pods(pods), read_machines(nodes)


def _track(bar: Progress, rule: RuleName) -> Callable[[Sequence[TracePod]], Iterable[TracePod]]:
    return partial(bar.track, description=rule.value)


def _print(results: Sequence[Filled], cluster: str) -> None:
    demand_percent = results[0].end.arrived_percent
    title = f"{cluster}; {results[0].pods:,} pods request {demand_percent:.1f} % of them"
    table = Table(title=title)
    table.add_column("rule")
    for column in ("granted, % of GPUs", "fragmented, %", "unplaced", "multi-GPU unplaced", "s"):
        table.add_column(column, justify="right")
    for result in results:
        table.add_row(
            result.rule.value,
            f"{result.end.granted_percent:.2f}",
            f"{result.end.fragmentation_percent:.2f}",
            f"{result.unplaced:,}",
            f"{result.unplaced_several:,}",
            f"{result.seconds:.1f}",
        )
    Console().print(table)
