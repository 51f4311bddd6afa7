"""``esg profiles measure``: the profile of a model server that runs."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import typer

from scheduler.gateway.model_server import ModelServer, ModelServerError
from scheduler.gateway.model_servers import model_server
from scheduler.model.document_reader import DocumentError
from scheduler.model.documents import FunctionProfile, to_manifest
from scheduler.model.function_server import ServerProtocol
from scheduler.model.message_text import quoted
from workbench.commands.profile_output import batch_list, name_value_pairs, refuse, write_text
from workbench.commands.series_progress import progress_bar
from workbench.profiles.batch_inputs import InputError
from workbench.profiles.batch_times import Precision
from workbench.profiles.gpu_memory import GpuMemoryError, read_gpu, server_memory_mib
from workbench.profiles.measured_points import (
    MeasuredPoint,
    append_point,
    measured_profile,
    read_points,
)
from workbench.profiles.measured_rows import label
from workbench.profiles.profile_documents import as_yaml
from workbench.profiles.server_measurement import MeasuredServer, measure_server
from workbench.reports.profile_page import profile_page
from workbench.reports.renderer import MissingReportLibraryError, require_extra

_SCHEMES: dict[str, ServerProtocol] = {"grpc": "grpc", "http": "http-binary"}
_SUFFIX = ".jsonl"


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


def measure_profile(
    options: MeasureOptions,
    *,
    out: Path,
    points_file: Path | None,
    plot: Path | None,
    to_json: bool,
) -> None:
    """Measure what the file of points lacks, and write the profile; exit 1 after an error."""
    batches = _batches(options)
    if points_file is None and str(out) != "-":
        points_file = out.with_suffix(_SUFFIX)
    try:
        if plot is not None:
            require_extra()  # rather now than after the measurement
        points = [] if points_file is None else read_points(points_file)
        points = asyncio.run(_measure(options, batches, points, points_file))
        profile = measured_profile(points, cold_start_ms=options.cold_start_ms)
        if plot is not None:
            write_text(plot, profile_page(profile))
    except DocumentError as error:
        refuse(error.problems)
    except (GpuMemoryError, InputError, MissingReportLibraryError, ModelServerError) as error:
        refuse([error])
    except OSError as error:
        refuse([f"{points_file} cannot be written: {error.strerror}"])
    _print(profile, points, out, to_json=to_json)


async def _measure(
    options: MeasureOptions,
    batches: Sequence[int],
    points: Sequence[MeasuredPoint],
    points_file: Path | None,
) -> list[MeasuredPoint]:
    """Measure the missing batches; return the points of the function, old and new ones."""
    client, address = _client(options)
    try:
        server = _server(options, client, address)
        own = [measured for measured in points if measured.function == server.function]
        done = {measured.key for measured in own if measured.is_precise}
        place = server.cpu, server.gpu_percent
        missing = [
            rows
            for rows in batches
            if (server.function, server.gpu_model, (rows, *place)) not in done
        ]
        if len(missing) < len(batches):
            typer.echo(
                f"{len(batches) - len(missing)} of {len(batches)} batches are in {points_file}; "
                "they are not measured again",
                err=True,
            )
        with progress_bar("batches", total=len(missing)) as advance:
            async for measured in measure_server(server, missing, options.precision):
                own.append(measured)
                if points_file is not None:
                    append_point(points_file, measured)
                typer.echo(measured.describe(), err=True)
                advance()
        return own
    finally:
        await client.close()


def _client(options: MeasureOptions) -> tuple[ModelServer, str]:
    url = urlsplit(options.url)
    try:
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    if url.scheme not in _SCHEMES or not host or port is None:
        raise typer.BadParameter(
            f"{quoted(options.url)} must have the form grpc://HOST:PORT or http://HOST:PORT",
            param_hint="--url",
        )
    protocol = options.protocol or _SCHEMES[url.scheme]
    return model_server(protocol, host, port), f"{url.scheme}://{url.netloc}"


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


def _batches(options: MeasureOptions) -> list[int]:
    if options.batches is None:
        powers = [1 << bit for bit in range(options.batch_max.bit_length())]
        return sorted({*powers, options.batch_max})
    return batch_list(options.batches)


def _print(
    profile: FunctionProfile, points: Sequence[MeasuredPoint], out: Path, *, to_json: bool
) -> None:
    text = as_yaml([profile], "Measured by esg profiles measure.")
    if str(out) != "-":
        write_text(out, text)
    elif not to_json:
        typer.echo(text, nl=False)
    if to_json:
        measured = [point.model_dump(mode="json", by_alias=True) for point in points]
        typer.echo(json.dumps({"profile": to_manifest(profile), "points": measured}))
