"""The command ``esg``: serve, plan, check, and what prints documents."""

import typer

from scheduler import __version__
from scheduler.cli import checking, demo, documents, planning, profiles, reference, serving

app = typer.Typer(
    name="esg",
    help="GPU shares, batches and vCPUs of function pods from their workflow's latency SLO.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("serve")(serving.serve)
app.command("demo")(demo.demo)
app.command("plan")(planning.plan)
app.command("check")(checking.check)
app.add_typer(profiles.app, name="profiles")
app.command("crds")(documents.crds)
app.command("samples")(documents.samples)
app.command("reference")(reference.reference)
app.command("warm-up")(serving.warm_up)


@app.command("version")
def version() -> None:
    """Print the version."""
    typer.echo(__version__)
