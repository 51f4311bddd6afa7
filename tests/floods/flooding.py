"""Floods one port after the other, and measures memory and the time of filter meanwhile."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np

from tests.floods.clients import FLOODS
from tests.floods.grpc_clients import GRPC_FLOODS
from tests.fuzz.targets import HttpTarget, Targets

CALLS_MIN = 40  # of filter, by which a flood is judged
QUIET_CALLS = 200
GROWTH_MAX_MIB = 64.0
FILTER_RATIO_MAX, FILTER_ADDED_MS = 2.0, 50.0


@dataclass(frozen=True, slots=True)
class FloodResult:
    """Result of one flood.

    Attributes:
        target: the port.
        flood: its name in `FLOODS` or `GRPC_FLOODS`.
        memory_mib: largest growth of a process over its quiet memory.
        process: the process with that growth.
        filter_p99_ms: 99th percentile of the time of filter.
        filter_limit_ms: its limit, from the quiet time.
    """

    target: str
    flood: str
    memory_mib: float
    process: str
    filter_p99_ms: float
    filter_limit_ms: float

    @property
    def filter_ratio(self) -> float:
        return self.filter_p99_ms / self.filter_limit_ms

    @property
    def has_grown(self) -> bool:
        return self.memory_mib > GROWTH_MAX_MIB

    @property
    def failed(self) -> bool:
        return self.has_grown or self.filter_ratio > 1


async def flood_all(
    targets: Targets,
    *,
    names: Collection[str] = (*FLOODS, *GRPC_FLOODS),
    on_result: Callable[[FloodResult], None] = lambda _: None,
) -> list[FloodResult]:
    """Send the named floods to every port that speaks their protocol."""
    extender = targets.http[0]
    quiet_ms = await _filter_times_ms(extender, lambda count: count < QUIET_CALLS)
    limit_ms = FILTER_RATIO_MAX * _p99_ms(quiet_ms) + FILTER_ADDED_MS
    results = []
    ports = [(target.name, target.port.port, target.port.tls, FLOODS) for target in targets.http]
    ports.append(("gateway's gRPC", targets.grpc.port, None, GRPC_FLOODS))
    for port_name, port, tls, floods in ports:
        for name in [name for name in floods if name in names]:
            before_mib = targets.resident_mib()
            async with (
                _flooding(name, port, tls=tls is not None) as runs,
                targets.peak_mib() as peak_mib,
            ):
                times_ms = await _filter_times_ms(
                    extender, lambda count, runs=runs: count < CALLS_MIN or runs()
                )
            growth_mib, process = max(
                (mib - before_mib[process], process) for process, mib in peak_mib.items()
            )
            result = FloodResult(port_name, name, growth_mib, process, _p99_ms(times_ms), limit_ms)
            on_result(result)
            results.append(result)
    return results


@asynccontextmanager
async def _flooding(name: str, port: int, *, tls: bool) -> AsyncIterator[Callable[[], bool]]:
    """Send the flood; the value tells if it still runs."""
    options = ["tls"] if tls else []
    command = (sys.executable, "-m", "tests.floods.clients", name, str(port), *options)
    client = await asyncio.create_subprocess_exec(*command)
    try:
        yield lambda: client.returncode is None
        if await client.wait():
            raise RuntimeError(f"the client of flood {name!r} failed: status {client.returncode}")
    finally:
        if client.returncode is None:
            client.kill()
            await client.wait()


async def _filter_times_ms(extender: HttpTarget, goes_on: Callable[[int], bool]) -> list[float]:
    """Call filter again and again on a connection of its own each."""
    wire = extender.requests[0].wire()
    times_ms: list[float] = []
    while goes_on(len(times_ms)):
        began_s = time.perf_counter()
        status = await extender.port.status(wire)
        times_ms.append(1000 * (time.perf_counter() - began_s))
        if status != 200:
            raise RuntimeError(f"filter answers {status}")
    return times_ms


def _p99_ms(times_ms: list[float]) -> float:
    return float(np.percentile(times_ms, 99, method="inverted_cdf"))
