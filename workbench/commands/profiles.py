"""``esg profiles import``: convert a CSV of measurements into FunctionProfiles."""

from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import typer

from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.message_text import quoted
from workbench.profiles.measured_rows import CsvLayout
from workbench.profiles.measurements import Imported, ImportRequest, import_measurements

_PROBLEMS_SHOWN_MAX = 20


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
        layout=CsvLayout(columns=_pairs("--map", columns), constants=_pairs("--set", constants)),
        gpu_model=gpu_model,
        cold_start_ms=cold_start_ms,
        output_mib=output_mib,
    )
    try:
        imported = import_measurements(_text(measurements), str(measurements), request)
    except DocumentError as error:
        _refuse(error.problems)
    _write(imported, out)
    for function, name in imported.renamed.items():
        typer.echo(f"{quoted(function)} is named {name}", err=True)
    typer.echo(imported.summary(), err=True)


def _pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals):
            raise typer.BadParameter(
                f"{quoted(text)} must have the form NAME=VALUE", param_hint=option
            )
        if name in pairs:
            raise typer.BadParameter(f"{name} must not be repeated", param_hint=option)
        pairs[name] = value
    return pairs


def _text(file: Path) -> str:
    try:
        # Bytes, because the csv module handles line ends itself; utf-8-sig drops a byte order mark.
        return file.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or f"{error}; it must be UTF-8"
        raise DocumentError(
            [Problem(str(file), "the file", "", f"cannot be read: {reason}")]
        ) from None


def _refuse(problems: tuple[Problem, ...]) -> NoReturn:
    for problem in problems[:_PROBLEMS_SHOWN_MAX]:
        typer.echo(f"error: {problem}", err=True)
    if len(problems) > _PROBLEMS_SHOWN_MAX:
        typer.echo(f"error: and {len(problems) - _PROBLEMS_SHOWN_MAX:,} more", err=True)
    raise typer.Exit(1) from None


def _write(imported: Imported, out: Path) -> None:
    text = imported.as_yaml()
    if str(out) == "-":
        typer.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        _refuse((Problem(str(out), "the file", "", f"cannot be written: {error.strerror}"),))
