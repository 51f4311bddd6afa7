"""The command ``esg``: serve, plan, check, and what prints documents."""

from typing import ClassVar

import typer

from scheduler.cli.on_demand import OnDemand


class _Esg(OnDemand):
    places: ClassVar = {
        "serve": "scheduler.cli.serving:serve",
        "agent": "scheduler.cli.agent:agent",
        "demo": "scheduler.cli.demo:demo",
        "plan": "scheduler.cli.planning:plan",
        "simulate": "scheduler.cli.simulating:simulate",
        "openb": "scheduler.cli.openb:openb",
        "check": "scheduler.cli.checking:check",
        "crds": "scheduler.cli.documents:crds",
        "samples": "scheduler.cli.documents:samples",
        "reference": "scheduler.cli.reference:reference",
        "withdraw": "scheduler.cli.withdrawing:withdraw",
        "paper": "scheduler.cli.paper:paper",
        "warm-up": "scheduler.cli.serving:warm_up",
        "version": "scheduler.cli.documents:version",
        "mps": "scheduler.cli.mps:app",
        "profiles": "scheduler.cli.profiles:app",
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
