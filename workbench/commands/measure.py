"""``esg profiles measure``: the profile of a model server that runs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

import typer

from scheduler.gateway.model_server import ModelServer
from scheduler.gateway.model_servers import model_server
from scheduler.model.function_server import ServerProtocol
from workbench.commands.measurement_output import (
    FunctionMeasurement,
    MeasurementOutput,
    Record,
    slowdown_by,
    with_slowdown,
    write_measurement,
)
from workbench.commands.profile_output import batch_sizes, function_name, name_value_pairs
from workbench.commands.series_progress import progress_bar
from workbench.local.servers import (
    LocalServerError,
    ServerAddress,
    parse_address,
    protocol_of,
)
from workbench.profiles.batch_times import Precision
from workbench.profiles.gpu_memory import read_gpu, server_memory_mib
from workbench.profiles.interference import ServerBatches, measure_slowdown
from workbench.profiles.measured_points import MeasuredPoint
from workbench.profiles.measured_rows import label
from workbench.profiles.server_measurement import MeasuredServer, batch_run, measure_server
from workbench.profiles.server_start import started_server

_START_DIGITS = 1  # of a cold start in ms, for which a server is called fifty times a second


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOptions:
    """Options of the command that define the measurement; None leaves a value to its default.

    Attributes:
        inputs: files and shapes of inputs, as NAME=VALUE.
        batch_max: largest batch, where ``batches`` is None.
        batches: batches, separated by commas.
        cpu, gpu_percent: resources of the server.
        gpu_index: NVML's index of the server's GPU.
        pids: processes of the server.
        memory_mib: GPU memory of the server.
        start_command: command of the shell that starts the server; None: it runs.
        start_s: longest time until it is ready, in seconds.
        beside: URL and model of a server on the same GPU, as URL/MODEL; None: none.
        beside_percent: GPU share of that server.
    """

    url: str
    model: str
    function: str | None
    protocol: ServerProtocol | None
    inputs: Sequence[str]
    batch_max: int
    batches: str | None
    cpu: int
    gpu_percent: int
    gpu_index: int
    pids: Sequence[int]
    gpu_model: str | None
    memory_mib: int | None
    cold_start_ms: float | None
    precision: Precision
    start_command: str | None
    start_s: float
    beside: str | None
    beside_percent: int


def measure_profile(options: MeasureOptions, output: MeasurementOutput) -> None:
    """Measure what the file of points lacks, and write the profile; exit 1 after an error."""
    batches = batch_sizes(options.batches, options.batch_max)
    function = function_name("--function", options.function or options.model)
    address = _address(options.url, "--url")
    neighbour_url, _, neighbour_model = (options.beside or "").rpartition("/")
    neighbour = _address(neighbour_url, "--beside URL/MODEL") if options.beside else None

    async def measure(points: Sequence[MeasuredPoint], record: Record) -> FunctionMeasurement:
        async with _serving(options, address) as elapsed_ms:
            protocol = options.protocol or await protocol_of(address, options.model)
            client = model_server(protocol, address.host, address.port)
            try:
                server = _server(options, function, client)
                facts = await _start_facts(server, min(batches), elapsed_ms)
                own = [measured for measured in points if measured.function == server.function]
                done = {measured.key for measured in own if measured.is_precise}
                missing = [rows for rows in batches if server.key(rows) not in done]
                if len(missing) < len(batches):
                    typer.echo(
                        f"{len(batches) - len(missing)} of {len(batches)} batches are in "
                        f"{output.points}; they are not measured again",
                        err=True,
                    )
                with progress_bar("batches", total=len(missing)) as advance:
                    async for measured in measure_server(
                        server, missing, options.precision, **facts
                    ):
                        own.append(measured)
                        record(measured)
                        advance()
                if facts and not missing:
                    latest = next(m for m in reversed(own) if m.key == server.key(min(batches)))
                    own.append(latest.model_copy(update=facts))
                    record(own[-1])
                if neighbour is None:
                    return FunctionMeasurement(own)
                beside = _measure_beside(neighbour, neighbour_model, max(batches), server, options)
                return await with_slowdown(own, beside)
            finally:
                await client.close()

    write_measurement(measure, output, cold_start_ms=options.cold_start_ms)


def _serving(
    options: MeasureOptions, address: ServerAddress
) -> AbstractAsyncContextManager[Callable[[], float] | None]:
    """Start the server while inside, if a command is given; yields the time since then, in ms."""
    if options.start_command is None:
        return nullcontext()

    async def is_ready() -> bool:
        try:
            await protocol_of(address, options.model)
        except LocalServerError:
            return False
        return True

    return started_server(options.start_command, is_ready, start_s=options.start_s)


async def _start_facts(
    server: MeasuredServer, rows: int, elapsed_ms: Callable[[], float] | None
) -> dict[str, float]:
    """Run the first batch of a server that was started; return the time since its start."""
    if elapsed_ms is None:
        return {}
    await batch_run(server.client, server.model, await server.batch_inputs(), rows)()
    cold_start_ms = round(elapsed_ms(), _START_DIGITS)
    typer.echo(f"cold start: {cold_start_ms:,.0f} ms from the command to the first batch", err=True)
    return {"cold_start_ms": cold_start_ms}


def _address(url: str, option: str) -> ServerAddress:
    try:
        return parse_address(url)
    except LocalServerError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


async def _measure_beside(
    neighbour: ServerAddress, model: str, rows: int, server: MeasuredServer, options: MeasureOptions
) -> Mapping[str, Mapping[str, float]]:
    """Measure the slowdown by the neighbour; return it as `interference` of a scenario."""
    batches = ServerBatches(
        protocol=await protocol_of(neighbour, model),
        host=neighbour.host,
        port=neighbour.port,
        model=model,
        rows=rows,
        inputs={},
    )
    slowdown = await measure_slowdown(
        batch_run(server.client, server.model, await server.batch_inputs(), rows),
        options.precision,
        connect=batches,
        neighbour_percent=options.beside_percent,
    )
    return slowdown_by(server.function, label(model), rows, slowdown)


def _server(options: MeasureOptions, function: str, client: ModelServer) -> MeasuredServer:
    gpu_model = options.gpu_model or read_gpu(options.gpu_index).model
    memory_mib: Callable[[], int]
    if (given_mib := options.memory_mib) is not None:
        memory_mib = lambda: given_mib  # noqa: E731 - a function that returns it
    else:
        memory_mib = lambda: server_memory_mib(read_gpu(options.gpu_index), options.pids)  # noqa: E731
        memory_mib()  # an error now, not after a batch
    return MeasuredServer(
        client=client,
        model=options.model,
        address=options.url.rstrip("/"),
        function=function,
        gpu_model=gpu_model,
        cpu=options.cpu,
        gpu_percent=options.gpu_percent,
        inputs=name_value_pairs("--input", options.inputs),
        memory_mib=memory_mib,
    )
