"""``esg crds``, ``esg samples`` and ``esg version``: what is printed from the code."""

from pathlib import Path
from typing import Annotated

import typer

from scheduler import __version__
from scheduler.cluster.crds import crds_yaml
from workbench.profiles.generated import sample_documents


def crds() -> None:
    """Print the CustomResourceDefinitions: esg crds | kubectl apply -f -."""
    typer.echo(crds_yaml(), nl=False)


def samples(
    out: Annotated[Path, typer.Option(help="folder to write to; it is made if it is not there")],
) -> None:
    """Write the sample workflows and their generated profiles."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in sample_documents().items():
            (out / name).write_text(text, encoding="utf-8")
            typer.echo(str(out / name))
    except OSError as error:
        typer.echo(f"error: {error.filename or out}: {error.strerror}", err=True)
        raise typer.Exit(1) from None


def version() -> None:
    """Print the version."""
    typer.echo(__version__)
