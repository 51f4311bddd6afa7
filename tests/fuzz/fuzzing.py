"""Sends requests drawn from a seed, and notes what no client may see."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.fuzz.grpc_client import FAILURES
from tests.fuzz.mutations import garbage, mutate
from tests.fuzz.targets import HttpTarget, Targets

CLIENTS = 12  # at a time
SOUND_EVERY = 20  # requests, of which one is sound
GRPC_RATIO = 0.15
MEMORY_RATIO, MEMORY_MIB = 1.5, 128.0  # growth after the first requests, at most
WARM_REQUESTS = 300
_SERVER_ERROR = 500


@dataclass(slots=True)
class FuzzReport:
    """Result of some requests.

    Attributes:
        requests: number of them.
        server_errors: undocumented statuses of 500 and more, each with its request.
        failures: sound requests without their answer, ended processes and memory.
        statuses: number of answers by port and status.
    """

    requests: int = 0
    server_errors: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    statuses: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def failed(self) -> bool:
        return bool(self.server_errors or self.failures)


async def fuzz(
    targets: Targets,
    *,
    seed: int,
    numbers: range,
    on_progress: Callable[[FuzzReport], None] = lambda _: None,
) -> FuzzReport:
    """Send the requests of these numbers; each is drawn from the seed and its number."""
    report = FuzzReport()
    warm_mib: dict[str, float] = {}
    waiting = iter(numbers)

    async def client() -> None:
        for number in waiting:
            await _send(targets, Random(f"{seed} {number}"), number, report)
            report.requests += 1
            if report.requests == WARM_REQUESTS:
                warm_mib.update(targets.resident_mib())
            on_progress(report)

    async with targets.peak_mib() as peak_mib, asyncio.TaskGroup() as clients:
        for _ in range(CLIENTS):
            clients.create_task(client())
    await _check_end(targets, warm_mib, peak_mib, report)
    return report


async def _send(targets: Targets, random: Random, number: int, report: FuzzReport) -> None:
    if random.random() < GRPC_RATIO:
        await _send_grpc(targets, random, number, report)
        return
    target = random.choice(targets.http)
    request = random.choice(target.requests)
    if random.random() < 1 / SOUND_EVERY:
        await _send_sound(target, request.wire(), request.expected, number, report)
        return
    mutated = mutate(random, request)
    wire, may_wait = mutated.wire(), mutated.is_cut
    if random.random() < 1 / 100:
        wire, may_wait = garbage(random), True
    half_closed = may_wait and random.random() < 1 / 3
    try:
        status = await target.port.status(wire, may_wait=may_wait, half_closed=half_closed)
    except (OSError, TimeoutError) as error:
        report.failures.append(f"request {number}: {target.name}: {error!r}: {wire!r}")
        return
    report.statuses[target.name, str(status)] += 1
    if status >= _SERVER_ERROR and status not in target.documented:
        report.server_errors.append(f"request {number}: {target.name}: {status}: {wire!r}")
    elif status < 0:
        report.failures.append(f"request {number}: {target.name}: no status line: {wire!r}")


async def _send_sound(
    target: HttpTarget, wire: bytes, expected: int, number: int, report: FuzzReport
) -> None:
    try:
        status = await target.port.status(wire)
    except (OSError, TimeoutError) as error:
        report.failures.append(f"request {number}: {target.name}: sound, {error!r}")
        return
    report.statuses[target.name, f"sound {status}"] += 1
    if expected and status != expected:
        report.failures.append(
            f"request {number}: {target.name}: sound, {status} instead of {expected}: {wire!r}"
        )


async def _send_grpc(targets: Targets, random: Random, number: int, report: FuzzReport) -> None:
    if random.random() < 1 / SOUND_EVERY:
        if not await targets.grpc.sound():
            report.failures.append(f"request {number}: gRPC: a sound request has no answer")
        report.statuses["gRPC", "sound"] += 1
        return
    code, request = await targets.grpc.mutated(random)
    report.statuses["gRPC", code.name] += 1
    if code in FAILURES:
        report.server_errors.append(f"request {number}: gRPC: {code.name}: {request}")


async def _check_end(
    targets: Targets,
    warm_mib: dict[str, float],
    peak_mib: dict[str, float],
    report: FuzzReport,
) -> None:
    """Check that all processes live, answer sound requests, and did not grow meanwhile."""
    report.failures += [f"{name} has ended" for name in targets.ended()]
    if targets.ended():
        return
    for target in targets.http:
        for request in target.requests:
            await _send_sound(target, request.wire(), request.expected, -1, report)
    for name, mib in peak_mib.items():
        limit_mib = MEMORY_RATIO * warm_mib.get(name, mib) + MEMORY_MIB
        if mib > limit_mib:
            report.failures.append(f"{name} has grown to {mib:,.0f} MiB, over {limit_mib:,.0f}")
