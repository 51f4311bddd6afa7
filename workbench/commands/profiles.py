"""``esg profiles import``: convert a CSV of measurements into FunctionProfiles."""

from collections.abc import Iterable
from pathlib import Path

import typer

from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.message_text import quoted
from workbench.commands.profile_output import name_value_pairs, refuse, write_text
from workbench.profiles.measured_rows import CsvLayout
from workbench.profiles.measurements import ImportRequest, import_measurements


def convert_measurements(
    measurements: Path,
    out: Path,
    *,
    columns: Iterable[str],
    constants: Iterable[str],
    gpu_model: str,
    cold_start_ms: float | None,
    output_mib: float | None,
) -> None:
    """Write FunctionProfiles from a CSV, or print the problems and exit 1."""
    request = ImportRequest(
        layout=CsvLayout(
            columns=name_value_pairs("--map", columns),
            constants=name_value_pairs("--set", constants),
        ),
        gpu_model=gpu_model,
        cold_start_ms=cold_start_ms,
        output_mib=output_mib,
    )
    try:
        imported = import_measurements(_text(measurements), str(measurements), request)
    except DocumentError as error:
        refuse(error.problems)
    write_text(out, imported.as_yaml())
    for function, name in imported.renamed.items():
        typer.echo(f"{quoted(function)} is named {name}", err=True)
    typer.echo(imported.summary(), err=True)


def _text(file: Path) -> str:
    try:
        # Bytes, because the csv module handles line ends itself; utf-8-sig drops a byte order mark.
        return file.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or f"{error}; it must be UTF-8"
        raise DocumentError(
            [Problem(str(file), "the file", "", f"cannot be read: {reason}")]
        ) from None
