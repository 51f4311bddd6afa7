"""``esg agent``: the GPUs of a node, published."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from scheduler.agent import app as agent_app
from scheduler.agent.service import Agent, Connect
from scheduler.agent.settings import AgentSettings
from scheduler.cli.agent_settings import read_agent_settings
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
    settings = read_agent_settings()
    listening = _listen(settings)
    try:
        uvloop.run(
            agent_app.serve(Agent(settings, node, connect=_live(node, kubeconfig)), listening)
        )
    except ClusterConfigError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


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
