"""The service as a process of its own: the users' command, on a free port of the loopback."""

import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from workbench.demo.extender import DemoError, ExtenderClient

_START_S = 60.0  # on a fresh machine the kernels are compiled first
_STOP_S = 5.0  # then it is killed
_NOTICE_S = 0.3  # in which the end of a process is noticed
_LOG_TAIL_CHARACTERS = 2_000


@asynccontextmanager
async def serving(nodes: Path, profiles: Path) -> AsyncIterator[ExtenderClient]:
    """Run ``esg serve --embedded nodes --profiles profiles`` until the context ends.

    If the service ends by itself, the body is cancelled and a `DemoError` raised.
    """
    port = _free_port()
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("esg"),
            *("serve", f"--embedded={nodes}", f"--profiles={profiles}"),
            *("--host=127.0.0.1", f"--port={port}"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"ESG_LOG_LEVEL": "warning", **os.environ},
            start_new_session=True,  # Ctrl-C is for the demo, which then stops the service
        )
        try:
            async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
                watcher = group.create_task(_watch(process))
                extender = ExtenderClient(session, f"http://127.0.0.1:{port}")
                await _wait_ready(extender)
                yield extender
                watcher.cancel()
        except ExceptionGroup as group_of_errors:
            # If the service died, a call to it may have failed before its end was noticed.
            await asyncio.wait([asyncio.ensure_future(process.wait())], timeout=_NOTICE_S)
            if process.returncode is None:
                raise group_of_errors.exceptions[0] from None
            log.seek(0)
            text = log.read().decode(errors="replace")[-_LOG_TAIL_CHARACTERS:].strip()
            raise DemoError(
                f"the service ended by itself with status {process.returncode}. {text}"
            ) from None
        finally:
            await _stop(process)


async def _watch(process: asyncio.subprocess.Process) -> None:
    await process.wait()
    raise DemoError("the service ended")


async def _wait_ready(extender: ExtenderClient) -> None:
    deadline_s = time.monotonic() + _START_S
    while not await extender.ready():
        if time.monotonic() > deadline_s:
            raise DemoError(f"the service was not ready after {_START_S:.0f} s")
        await asyncio.sleep(0.05)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
