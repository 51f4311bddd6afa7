"""``esg demo``: requests through the gateway to played model servers, in a cluster in memory."""

import json
from pathlib import Path
from typing import Any

import typer
import uvloop
from rich.console import Console

from scheduler.cli.document_files import read_nodes, read_settings, read_sound
from scheduler.cli.failure import fail, failing_on, stopped_by_ctrl_c
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.node import NodeError, checked_node, node_from_json
from workbench.cluster.extender import ExtenderError
from workbench.cluster.mocked_nodes import gpu_nodes
from workbench.cluster.process import ProgramError
from workbench.demo import board
from workbench.demo.cluster import Share
from workbench.demo.runner import DemoConfig, play
from workbench.profiles.generated import samples
from workbench.simulation.workloads.paper import Load

_NODES = 16


def run_demo(
    *,
    nodes: Path | None,
    profiles: Path | None,
    warm_up_s: float,
    seconds: float,
    cool_down_s: float,
    seed: int,
    share: Share,
    load: Load,
    as_json: bool,
) -> None:
    """Send requests through the gateway, and print the summary."""
    documents = samples() if profiles is None else read_sound(profiles)
    workflows = [d for d in documents if isinstance(d, Workflow)]
    if not workflows:
        fail(f"no Workflow in {profiles}; add one")
    config = DemoConfig(
        nodes=gpu_nodes(_NODES, 1) if nodes is None else _checked_nodes(nodes),
        workflows=workflows,
        profiles=[d for d in documents if isinstance(d, FunctionProfile)],
        load=load,
        warm_up_s=warm_up_s,
        seconds=seconds,
        cool_down_s=cool_down_s,
        seed=seed,
        share=share,
        prices=read_settings().prices,
    )
    console = Console(stderr=as_json)
    with failing_on(ProgramError, ExtenderError), stopped_by_ctrl_c():
        summary = uvloop.run(play(config, console))
    if as_json:
        typer.echo(json.dumps(summary.as_json()))
    else:
        board.print_summary(console, summary)


def _checked_nodes(path: Path) -> list[dict[str, Any]]:
    try:
        nodes = [checked_node(node, number) for number, node in enumerate(read_nodes(path), 1)]
        has_gpu = any(node_from_json(node).gpus for node in nodes)
    except NodeError as error:
        raise typer.BadParameter(f"{path}: {error}") from None
    if not has_gpu:
        raise typer.BadParameter(f"{path} holds no Node with a GPU")
    return nodes
