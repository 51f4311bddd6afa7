"""``esg profiles import``: convert files of measurements into FunctionProfiles."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from scheduler.model.document_reader import DocumentError, Problem
from scheduler.model.message_text import quoted, reason_of
from workbench.commands.profile_output import name_value_pairs, number_list, refuse, write_text
from workbench.profiles.latency_units import Unit
from workbench.profiles.measured_rows import CsvLayout, MeasuredRows, read_rows
from workbench.profiles.measurements import ImportRequest, import_rows
from workbench.profiles.tool_exports import ExportFile, Tool, read_exports


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of the command; None leaves a value to its default.

    Attributes:
        measurements: files with measurements.
        tool: tool that wrote them; None: a CSV with one measurement in each row.
        columns, constants: columns and values of fields, as FIELD=VALUE.
        batches: batch of each file, separated by commas.
        gpu_file: Model Analyzer's file with the memory of the GPU.
        latency_unit: unit of the latencies.
    """

    measurements: Sequence[Path]
    tool: Tool | None
    columns: Iterable[str]
    constants: Iterable[str]
    batches: str | None
    gpu_file: Path | None
    latency_unit: Unit | None
    gpu_model: str
    cold_start_ms: float | None
    output_mib: float | None


def convert_measurements(options: ImportOptions, out: Path) -> None:
    """Write FunctionProfiles from measurements, or print the problems and exit 1."""
    request = ImportRequest(
        layout=CsvLayout(
            columns=name_value_pairs("--map", options.columns),
            constants=name_value_pairs("--set", options.constants),
            latency_unit=options.latency_unit,
        ),
        gpu_model=options.gpu_model,
        cold_start_ms=options.cold_start_ms,
        output_mib=options.output_mib,
    )
    try:
        imported = import_rows(_rows(options, request.layout), request)
    except DocumentError as error:
        refuse(error.problems)
    write_text(out, imported.as_yaml())
    for function, name in imported.renamed.items():
        typer.echo(f"{quoted(function)} is named {name}", err=True)
    typer.echo(imported.summary(), err=True)


def _rows(options: ImportOptions, layout: CsvLayout) -> MeasuredRows:
    files = options.measurements
    if options.tool is None:
        if len(files) > 1 or options.batches or options.gpu_file:
            raise typer.BadParameter(
                "several files, --batches and --gpu-file need --from TOOL", param_hint="--from"
            )
        return read_rows(_text(files[0]), str(files[0]), layout)
    if layout.columns:
        raise typer.BadParameter("the columns of a tool are known", param_hint="--map")
    batches: list[int | None] = [None] * len(files)
    if options.batches is not None:
        if "batch" in layout.constants:
            raise typer.BadParameter("--set has a batch too; remove one", param_hint="--batches")
        batches = [*number_list("--batches", options.batches, "batch")]
        if len(batches) != len(files):
            raise typer.BadParameter(
                f"{len(batches)} batches for {len(files)} files", param_hint="--batches"
            )
    gpu_file = options.gpu_file
    return read_exports(
        options.tool,
        [
            ExportFile(_text(file), str(file), batch)
            for file, batch in zip(files, batches, strict=True)
        ],
        layout.constants,
        unit=layout.latency_unit,
        gpu_file=None if gpu_file is None else ExportFile(_text(gpu_file), str(gpu_file)),
    )


def _text(file: Path) -> str:
    try:
        # Bytes, because the csv module handles line ends itself; utf-8-sig drops a byte order mark.
        return file.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(
            [Problem(str(file), "the file", "", f"cannot be read: {reason_of(error)}")]
        ) from None
