"""Measurement of a running model server: one batch size after the other."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from scheduler.gateway.model_server import ModelServer
from scheduler.oip.batch import RowRange
from scheduler.oip.datatypes import BYTES
from scheduler.oip.tensor import Tensor
from workbench.profiles.adaptive_plan import Point
from workbench.profiles.batch_inputs import BatchInputs
from workbench.profiles.batch_times import Precision, measure_batch
from workbench.profiles.measured_points import MeasuredPoint, times_fields

_MIB = 2**20
_DIGITS = 6  # of a MiB: a byte
TIMEOUT_MS: Final = 60_000.0
"""Longest time of a batch: the first one may compile the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredServer:
    """A model server that runs, and what it was given.

    Attributes:
        client: client of the server.
        model: name of the model at the server.
        address: address of the server, for the records.
        function: name of the function in the profile.
        gpu_model: NVML's name of the GPU.
        cpu: vCPUs of the server.
        gpu_percent: share of the GPU, percent.
        inputs: files or shapes of inputs by name (`BatchInputs`).
        memory_mib: returns its memory on the GPU, after a batch size was measured.
    """

    client: ModelServer
    model: str
    address: str
    function: str
    gpu_model: str
    cpu: int
    gpu_percent: int
    inputs: Mapping[str, str]
    memory_mib: Callable[[], int]

    async def batch_inputs(self) -> BatchInputs:
        """Return what composes its batches; raises as `measure_server`."""
        return BatchInputs(await self.client.metadata(self.model), self.inputs)

    def key(self, rows: int) -> tuple[str, str, Point]:
        """Key of the point of a batch size, as `MeasuredPoint.key`."""
        return self.function, self.gpu_model, (rows, self.cpu, self.gpu_percent)


def batch_run(
    client: ModelServer, model: str, inputs: BatchInputs, rows: int
) -> Callable[[], Awaitable[tuple[Tensor, ...]]]:
    """Return what sends one batch of that number of rows.

    Args:
        client: client of the server.
        model: name of the model at the server.
        inputs: composes the batch.
        rows: size of the batch.

    Raises:
        InputError: the batch cannot be composed.
    """
    whole = [RowRange(inputs.batch(rows, binary=client.binary), 0, rows)]

    async def run() -> tuple[Tensor, ...]:
        return await client.infer(model, whole, timeout_ms=TIMEOUT_MS)

    return run


async def measure_server(
    server: MeasuredServer, batches: Sequence[int], precision: Precision, **facts: Any
) -> AsyncIterator[MeasuredPoint]:
    """Measure batch sizes in ascending order; yield each point when it is measured.

    Args:
        server: server to measure.
        batches: numbers of rows.
        precision: end of the runs of each.
        facts: further fields of each point, as `coldStartMs` is.

    Raises:
        InputError: no batch can be composed.
        ModelServerError: the server does not answer a batch.
        GpuMemoryError: its memory is unknown.
    """
    inputs = await server.batch_inputs()
    for rows in sorted(batches):
        run = batch_run(server.client, server.model, inputs, rows)
        output_bytes = sum(map(_bytes_of, await run()))
        times = await measure_batch(run, precision)
        yield MeasuredPoint.model_validate(
            {
                "function": server.function,
                "gpu_model": server.gpu_model,
                "server": f"{server.address} {server.model}",
                "batch": rows,
                "cpu": server.cpu,
                "gpu_percent": server.gpu_percent,
                "memory_mib": server.memory_mib(),
                "output_mib": round(output_bytes / rows / _MIB, _DIGITS),
                **times_fields(times),
                **facts,
            }
        )


def _bytes_of(tensor: Tensor) -> int:
    """Return the size of a tensor in binary form."""
    if tensor.datatype is not BYTES:
        return prod(tensor.shape) * tensor.datatype.size_bytes
    return sum(len(part.content) for part in tensor.to_binary().parts)
