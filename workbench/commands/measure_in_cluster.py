"""``esg profiles measure -f``: the profile of a function from pods in a cluster."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import typer

from scheduler.cli.document_files import read_settings, read_sound
from scheduler.cluster.api import Api, connect
from scheduler.model.function_server import FunctionServer
from scheduler.model.message_text import quoted
from workbench.commands.measurement_output import (
    FunctionMeasurement,
    MeasurementOutput,
    Record,
    slowdown_by,
    with_slowdown,
    write_measurement,
)
from workbench.commands.profile_output import (
    batch_sizes,
    name_value_pairs,
    number_list,
    refuse,
)
from workbench.commands.series_progress import progress_bar
from workbench.profiles.adaptive_plan import ERROR_RATIO
from workbench.profiles.batch_times import Precision
from workbench.profiles.cluster_interference import (
    NeighbourFunction,
    measure_beside,
    pair_percents,
)
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
        beside: function of another FunctionServer in the file, whose pod is the neighbour; None:
            no neighbour is measured.
        beside_percent: GPU share of that pod; None: that of the measured pod.
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
    beside: str | None
    beside_percent: int | None
    start_s: float
    scheduler_name: str
    kubeconfig: Path | None


def measure_in_cluster(options: ClusterOptions, output: MeasurementOutput) -> None:
    """Measure the grid in pods, and write the profile; exit 1 after an error."""
    server, neighbour_server = _servers(options.file, options.beside)
    grid = _grid(options, server)
    neighbour = (
        None
        if neighbour_server is None
        else _neighbour(neighbour_server, grid, options.beside_percent)
    )

    def report(line: str) -> None:
        typer.echo(line, err=True)

    async def interference(
        api: Api, neighbour: NeighbourFunction
    ) -> Mapping[str, Mapping[str, float]]:
        slowdown = await measure_beside(api, grid, neighbour, report)
        names = server.spec.function, neighbour.server.spec.function
        return slowdown_by(*names, max(grid.batches), slowdown)

    async def measure(points: Sequence[MeasuredPoint], record: Record) -> FunctionMeasurement:
        async with connect(options.kubeconfig) as api:
            measurement = ClusterMeasurement(api, grid, points, report)
            with progress_bar("points at most", total=len(grid.points)) as advance:
                async with aclosing(measurement.run()) as run:
                    async for measured in run:
                        record(measured)
                        advance()
            _report_skipped(grid, measurement.points)
            if neighbour is None:
                return FunctionMeasurement(measurement.points)
            return await with_slowdown(measurement.points, interference(api, neighbour))

    write_measurement(measure, output, cold_start_ms=options.cold_start_ms)


def _report_skipped(grid: ClusterGrid, points: Sequence[MeasuredPoint]) -> None:
    places = {(p.batch, p.cpu, p.gpu_percent) for p in points} & {*grid.points}
    if grid.error_ratio is not None:
        typer.echo(
            f"{len(places)} of {len(grid.points)} points measured; by the fitted times the others "
            f"lower the cost of no plan by more than {100 * grid.error_ratio:g} %",
            err=True,
        )


def _servers(file: Path, beside: str | None) -> tuple[FunctionServer, FunctionServer | None]:
    """Read the FunctionServer that is measured, and the neighbour's."""
    servers = [document for document in read_sound(file) if isinstance(document, FunctionServer)]
    neighbours = [server for server in servers if server.spec.function == beside]
    measured = [server for server in servers if server not in neighbours]
    count = 0 if beside is None else 1
    if len(measured) != 1 or len(neighbours) != count or any(not s.spec.template for s in servers):
        also = "" if beside is None else f", and one of function {quoted(beside)} (--beside)"
        refuse([f"{file} must have one FunctionServer with a template{also}"])
    return measured[0], next(iter(neighbours), None)


def _neighbour(server: FunctionServer, grid: ClusterGrid, percent: int | None) -> NeighbourFunction:
    pair = pair_percents(grid.gpu_percents, percent)
    if pair is None:
        limit = 100 - percent if percent else 50
        raise typer.BadParameter(
            f"--beside needs a share that leaves room for the neighbour: at most {limit} %",
            param_hint="--shares",
        )
    return NeighbourFunction(server=server, measured_percent=pair[0], gpu_percent=pair[1])


def _grid(options: ClusterOptions, server: FunctionServer) -> ClusterGrid:
    if options.memory_mib is None:
        raise typer.BadParameter(
            "-f needs the GPU memory that the pods may have", param_hint="--memory-mib"
        )
    return ClusterGrid(
        server=server,
        gpu_percents=number_list("--shares", options.shares, "gpu_percent"),
        cpus=number_list("--cpus", options.cpus, "cpu"),
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
