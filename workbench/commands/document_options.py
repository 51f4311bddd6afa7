"""Options of the commands that write documents: samples, reference."""

from pathlib import Path
from typing import Annotated

import typer


def samples(
    out: Annotated[Path, typer.Option(help="folder to write to; created if missing")],
) -> None:
    """Write the sample workflows and their generated profiles."""
    from workbench.commands.documents import write_samples

    write_samples(out)


def reference(
    out: Annotated[Path, typer.Option(help="folder to write to; created if missing")],
) -> None:
    """Write the reference pages: settings, metrics, documents."""
    from workbench.commands.documents import write_reference

    write_reference(out)
