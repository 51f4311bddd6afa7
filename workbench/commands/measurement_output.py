"""File of points, profile, page and JSON of ``esg profiles measure``."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import typer
import yaml

from scheduler.cluster.errors import ClusterError
from scheduler.gateway.model_server import ModelServerError
from scheduler.model.document_reader import DocumentError
from scheduler.model.documents import FunctionProfile, to_manifest
from scheduler.model.message_text import reason_of
from workbench.commands.profile_output import refuse, write_text
from workbench.local.servers import LocalServerError
from workbench.profiles.batch_inputs import InputError
from workbench.profiles.gpu_memory import GpuMemoryError
from workbench.profiles.interference import NeighbourError, Slowdown
from workbench.profiles.measured_pod import MeasuredPodError
from workbench.profiles.measured_points import (
    MeasuredPoint,
    append_point,
    measured_profile,
    read_points,
)
from workbench.profiles.profile_documents import as_yaml
from workbench.profiles.server_start import ServerStartError
from workbench.reports.profile_page import profile_page
from workbench.reports.renderer import MissingReportLibraryError, require_extra

_SUFFIX = ".jsonl"
_REMARK = "Measured by esg profiles measure."
_LOST = "would be lost; name another file by -o, or remove it"
_RATIO_DIGITS = 3
_ERRORS = (
    ClusterError,
    GpuMemoryError,
    InputError,
    LocalServerError,
    MeasuredPodError,
    MissingReportLibraryError,
    ModelServerError,
    NeighbourError,
    ServerStartError,
)


@dataclass(frozen=True, slots=True)
class FunctionMeasurement:
    """Points of a function.

    Attributes:
        points: measured points, earlier ones included.
        interference: slowdown by neighbours, as `interference` of a scenario.
        problem: error of the neighbour, after which the points still count; None: none.
    """

    points: Sequence[MeasuredPoint]
    interference: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    problem: Exception | None = None


Record = Callable[[MeasuredPoint], None]
Measure = Callable[[Sequence[MeasuredPoint], Record], Awaitable[FunctionMeasurement]]
"""Measures what the points lack, and records each new point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementOutput:
    """Files of a measurement.

    Attributes:
        out: file of the profile; ``-``: standard output.
        points_file: file of the points; None: beside ``out``.
        plot: page with plots; None: no page.
        to_json: true for profile and points as one JSON object on standard output.
    """

    out: Path
    points_file: Path | None
    plot: Path | None
    to_json: bool

    @property
    def points(self) -> Path | None:
        """File of the points; None without one."""
        if self.points_file is None and str(self.out) != "-":
            return self.out.with_suffix(_SUFFIX)
        return self.points_file


def write_measurement(
    measure: Measure, output: MeasurementOutput, *, cold_start_ms: float | None
) -> None:
    """Measure, and write the profile; exit 1 after an error, or in place of another file."""
    file = output.points
    _require_own(output.out, file)

    def record(measured: MeasuredPoint) -> None:
        if file is not None:
            try:
                append_point(file, measured)
            except OSError as error:
                refuse([f"{file} cannot be written: {reason_of(error)}"])
        typer.echo(measured.describe(), err=True)

    async def run(points: Sequence[MeasuredPoint]) -> FunctionMeasurement:
        return await measure(points, record)

    try:
        if output.plot is not None:
            require_extra()  # rather now than after the measurement
        measurement = asyncio.run(run([] if file is None else read_points(file)))
        profile = measured_profile(measurement.points, cold_start_ms=cold_start_ms)
        if output.plot is not None:
            write_text(output.plot, profile_page(profile))
    except DocumentError as error:
        refuse(error.problems)
    except _ERRORS as error:
        refuse([error])
    _print(profile, measurement, output)
    if measurement.problem is not None:
        refuse([measurement.problem])


def _require_own(out: Path, points: Path | None) -> None:
    """Refuse a file with other text than a profile of the points, which are written there whole."""
    if not out.is_file():
        return
    text = out.read_text(encoding="utf-8", errors="replace")
    if text and not text.startswith(f"# {_REMARK}"):
        refuse([f"{out}: its text is not of this command and {_LOST}"])
    if text and not (points is not None and points.exists()):
        refuse([f"{out}: its points are not in {points} and {_LOST}"])


async def with_slowdown(
    points: Sequence[MeasuredPoint], beside: Awaitable[Mapping[str, Mapping[str, float]]]
) -> FunctionMeasurement:
    """Add the slowdown by a neighbour to measured points, which an error of it does not lose."""
    try:
        return FunctionMeasurement(points, await beside)
    except _ERRORS as error:
        return FunctionMeasurement(points, problem=error)


def slowdown_by(
    function: str, neighbour: str, rows: int, slowdown: Slowdown
) -> Mapping[str, Mapping[str, float]]:
    """Print the slowdown of a function's batch by a neighbour; return it as `interference`."""
    typer.echo(
        f"batch {rows} beside {neighbour} with {slowdown.neighbour_percent} %: median "
        f"{slowdown.beside.median_ms:,.2f} ms, alone {slowdown.alone.median_ms:,.2f} ms",
        err=True,
    )
    return {function: {neighbour: round(slowdown.interference_ratio, _RATIO_DIGITS)}}


def _print(
    profile: FunctionProfile, measurement: FunctionMeasurement, output: MeasurementOutput
) -> None:
    points, interference = measurement.points, measurement.interference
    remarks = [_REMARK]
    if interference:
        table = yaml.safe_dump(dict(interference), default_flow_style=True).strip()
        remarks.append(f"For a scenario or a bundle: interference: {table}")
        typer.echo(remarks[-1], err=True)
    text = as_yaml([profile], *remarks)
    if str(output.out) != "-" or not output.to_json:
        write_text(output.out, text)
    if output.to_json:
        measured = [point.model_dump(mode="json", by_alias=True) for point in points]
        answer = {"profile": to_manifest(profile), "points": measured}
        typer.echo(json.dumps(answer | ({"interference": interference} if interference else {})))
