"""``esg local`` as a process."""

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path

ESG = str(Path(sys.executable).with_name("esg"))


class LocalGateway:
    """A running ``esg local``.

    Attributes:
        lines: lines that it has printed.
    """

    def __init__(self, process):
        self._process = process
        self.lines = []

    async def until_ready(self):
        """Read the output until it serves."""
        while not self.lines or not self.lines[-1].startswith("Ctrl-C"):
            line = (await self._process.stdout.readline()).decode()
            assert line, (await self._process.stderr.read()).decode()
            self.lines.append(line.rstrip())

    async def first_request(self, change=lambda command: command):
        """Run the printed command, after a change of it; return the answer."""
        [command] = [line for line in self.lines if line.startswith("curl ")]
        curl = await asyncio.create_subprocess_shell(
            change(command), stdout=asyncio.subprocess.PIPE
        )
        return json.loads((await curl.communicate())[0])

    async def interrupt(self):
        """Press Ctrl-C; return the exit status and standard error."""
        self._process.send_signal(signal.SIGINT)
        return await self.end()

    async def end(self):
        """Wait for the end; return the exit status and standard error."""
        _, errors = await self._process.communicate()
        return self._process.returncode, errors.decode()


@contextlib.asynccontextmanager
async def started(*arguments, folder=None):
    """Run ``esg local`` in a folder; yield it at once."""
    process = await asyncio.create_subprocess_exec(
        ESG,
        "local",
        *map(str, arguments),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield LocalGateway(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def local_gateway(*arguments, folder=None):
    """Run ``esg local`` in a folder; yield it once it serves."""
    async with started(*arguments, folder=folder) as gateway:
        await gateway.until_ready()
        yield gateway
