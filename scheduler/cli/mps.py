"""``esg mps``: MPS daemons of a node, and the check that limits are enforced in a container."""

import asyncio
import os
import signal

import typer

from scheduler.agent.mps.check import run_checks
from scheduler.agent.mps.supervisor import MpsSupervisor, MpsSupervisorError
from scheduler.agent.settings import AgentSettings
from scheduler.cli.agent_settings import read_agent_settings
from scheduler.cli.failure import failing_on


def supervise_daemons() -> None:
    """Run one MPS daemon per GPU until a signal ends it."""
    settings = read_agent_settings()
    with failing_on(MpsSupervisorError):
        asyncio.run(_supervise(settings))  # uvloop loses child processes whose start is cancelled


def check_limits() -> None:
    """Print one result per limit; exit 1 if a limit is not enforced."""
    passed = True
    for result in run_checks(os.environ):
        typer.echo(str(result))
        passed &= result.verdict in {"ok", "undecided"}
    raise typer.Exit(0 if passed else 1)


async def _supervise(settings: AgentSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await MpsSupervisor(settings).run(stop)
