"""``esg samples`` and ``esg reference``: files generated from the code."""

from collections.abc import Mapping
from pathlib import Path

import typer

from scheduler.cli.failure import fail
from scheduler.model.message_text import os_error_text
from workbench.commands.reference import reference_pages
from workbench.profiles.generated import sample_documents


def write_samples(folder: Path) -> None:
    """Write the sample workflows and their profiles."""
    _write(folder, sample_documents())


def write_reference(folder: Path) -> None:
    """Write the reference pages."""
    _write(folder, reference_pages())


def _write(folder: Path, files: Mapping[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
            typer.echo(str(folder / name))
    except OSError as error:
        fail(os_error_text(error, folder))
