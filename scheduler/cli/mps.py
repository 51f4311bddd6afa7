"""``esg mps``: the MPS daemons of a node, and whether their limits hold in a container."""

import asyncio
import os
import signal

import typer

from scheduler.agent.mps_check import findings
from scheduler.agent.mps_supervisor import MpsSupervisor, MpsSupervisorError
from scheduler.agent.settings import AgentSettings
from scheduler.cli.agent_settings import read_agent_settings

app = typer.Typer()


@app.callback(invoke_without_command=True)
def keep(context: typer.Context) -> None:
    """Keep one MPS daemon for each GPU of this node (ESG_AGENT_… variables)."""
    if context.invoked_subcommand is not None:
        return
    settings = read_agent_settings()
    try:
        asyncio.run(_keep(settings))  # uvloop loses child processes whose start is cancelled
    except MpsSupervisorError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


@app.command("check")
def check() -> None:
    """Say whether the limits of a share are in force in this container; 1 where any is not."""
    good = True
    for finding in findings(os.environ):
        typer.echo(str(finding))
        good &= finding.verdict in {"ok", "undecided"}
    raise typer.Exit(0 if good else 1)


async def _keep(settings: AgentSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await MpsSupervisor(settings).run(stop)
