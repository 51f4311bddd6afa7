"""The command ``esg``: serve, plan, check, and what prints documents."""

from typing import ClassVar

import typer

from scheduler.cli.lazy_commands import LazyCommands


class _Esg(LazyCommands):
    places: ClassVar = {
        "serve": "scheduler.cli.serve:serve",
        "agent": "scheduler.cli.agent:agent",
        "demo": "workbench.commands.demo:demo",
        "plan": "workbench.commands.plan:plan",
        "simulate": "workbench.commands.simulate:simulate",
        "openb": "workbench.commands.openb:openb",
        "check": "scheduler.cli.check:check",
        "crds": "scheduler.cli.documents:crds",
        "samples": "scheduler.cli.documents:samples",
        "reference": "scheduler.cli.reference:reference",
        "withdraw": "scheduler.cli.cleanup:withdraw",
        "paper": "workbench.commands.paper:paper",
        "warm-up": "scheduler.cli.serve:warm_up",
        "version": "scheduler.cli.documents:version",
        "mps": "scheduler.cli.mps:app",
        "profiles": "workbench.commands.profiles:app",
    }
    hidden_commands = frozenset({"paper"})


app = typer.Typer(
    name="esg",
    cls=_Esg,
    help="GPU shares, batches and vCPUs of function pods from their workflow's latency SLO.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _esg() -> None:
    """Typer makes a group of an application that has a callback."""
