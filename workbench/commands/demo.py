"""``esg demo``: requests through the gateway to played model servers, in a cluster in memory."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
import uvloop
from rich.console import Console

from scheduler.cli.attainability import unattainable
from scheduler.cli.document_files import read_nodes, read_settings, require_sound
from scheduler.cli.failure import fail, failing_on, stopped_by_ctrl_c
from scheduler.cli.fleet_file import fleet_of
from scheduler.model.documents import Document, FunctionProfile, Workflow
from scheduler.model.node import NodeError, checked_node, node_from_json
from scheduler.settings import Settings
from workbench.cluster.extender import ExtenderError
from workbench.cluster.mocked_nodes import gpu_nodes
from workbench.cluster.process import ProgramError
from workbench.commands.workflow_files import read_workflows
from workbench.demo import board
from workbench.demo.cluster import Share
from workbench.demo.runner import DemoConfig, play
from workbench.profiles.generated import samples
from workbench.simulation.workloads.paper import Load

_NODES = 16
_OTHER_NODES = ", or give other nodes by --nodes"


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
    settings = read_settings()
    node_documents = gpu_nodes(_NODES, 1) if nodes is None else _checked_nodes(nodes)
    documents = samples() if profiles is None else _read(profiles, node_documents, settings)
    config = DemoConfig(
        nodes=node_documents,
        workflows=[d for d in documents if isinstance(d, Workflow)],
        profiles=[d for d in documents if isinstance(d, FunctionProfile)],
        load=load,
        warm_up_s=warm_up_s,
        seconds=seconds,
        cool_down_s=cool_down_s,
        seed=seed,
        share=share,
        prices=settings.prices,
    )
    console = Console(stderr=as_json)
    with failing_on(ProgramError, ExtenderError), stopped_by_ctrl_c():
        summary = uvloop.run(play(config, console))
    if as_json:
        typer.echo(json.dumps(summary.as_json()))
    else:
        board.print_summary(console, summary)
    if not summary.results.answered:
        fail("no request was answered; the warnings above may say why")


def _read(path: Path, nodes: Sequence[dict[str, Any]], settings: Settings) -> list[Document]:
    """Read documents whose stages some node can hold, and whose SLOs can be met."""
    document_set, catalogue, sources = read_workflows([path])
    fleet = fleet_of(nodes, settings.limits)
    problems = [
        replace(problem, message=problem.message + _OTHER_NODES * (problem.field == "spec.stages"))
        for problem in unattainable(catalogue, sources, settings, fleet)
        if not problem.warning
    ]
    require_sound(document_set, problems)
    return [document for _, document in document_set.documents]


def _checked_nodes(path: Path) -> list[dict[str, Any]]:
    try:
        nodes = [checked_node(node, number) for number, node in enumerate(read_nodes(path), 1)]
        has_gpu = any(node_from_json(node).gpus for node in nodes)
    except NodeError as error:
        raise typer.BadParameter(f"{path}: {error}") from None
    if not has_gpu:
        raise typer.BadParameter(f"{path} holds no Node with a GPU")
    return nodes
