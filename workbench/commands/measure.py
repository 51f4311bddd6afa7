"""``esg profiles measure``: the profile of a model server that runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import typer

from scheduler.gateway.model_server import ModelServer
from scheduler.gateway.model_servers import model_server
from scheduler.model.function_server import ServerProtocol
from scheduler.model.message_text import quoted
from workbench.commands.measurement_output import MeasurementOutput, Record, write_measurement
from workbench.commands.profile_output import batch_sizes, name_value_pairs
from workbench.commands.series_progress import progress_bar
from workbench.profiles.batch_times import Precision
from workbench.profiles.gpu_memory import read_gpu, server_memory_mib
from workbench.profiles.interference import ServerBatches, measure_slowdown
from workbench.profiles.measured_points import MeasuredPoint
from workbench.profiles.measured_rows import label
from workbench.profiles.server_measurement import MeasuredServer, batch_run, measure_server

_SCHEMES: dict[str, ServerProtocol] = {"grpc": "grpc", "http": "http-binary"}


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
    beside: str | None
    beside_percent: int


def measure_profile(options: MeasureOptions, output: MeasurementOutput) -> None:
    """Measure what the file of points lacks, and write the profile; exit 1 after an error."""
    batches = batch_sizes(options.batches, options.batch_max)
    neighbour = _neighbour(options, max(batches))

    async def measure(points: Sequence[MeasuredPoint], record: Record) -> list[MeasuredPoint]:
        client, address = _client(options)
        try:
            server = _server(options, client, address)
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
                async for measured in measure_server(server, missing, options.precision):
                    own.append(measured)
                    record(measured)
                    advance()
            if neighbour is not None:
                await _measure_beside(neighbour, server, options)
            return own
        finally:
            await client.close()

    write_measurement(measure, output, cold_start_ms=options.cold_start_ms)


def _neighbour(options: MeasureOptions, rows: int) -> ServerBatches | None:
    if options.beside is None:
        return None
    url, _, model = options.beside.rpartition("/")
    protocol, host, port = _address(url, "--beside")
    if options.protocol and urlsplit(options.url).scheme == urlsplit(url).scheme:
        protocol = options.protocol
    return ServerBatches(protocol=protocol, host=host, port=port, model=model, rows=rows, inputs={})


async def _measure_beside(
    neighbour: ServerBatches, server: MeasuredServer, options: MeasureOptions
) -> None:
    """Measure the slowdown by the neighbour, and print the table of a scenario."""
    slowdown = await measure_slowdown(
        await batch_run(server.client, server.model, neighbour.rows, server.inputs),
        options.precision,
        connect=neighbour,
        neighbour_percent=options.beside_percent,
    )
    name, ratio = label(neighbour.model), slowdown.interference_ratio
    typer.echo(
        f"batch {neighbour.rows} beside {name} with {options.beside_percent} %: median "
        f"{slowdown.beside.median_ms:,.2f} ms, alone {slowdown.alone.median_ms:,.2f} ms; "
        "for a scenario or a bundle:\n"
        f"interference: {{{server.function}: {{{name}: {ratio:.3f}}}}}",
        err=True,
    )


def _client(options: MeasureOptions) -> tuple[ModelServer, str]:
    protocol, host, port = _address(options.url, "--url")
    client = model_server(options.protocol or protocol, host, port)
    return client, f"{urlsplit(options.url).scheme}://{urlsplit(options.url).netloc}"


def _address(text: str, option: str) -> tuple[ServerProtocol, str, int]:
    url = urlsplit(text)
    try:
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    if url.scheme not in _SCHEMES or not host or port is None:
        raise typer.BadParameter(
            f"{quoted(text)} must have the form grpc://HOST:PORT or http://HOST:PORT"
            + ("/MODEL" if option == "--beside" else ""),
            param_hint=option,
        )
    return _SCHEMES[url.scheme], host, port


def _server(options: MeasureOptions, client: ModelServer, address: str) -> MeasuredServer:
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
        address=address,
        function=label(options.function or options.model),
        gpu_model=gpu_model,
        cpu=options.cpu,
        gpu_percent=options.gpu_percent,
        inputs=name_value_pairs("--input", options.inputs),
        memory_mib=memory_mib,
    )
