"""``esg agent``: the GPUs of a node, published."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from scheduler.agent import app as agent_app
from scheduler.agent.service import Agent, Connect
from scheduler.cli.agent_settings import read_agent_settings
from scheduler.cli.environment import Kubeconfig
from scheduler.cluster.api import connect
from scheduler.cluster.errors import ClusterConfigError
from scheduler.cluster.one_node import OneNode
from scheduler.cluster.reflector import Handler
from scheduler.server.sockets import ListenError, listening


def agent(
    node: Annotated[
        str, typer.Option(envvar="NODE_NAME", help="name of the Node object of this machine")
    ],
    kubeconfig: Kubeconfig = None,
) -> None:
    """Publish this node's GPUs and their health (ESG_AGENT_… variables)."""
    settings = read_agent_settings()
    address = settings.host, settings.port
    try:
        listener = listening(address, "ESG_AGENT_HOST, ESG_AGENT_PORT")
        uvloop.run(
            agent_app.serve(Agent(settings, node, connect=_live(node, kubeconfig)), listener)
        )
    except (ListenError, ClusterConfigError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


def _live(name: str, kubeconfig: Path | None) -> Connect:
    @asynccontextmanager
    async def connected(node: Handler, pods: Handler) -> AsyncIterator[OneNode]:
        async with connect(kubeconfig) as api:
            yield OneNode(api, name, node=node, pods=pods)

    return connected
