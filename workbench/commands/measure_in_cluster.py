"""``esg profiles measure -f``: the profile of a function from pods in a cluster."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import typer

from scheduler.cli.document_files import read_settings, read_sound
from scheduler.cluster.api import connect
from scheduler.model.function_server import FunctionServer
from workbench.commands.measurement_output import MeasurementOutput, Record, write_measurement
from workbench.commands.profile_output import (
    batch_sizes,
    name_value_pairs,
    number_list,
    refuse,
)
from workbench.commands.series_progress import progress_bar
from workbench.profiles.adaptive_plan import ERROR_RATIO
from workbench.profiles.batch_times import Precision
from workbench.profiles.cluster_measurement import ClusterGrid, ClusterMeasurement
from workbench.profiles.measured_points import MeasuredPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Options of the command that define the measurement.

    Attributes:
        file: file with the FunctionServer.
        shares, cpus, batches: axes of the grid, separated by commas; None: not given.
        batch_max: largest batch, where ``batches`` is None.
        inputs: files and shapes of inputs, as NAME=VALUE.
        memory_mib: GPU memory of each pod.
        gpu_model: NVML's name of the GPU; empty: that of the first pod.
        whole_grid: true to measure all points.
        start_s: longest time until a pod answers, in seconds.
        scheduler_name: scheduler of the pods; empty: by the template or the webhook.
    """

    file: Path
    shares: str | None
    cpus: str | None
    batches: str | None
    batch_max: int
    inputs: Sequence[str]
    memory_mib: int | None
    gpu_model: str
    cold_start_ms: float | None
    precision: Precision
    whole_grid: bool
    start_s: float
    scheduler_name: str
    kubeconfig: Path | None


def measure_in_cluster(options: ClusterOptions, output: MeasurementOutput) -> None:
    """Measure the grid in pods, and write the profile; exit 1 after an error."""
    grid = _grid(options)

    async def measure(points: Sequence[MeasuredPoint], record: Record) -> list[MeasuredPoint]:
        async with connect(options.kubeconfig) as api:
            measurement = ClusterMeasurement(
                api, grid, points, lambda line: typer.echo(line, err=True)
            )
            with progress_bar("points at most", total=len(grid.points)) as advance:
                async with aclosing(measurement.run()) as run:
                    async for measured in run:
                        record(measured)
                        advance()
        _report_skipped(grid, measurement.points)
        return measurement.points

    write_measurement(measure, output, cold_start_ms=options.cold_start_ms)


def _report_skipped(grid: ClusterGrid, points: Sequence[MeasuredPoint]) -> None:
    places = {(p.batch, p.cpu, p.gpu_percent) for p in points} & {*grid.points}
    if grid.error_ratio is not None:
        typer.echo(
            f"{len(places)} of {len(grid.points)} points measured; by the fitted times the others "
            f"lower the cost of no plan by more than {100 * grid.error_ratio:g} %",
            err=True,
        )


def _grid(options: ClusterOptions) -> ClusterGrid:
    servers = [d for d in read_sound(options.file) if isinstance(d, FunctionServer)]
    if len(servers) != 1 or servers[0].spec.template is None:
        refuse([f"{options.file} must have one FunctionServer with a template"])
    if options.memory_mib is None:
        raise typer.BadParameter(
            "-f needs the GPU memory that the pods may have", param_hint="--memory-mib"
        )
    return ClusterGrid(
        server=servers[0],
        gpu_percents=number_list("--shares", options.shares),
        cpus=number_list("--cpus", options.cpus),
        batches=batch_sizes(options.batches, options.batch_max),
        memory_mib=options.memory_mib,
        gpu_model=options.gpu_model,
        inputs=name_value_pairs("--input", options.inputs),
        precision=options.precision,
        prices=read_settings().prices,
        error_ratio=None if options.whole_grid else ERROR_RATIO,
        scheduler_name=options.scheduler_name,
        start_s=options.start_s,
    )
