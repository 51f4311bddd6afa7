"""Start of a model server by a command, and the time to its first answer."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from scheduler.model.message_text import quoted

POLL_S: Final = 0.02
_STOP_S: Final = 30.0
_KILL_S: Final = 5.0
_STDERR: Final = 2
_NO_SIGNAL: Final = 0  # tells whether there is a process


class ServerStartError(Exception):
    """The server does not start; the text says why and what to do."""


@asynccontextmanager
async def started_server(
    command: str, is_ready: Callable[[], Awaitable[bool]], *, start_s: float
) -> AsyncIterator[Callable[[], float]]:
    """Run a command of the shell until a server is ready; yield the clock of its start, in ms.

    The command may stay, as ``mlserver start .`` does, or return, as ``docker start`` does. One
    that stays is terminated at the end. Its output goes to the standard error.

    Args:
        command: command that starts the server.
        is_ready: returns true if the server answers and has its model ready.
        start_s: longest time until it is ready, in seconds.

    Raises:
        ServerStartError: the server answers already, or the command fails, or takes too long.
    """
    if await is_ready():
        raise ServerStartError(
            "a server answers before the command of --start-command; stop it, so that its start "
            "can be measured"
        )
    begin_s = time.monotonic()
    process = await asyncio.create_subprocess_shell(
        command, stdout=_STDERR, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    try:
        await _until_ready(process, command, is_ready, start_s)
        yield lambda: 1000 * (time.monotonic() - begin_s)
    finally:
        await _stop(process)


async def _until_ready(
    process: asyncio.subprocess.Process,
    command: str,
    is_ready: Callable[[], Awaitable[bool]],
    start_s: float,
) -> None:
    try:
        async with asyncio.timeout(start_s):
            while not await is_ready():
                if process.returncode:
                    raise ServerStartError(
                        f"{quoted(command)} ended with status {process.returncode}; correct "
                        "--start-command"
                    )
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise ServerStartError(
            f"the model is not ready {start_s:g} s after {quoted(command)}; correct --url or "
            "--model, or give --start-s"
        ) from None


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the command and the processes of its session, if it still runs."""
    if process.returncode is not None:
        return
    try:
        for number, limit_s in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, _KILL_S)):
            _signal(process.pid, number)
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await process.wait()
                    while True:  # the shell may end before its server
                        if not _signal(process.pid, _NO_SIGNAL):
                            return
                        await asyncio.sleep(POLL_S)
    except asyncio.CancelledError:  # a second Ctrl-C: nobody waits any longer
        _signal(process.pid, signal.SIGKILL)
        await process.wait()
        raise


def _signal(group: int, number: int) -> bool:
    """Send a signal to a group of processes; return false if it has none any more."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True
