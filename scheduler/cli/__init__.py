"""The command ``esg``: serve, plan, check, and what prints documents."""

import typer

from scheduler import __version__
from scheduler.cli import (
    agent,
    checking,
    demo,
    documents,
    openb,
    paper,
    planning,
    profiles,
    reference,
    serving,
    simulating,
)

app = typer.Typer(
    name="esg",
    help="GPU shares, batches and vCPUs of function pods from their workflow's latency SLO.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("serve")(serving.serve)
app.command("agent")(agent.agent)
app.add_typer(agent.mps, name="mps")
app.command("demo")(demo.demo)
app.command("plan")(planning.plan)
app.command("simulate")(simulating.simulate)
app.command("openb")(openb.openb)
app.command("check")(checking.check)
app.add_typer(profiles.app, name="profiles")
app.command("crds")(documents.crds)
app.command("samples")(documents.samples)
app.command("reference")(reference.reference)
app.command("paper", hidden=True)(paper.paper)
app.command("warm-up")(serving.warm_up)


@app.command("version")
def version() -> None:
    """Print the version."""
    typer.echo(__version__)
