"""``esg agent`` and ``esg mps``: what runs on every node that has GPUs."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from pydantic import ValidationError

from scheduler.agent import app as agent_app
from scheduler.agent.checking import findings
from scheduler.agent.keeping import Keeper
from scheduler.agent.service import Agent, Connect
from scheduler.agent.settings import AgentSettings
from scheduler.cli.reading import read_settings
from scheduler.cli.serving import configure_logging
from scheduler.cluster.api import connect
from scheduler.cluster.errors import ClusterConfigError
from scheduler.cluster.one_node import OneNode
from scheduler.cluster.reflector import Handler


def agent(
    node: Annotated[
        str, typer.Option(envvar="NODE_NAME", help="name of the Node object of this machine")
    ],
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="the cluster; default: in-cluster, else the usual kubeconfig"),
    ] = None,
) -> None:
    """Publish this node's GPUs and their health (ESG_AGENT_… variables)."""
    settings = _settings()
    listening = _listen(settings)
    try:
        uvloop.run(
            agent_app.serve(Agent(settings, node, connect=_live(node, kubeconfig)), listening)
        )
    except ClusterConfigError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


mps = typer.Typer()


@mps.callback(invoke_without_command=True)
def keep(context: typer.Context) -> None:
    """Keep one MPS daemon for each GPU of this node (ESG_AGENT_… variables)."""
    if context.invoked_subcommand is not None:
        return
    asyncio.run(_keep(_settings()))  # uvloop loses child processes whose start is cancelled


@mps.command("check")
def check() -> None:
    """Say whether the limits of a share are in force in this container; 1 where any is not."""
    good = True
    for finding in findings(os.environ):
        typer.echo(str(finding))
        good &= finding.verdict == "ok"
    raise typer.Exit(0 if good else 1)


async def _keep(settings: AgentSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await Keeper(settings).run(stop)


def _settings() -> AgentSettings:
    """The environment's settings, logging set by them; a wrong one ends the command."""
    try:
        settings = AgentSettings()
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            name = "_".join(str(part) for part in detail["loc"]).upper()
            typer.echo(
                f"error: ESG_AGENT_{name}: {detail['msg']} (given: {detail['input']!r})", err=True
            )
        raise typer.Exit(2) from None
    configure_logging(read_settings(log_level=settings.log_level, log_json=settings.log_json))
    return settings


def _listen(settings: AgentSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        typer.echo(
            f"error: cannot listen on {settings.host} port {settings.port} (ESG_AGENT_HOST, "
            f"ESG_AGENT_PORT): {error.strerror or error}",
            err=True,
        )
        raise typer.Exit(1) from None


def _live(name: str, kubeconfig: Path | None) -> Connect:
    @asynccontextmanager
    async def connected(node: Handler, pods: Handler) -> AsyncIterator[OneNode]:
        async with connect(None if kubeconfig is None else str(kubeconfig)) as api:
            yield OneNode(api, name, node=node, pods=pods)

    return connected
