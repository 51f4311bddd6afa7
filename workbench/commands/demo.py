"""``esg demo``: the service at work, without a cluster."""

import json
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from scheduler.cli.reading import read_nodes, read_settings, read_sound
from scheduler.model.documents import Workflow
from workbench.demo import board
from workbench.demo.arrivals import Load
from workbench.demo.extender import DemoError
from workbench.demo.runner import DemoConfig, play

_INTERRUPTED = 130  # what shells say of a program that Ctrl-C ended


def demo(
    *,
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="seconds of arrivals")] = 25.0,
    seed: Annotated[int, typer.Option(help="of arrivals and run times")] = 0,
    load: Annotated[Load, typer.Option(help="how often requests arrive")] = Load.NORMAL,
    nodes: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="Node documents")] = Path(
        "deploy/nodes/mocked-16x1.yaml"
    ),
    profiles: Annotated[
        Path, typer.Option(exists=True, help="Workflows and FunctionProfiles")
    ] = Path("deploy/samples"),
    as_json: Annotated[
        bool, typer.Option("--json", help="print the summary as one JSON object")
    ] = False,
) -> None:
    """Play requests of the sample workflows against the service, and show what becomes of them."""
    workflows = [each for each in read_sound(profiles) if isinstance(each, Workflow)]
    if not workflows:
        typer.echo(f"error: {profiles} must hold a Workflow", err=True)
        raise typer.Exit(1)
    script = DemoConfig(
        nodes=nodes,
        profiles=profiles,
        node_names=_node_names(nodes),
        workflows=workflows,
        load=load,
        seconds=seconds,
        seed=seed,
        prices=read_settings().prices,
    )
    console = Console(stderr=as_json)
    try:
        summary = uvloop.run(play(script, console))
    except DemoError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps(summary.as_json()))
    else:
        board.print_summary(console, summary)


def _node_names(nodes: Path) -> list[str]:
    try:
        found = [str(node["metadata"]["name"]) for node in read_nodes(nodes)]
    except (KeyError, TypeError) as error:
        raise typer.BadParameter(f"{nodes}: {error!r}") from None
    if not found:
        raise typer.BadParameter(f"{nodes} holds no Node")
    return found
