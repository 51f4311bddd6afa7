"""``esg doctor``: what this node has, and what is missing."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap

import typer

from scheduler.agent.doctor import Finding, findings, host_root
from scheduler.agent.pods.claimants import NodeUsers
from scheduler.agent.pods.node_pods import NodePods
from scheduler.cli.agent_settings import read_agent_settings
from scheduler.cluster.api import connect
from scheduler.cluster.errors import ClusterError
from scheduler.cluster.resource import NODES, PODS, trim_pod

_WIDTH = 72


def examine_node(node: str, kubeconfig: Path | None, *, as_json: bool) -> None:
    """Print all findings; exit 1 if something is missing."""
    settings = read_agent_settings()
    users = asyncio.run(_node_users(node, kubeconfig)) if node else None
    results = list(findings(settings, users, root=host_root()))
    if as_json:
        typer.echo(json.dumps([asdict(result) for result in results], indent=2))
    else:
        typer.echo("\n".join(_table(results)))
    raise typer.Exit(1 if any(result.verdict == "missing" for result in results) else 0)


async def _node_users(name: str, kubeconfig: Path | None) -> NodeUsers | None:
    pods = NodePods()
    try:
        async with connect(kubeconfig) as api:
            query = {"fieldSelector": f"metadata.name={name}"}
            nodes = (await api.get(NODES.path, query=query))["items"]
            query = {"fieldSelector": f"spec.nodeName={name}"}
            bound = (await api.get(PODS.path, query=query))["items"]
    except ClusterError as error:
        typer.echo(f"the API server cannot be asked: {error}", err=True)
        return None
    pods.replace(trim_pod(pod) for pod in bound)
    return NodeUsers(nodes[0] if nodes else None, pods.granted, tuple(pods.whole_gpu.values()))


def _table(results: Iterable[Finding]) -> Iterable[str]:
    for result in results:
        first, *lines = wrap(result.text, _WIDTH) or [""]
        yield f"{result.verdict:8} {result.subject:22} {first}"
        lines += [f"-> {line}" for line in wrap(result.remedy, _WIDTH)]
        yield from (f"{'':31} {line}" for line in lines)
