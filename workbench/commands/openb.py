"""``esg openb``: fill a cluster with the pods of a trace, by our placement and by others' rules."""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from scheduler.model.reading import DocumentError
from workbench.simulation.packing.arrivals import arrivals
from workbench.simulation.packing.packing import CpuPods, Filled, fill
from workbench.simulation.packing.rules import RuleName
from workbench.simulation.packing.trace import Machine, Pod, read_machines, read_pods


def openb(  # noqa: PLR0913 - each is an option of the command
    *,
    pods: Annotated[Path, typer.Option(metavar="CSV", help="what arrives: openb_pod_list_….csv")],
    nodes: Annotated[Path, typer.Option(metavar="CSV", help="where: openb_node_list_….csv")],
    rules: Annotated[
        list[RuleName] | None,
        typer.Option("--rule", help="of placement; repeatable; default: all"),
    ] = None,
    inflate: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=100, help="draw pods anew until they ask that many times the GPUs"
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="of the draw and the order; default: as created, inflated: 0"),
    ] = None,
    cpu_pods: Annotated[
        CpuPods, typer.Option(help="who places pods that ask for no GPU")
    ] = CpuPods.RULE,
    as_json: Annotated[
        bool, typer.Option("--json", help="print one JSON object, with the curves")
    ] = False,
) -> None:
    """Place the pods of a trace one after the other, without deletions, until the GPUs are full."""
    listed, machines = _read(pods, nodes)
    capacity_percent = 100 * sum(machine.gpus for machine in machines)
    try:
        arriving = arrivals(listed, capacity_percent, inflate=inflate, seed=seed)
    except ValueError as error:
        typer.echo(f"error: {pods}: {error}", err=True)
        raise typer.Exit(1) from None
    with Progress(console=Console(stderr=True)) as bar:
        found = [
            fill(
                machines,
                arriving,
                rule,
                expected=listed,
                seed=seed or 0,
                cpu_pods=cpu_pods,
                track=_track(bar, rule),
            )
            for rule in dict.fromkeys(rules or RuleName)
        ]
    if as_json:
        told = {"gpus": capacity_percent // 100, "nodes": len(machines)}
        typer.echo(json.dumps(told | {"rules": [each.as_json() for each in found]}))
    else:
        _print(found, f"{len(machines):,} nodes, {capacity_percent // 100:,} GPUs")


def _read(pods: Path, nodes: Path) -> tuple[list[Pod], list[Machine]]:
    try:
        return read_pods(pods), read_machines(nodes)
    except DocumentError as error:
        for problem in error.problems:
            typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(1) from None


def _track(bar: Progress, rule: RuleName) -> Callable[[Sequence[Pod]], Iterable[Pod]]:
    return partial(bar.track, description=rule.value)


def _print(found: Sequence[Filled], cluster: str) -> None:
    asked = found[0].end.arrived_percent
    table = Table(title=f"{cluster}; {found[0].pods:,} pods that ask {asked:.1f} % of them")
    table.add_column("rule")
    for column in ("granted, % of GPUs", "fragmented, %", "unplaced", "of several GPUs", "s"):
        table.add_column(column, justify="right")
    for each in found:
        table.add_row(
            each.rule.value,
            f"{each.end.granted_percent:.2f}",
            f"{each.end.fragmentation_percent:.2f}",
            f"{each.unplaced:,}",
            f"{each.unplaced_several:,}",
            f"{each.seconds:.1f}",
        )
    Console().print(table)
