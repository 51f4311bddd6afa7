"""``esg agent``: publish the GPUs of a node."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from scheduler.agent import app as agent_app
from scheduler.agent.service import Agent, ConnectNode
from scheduler.cli.agent_settings import read_agent_settings
from scheduler.cli.failure import failing_on
from scheduler.cluster.api import connect
from scheduler.cluster.errors import ClusterConfigError
from scheduler.cluster.one_node import OneNode
from scheduler.cluster.reflector import Handler
from scheduler.server.sockets import ListenError


def run_agent(node: str, kubeconfig: Path | None) -> None:
    """Run the agent of this node until a signal ends it.

    It runs on asyncio's own loop, because it starts programs of MPS. uvloop loses those whose start
    is cancelled, and forks, upon which gRPC restarts itself in the child, where it may crash.
    """
    settings = read_agent_settings()
    with failing_on(ListenError, ClusterConfigError):
        asyncio.run(
            agent_app.serve(Agent(settings, node, connect=_live(node, kubeconfig)), settings)
        )


def _live(name: str, kubeconfig: Path | None) -> ConnectNode:
    @asynccontextmanager
    async def connected(node: Handler, pods: Handler) -> AsyncIterator[OneNode]:
        async with connect(kubeconfig) as api:
            yield OneNode(api, name, node=node, pods=pods)

    return connected
