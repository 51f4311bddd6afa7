"""Programs as processes of their own, of which none outlives the others or this process."""

import asyncio
import os
import random
import socket
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple

from workbench.cluster.guard import Guard

_START_S = 120.0  # on a fresh machine the kernels are compiled first
_STOP_S = 10.0  # then it is killed
_NOTICE_S = 0.3  # in which the end of a process is noticed
_POLL_S = 0.05
_LINE_BYTES_MAX = 2**20
_PROC = Path("/proc")
_LOG_TAIL_CHARACTERS = 2_000
PORTS = range(20_000, 32_000)
"""Below Linux's default range of outgoing connections, so that a port stays free until its program
listens, and while its program is stopped."""
_given_ports: set[int] = set()


class ProgramError(RuntimeError):
    """A program failed, or did not do what it was started for."""


class Program(NamedTuple):
    """A running program.

    Attributes:
        name: name in messages.
        process: process; its standard input and output are pipes if it was started with them.
    """

    name: str
    process: Process
    log: IO[bytes]

    async def line(self) -> bytes:
        """Return the next line of its standard output.

        Raises:
            ProgramError: there is none.
        """
        assert self.process.stdout is not None  # noqa: S101 - it was started with pipes
        if line := await self.process.stdout.readline():
            return line
        raise ProgramError(f"{self.name} closed its output")

    async def write(self, line: bytes) -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None  # noqa: S101 - it was started with pipes
        self.process.stdin.write(line + b"\n")
        await self.process.stdin.drain()


class Programs:
    """Programs of one run, created by `programs`."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._watchers: list[asyncio.Task[None]] = []
        self._guard = Guard()
        self.all: list[Program] = []

    async def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        pipes: bool = False,
        may_end: bool = False,
    ) -> Program:
        """Start a program.

        Args:
            name: name in messages.
            command: executable and its arguments.
            environment: additional environment variables; no proxy is used, as programs talk on the
                loopback.
            pipes: true to connect its standard input and output.
            may_end: true if its end by itself with status 0 is no failure.
        """
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE if pipes else DEVNULL,
            stdout=PIPE if pipes else log,
            stderr=log,
            limit=_LINE_BYTES_MAX,
            env={**os.environ, **(environment or {}), "no_proxy": "127.0.0.1"},
            start_new_session=True,  # Ctrl-C is for the parent, which then stops it
        )
        self._guard.watch(process.pid)
        program = Program(name, process, log)
        self.all.append(program)
        self._watchers.append(self._group.create_task(_watch(program, may_end=may_end)))
        return program

    def ignore_ends(self) -> None:
        """Regard the ends of programs as intended from now on."""
        for watcher in self._watchers:
            watcher.cancel()

    async def stop(self) -> None:
        """End all programs."""
        await asyncio.gather(*(_stop(program.process) for program in self.all))
        self._guard.close()
        for program in self.all:
            program.log.close()

    async def failure(self) -> ProgramError | None:
        """Return the error of the first program that failed by itself, if one did."""
        ends = [asyncio.ensure_future(program.process.wait()) for program in self.all]
        if ends:
            # A call to a program that ended may have failed before its end was noticed.
            await asyncio.wait(ends, timeout=_NOTICE_S, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        for program in self.all:
            if program.process.returncode:
                program.log.seek(0)
                text = program.log.read().decode(errors="replace")[-_LOG_TAIL_CHARACTERS:].strip()
                return ProgramError(
                    f"{program.name} ended by itself with status {program.process.returncode}. "
                    f"{text}"
                )
        return None


@asynccontextmanager
async def programs() -> AsyncIterator[Programs]:
    """Run programs until the context ends.

    If one fails by itself, the body is cancelled and a `ProgramError` raised.
    """
    running: Programs | None = None
    try:
        async with asyncio.TaskGroup() as group:
            running = Programs(group)
            yield running
            running.ignore_ends()
    except ExceptionGroup as errors:
        failure = None if running is None else await running.failure()
        raise failure or _first(errors) from None
    finally:
        if running is not None:
            await running.stop()


async def wait_until(ready: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until a check is true.

    Raises:
        ProgramError: it was not within two minutes.
    """
    try:
        async with asyncio.timeout(_START_S):
            while not await ready():  # noqa: ASYNC110 - another process reports it only on request
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise ProgramError(f"{what} was not ready after {_START_S:.0f} s") from None


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nothing listens on at an address, and that no earlier call returned.

    Raises:
        ProgramError: there is none.
    """
    for port in random.SystemRandom().sample(PORTS, 200):
        if port in _given_ports:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
        _given_ports.add(port)
        return port
    raise ProgramError(f"no free port between {PORTS.start} and {PORTS.stop}; free some")


def core_wait_s(pid: int, proc: Path = _PROC) -> float | None:
    """Return how long a process's main thread has been ready to run and waited for a core.

    The programs that are started here serve in their main threads. Time in which a CPU quota stops
    the thread counts: with 0.4 of a core (control groups v1, Linux 6.18), 2 s of computation took
    5 s, of which it waited 3 s. None where the kernel does not count.
    """
    try:
        run_ns, wait_ns, _ = map(int, (proc / str(pid) / "schedstat").read_text().split())
    except OSError:
        return None
    return wait_ns / 1e9 if run_ns else None  # Linux before 5.14 may write zeros


async def read_lines(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Read the lines of a pipe until its end."""
    reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), stream
    )
    while line := await reader.readline():
        yield line


async def _watch(program: Program, *, may_end: bool) -> None:
    status = await program.process.wait()
    if status or not may_end:
        raise ProgramError(f"{program.name} ended")


async def _stop(process: Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def _first(errors: ExceptionGroup[Exception]) -> Exception:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first
