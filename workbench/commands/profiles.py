"""``esg profiles import``: FunctionProfiles out of a CSV of measurements."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from scheduler.model.quoting import quoted
from scheduler.model.reading import DocumentError, Problem
from workbench.profiles.measured_rows import FIELDS, Selection
from workbench.profiles.measurements import Imported, ImportRequest, import_measurements

_PROBLEMS_SHOWN_MAX = 20

app = typer.Typer(help="FunctionProfiles from elsewhere.", no_args_is_help=True)


@app.command("import")
def import_profiles(  # noqa: PLR0913 - each is an option of the command
    measurements: Annotated[
        Path,
        typer.Argument(
            metavar="CSV", help=f"measurements, one a row; its first line names {', '.join(FIELDS)}"
        ),
    ],
    *,
    gpu_model: Annotated[
        str, typer.Option(help="NVML's name of the GPU, as in 'NVIDIA A100-SXM4-80GB'")
    ],
    out: Annotated[Path, typer.Option(help="file to write; -: standard output")],
    mapped: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=COLUMN", help="the column of a field; repeatable"),
    ] = None,
    constants: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="a field that has no column; repeatable"),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="only rows that have it; repeatable"),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="FUNCTION", help="only this one; repeatable")
    ] = None,
    cold_start_ms: Annotated[
        float | None, typer.Option(min=0, help="of each function: pod start to first batch, ms")
    ] = None,
    output_mib: Annotated[
        float | None, typer.Option(min=0, help="of each function: output of one request, MiB")
    ] = None,
    keep_dominated: Annotated[
        bool, typer.Option("--keep-dominated", help="keep configurations that no plan needs")
    ] = False,
) -> None:
    """Make FunctionProfiles of measured latencies; where anything is wrong, nothing is written."""
    request = ImportRequest(
        selection=Selection(
            columns=_once("--map", mapped),
            constants=_once("--set", constants),
            where=_pairs("--where", where),
            only=frozenset(only or ()),
        ),
        gpu_model=gpu_model,
        cold_start_ms=cold_start_ms,
        output_mib=output_mib,
        keep_dominated=keep_dominated,
    )
    try:
        imported = import_measurements(_text(measurements), str(measurements), request)
    except DocumentError as error:
        _refuse(error.problems)
    _write(imported, out)
    for function, name in imported.renamed.items():
        typer.echo(f"{quoted(function)} is named {name}", err=True)
    typer.echo(imported.summary(), err=True)


def _pairs(option: str, given: Iterable[str] | None) -> list[tuple[str, str]]:
    pairs = []
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{quoted(text)} has no form NAME=VALUE", param_hint=option)
        pairs.append((name.strip(), value.strip()))
    return pairs


def _once(option: str, given: Iterable[str] | None) -> dict[str, str]:
    pairs = _pairs(option, given)
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise typer.BadParameter(f"{twice} is given more than once", param_hint=option)
    return dict(pairs)


def _text(file: Path) -> str:
    try:
        # As it is, for the csv module sees to line ends; less a byte order mark.
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
