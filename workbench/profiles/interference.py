"""Slowdown of a model server by another one that runs batches on the same GPU."""

import asyncio
import multiprocessing
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from scheduler.gateway.model_servers import model_server
from scheduler.model.function_server import ServerProtocol
from workbench.profiles.batch_inputs import BatchInputs
from workbench.profiles.batch_times import BatchTimes, Precision, measure_batch
from workbench.profiles.server_measurement import batch_run

_WHOLE_PERCENT = 100
_START_S = 60.0  # of the process and of a first batch, which may compile the model

Run = Callable[[], Awaitable[object]]
Connect = Callable[[], Awaitable[Run]]


class NeighbourError(Exception):
    """The neighbour runs no batches; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """Times of a batch alone and beside a neighbour.

    Attributes:
        neighbour_percent: GPU share of the neighbour.
    """

    alone: BatchTimes
    beside: BatchTimes
    neighbour_percent: int

    @property
    def interference_ratio(self) -> float:
        """Slowdown beside a neighbour with the whole GPU, as a scenario's `interference`."""
        ratio = self.beside.median_ms / self.alone.median_ms - 1
        return max(0.0, ratio * _WHOLE_PERCENT / self.neighbour_percent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBatches:
    """Batches of a running server; called, it returns what runs one.

    Attributes:
        model: name of the model at the server.
        rows: size of the batch.
        inputs: files or shapes of inputs by name (`BatchInputs`).
    """

    protocol: ServerProtocol
    host: str
    port: int
    model: str
    rows: int
    inputs: Mapping[str, str]

    async def __call__(self) -> Run:
        """Connect; `measure_server` names the errors."""
        client = model_server(self.protocol, self.host, self.port)
        inputs = BatchInputs(await client.metadata(self.model), self.inputs)
        return batch_run(client, self.model, inputs, self.rows)


@contextmanager
def neighbour_batches(connect: Connect) -> Iterator[None]:
    """Run batches one after the other in a process of its own while inside.

    A process of its own leaves the measured times alone, whatever the client's work is.

    Args:
        connect: returns what runs one batch; it goes to the process, as `ServerBatches` can.

    Raises:
        NeighbourError: the first batch does not end, or a later one fails.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_batches, args=(connect, sender), daemon=True)
    process.start()
    sender.close()
    try:
        if not receiver.poll(_START_S):
            raise NeighbourError(f"its first batch took over {_START_S:.0f} s")
        _check(receiver)
        yield
        if receiver.poll():
            _check(receiver)
    finally:
        process.kill()
        process.join()


async def measure_slowdown(
    run: Run, precision: Precision, *, connect: Connect, neighbour_percent: int
) -> Slowdown:
    """Measure a batch alone and beside a neighbour.

    Args:
        run: runs one batch of the measured server.
        precision: end of the runs of each measurement.
        connect: returns what runs one batch of the neighbour, as in `neighbour_batches`.
        neighbour_percent: GPU share of the neighbour.

    Raises:
        NeighbourError: the neighbour runs no batches.
    """
    alone = await measure_batch(run, precision)
    with neighbour_batches(connect):
        beside = await measure_batch(run, precision)
    return Slowdown(alone=alone, beside=beside, neighbour_percent=neighbour_percent)


def _check(receiver: Any) -> None:
    """Raise a NeighbourError, unless the process reports its first batch."""
    try:
        problem = receiver.recv()
    except EOFError:
        problem = "its process ended"
    if problem:
        raise NeighbourError(problem)


def _run_batches(connect: Connect, sender: Any) -> None:
    async def run_forever() -> None:
        run = await connect()
        await run()
        sender.send("")
        while True:
            await run()

    try:
        asyncio.run(run_forever())
    except Exception as error:  # noqa: BLE001 - whatever the server or its client raises
        sender.send(str(error) or type(error).__name__)
