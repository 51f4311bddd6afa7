"""``esg demo``: the service on an embedded cluster, under a synthetic load."""

import json
from pathlib import Path

import typer
import uvloop
from rich.console import Console

from scheduler.cli.document_files import read_nodes, read_settings, read_sound
from scheduler.model.documents import Workflow
from workbench.demo import board
from workbench.demo.extender import DemoError
from workbench.demo.runner import DemoConfig, play
from workbench.simulation.workloads.paper import Load

_INTERRUPTED = 130  # exit status by which shells report an end by Ctrl-C


def run_demo(
    *, nodes: Path, profiles: Path, seconds: float, seed: int, load: Load, as_json: bool
) -> None:
    """Play requests against the service, and print the summary."""
    workflows = [d for d in read_sound(profiles) if isinstance(d, Workflow)]
    if not workflows:
        typer.echo(f"error: no Workflow in {profiles}; add one", err=True)
        raise typer.Exit(1)
    config = DemoConfig(
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
        summary = uvloop.run(play(config, console))
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
        names = [str(node["metadata"]["name"]) for node in read_nodes(nodes)]
    except (KeyError, TypeError) as error:
        raise typer.BadParameter(f"{nodes}: {error!r}") from None
    if not names:
        raise typer.BadParameter(f"{nodes} holds no Node")
    return names
