"""The MPS control daemon as a program: how it is started, and what can be asked of it.

Source: NVIDIA's Multi-Process Service documentation. The daemon is asked by the same program, which
finds it by the pipe directory and takes commands from standard input.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scheduler.agent import mount_namespace

ACTIVE = "ACTIVE"
"""A server's status when clients may join."""

FAULT = "FAULT"
"""A server's status after a fatal fault of a client: none may join until all have gone."""


class ControlError(Exception):
    """The daemon did not answer; the message says how it failed to."""


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of one GPU's daemon."""

    root: Path  # the GPU's own

    @property
    def pipe(self) -> Path:
        """Where daemon, servers and clients meet."""
        return self.root / "pipe"

    @property
    def log(self) -> Path:
        """What servers write."""
        return self.root / "log"

    @property
    def shm(self) -> Path:
        """The /dev/shm of daemon and clients."""
        return self.root / "shm"

    def make(self) -> None:
        """Make them, for clients of any user.

        Raises:
            OSError: they cannot be made.
        """
        for folder, mode in ((self.root, 0o755), (self.pipe, 0o755), (self.log, 0o755)):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)
        self.shm.mkdir(exist_ok=True)
        self.shm.chmod(0o1777)

    def clean_pipe(self) -> None:
        """Take away what a daemon that was killed has left; the next would not start over it.

        The folder itself stays: containers have it mounted.

        Raises:
            OSError: something cannot be taken away.
        """
        for left in self.pipe.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink(missing_ok=True)


class Control:
    """One GPU's daemon.

    Args:
        program: ``nvidia-cuda-mps-control``, or its path.
        uuid: the one GPU that it serves.
        places: its folders.
        timeout_s: the longest that it may take over a question, in seconds.
    """

    def __init__(self, program: str, uuid: str, places: Places, *, timeout_s: float) -> None:
        self._program = program
        self._timeout_s = timeout_s
        self._places = places
        self._environment = {**_clean(os.environ), **environment(uuid, places)}

    async def start(self, *, multiuser: bool, own_shm: bool) -> asyncio.subprocess.Process:
        """Start the daemon, in the foreground of a session of its own.

        Raises:
            OSError: no process can be made.
        """
        command = [self._program, "-f", *(["-multiuser-server"] if multiuser else [])]
        shm = str(self._places.shm) if own_shm else ""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", mount_namespace.__file__, shm, *command),
            stdin=asyncio.subprocess.DEVNULL,
            env=self._environment,
            start_new_session=True,  # a Ctrl-C at the terminal is ours to handle
        )

    async def servers(self) -> tuple[int, ...]:
        """The process ids of its servers; none before the first is asked for.

        Raises:
            ControlError: it does not answer.
        """
        told = await self.ask("get_server_list")
        return tuple(int(line) for line in told.split() if line.isdecimal())

    async def statuses(self) -> Mapping[int, str]:
        """Each server's status in NVIDIA's word: `ACTIVE`, ``INITIALIZING``, `FAULT`.

        Raises:
            ControlError: it does not answer.
        """
        return {
            server: (await self.ask(f"get_server_status {server}")).strip().upper()
            for server in await self.servers()
        }

    async def start_server(self, uid: int) -> None:
        """Have it start a server for a user; whether that worked, the server's status tells.

        Raises:
            ControlError: it does not answer.
        """
        await self.ask(f"start_server -uid {uid}")

    async def quit(self, within_s: int) -> None:
        """Have it end, with its servers: by force those whose clients take longer than that.

        Raises:
            ControlError: it does not answer.
        """
        await self.ask(f"quit -t {within_s}", timeout_s=within_s + self._timeout_s)

    async def ask(self, command: str, *, timeout_s: float | None = None) -> str:
        """What the daemon says to a command.

        Raises:
            ControlError: it does not answer.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        # Into a pipe of our own, beforehand: a program that ends without reading is no error then.
        reading_end, writing_end = os.pipe()
        os.write(writing_end, f"{command}\n".encode())
        os.close(writing_end)
        try:
            process = await asyncio.create_subprocess_exec(
                self._program,
                stdin=reading_end,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environment,
            )
        except OSError as error:
            raise ControlError(f"{self._program} cannot be started: {error.strerror}") from None
        finally:
            os.close(reading_end)
        try:
            async with asyncio.timeout(limit_s):
                told, _ = await process.communicate()
        except TimeoutError:
            raise ControlError(
                f"its MPS daemon did not answer {command!r} within {limit_s:g} s"
            ) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        text = told.decode("utf-8", "replace")
        if process.returncode != 0:
            raise ControlError(
                f"its MPS daemon cannot be asked: {text.strip() or 'it is not there'}"
            )
        return text


def environment(uuid: str, places: Places) -> Mapping[str, str]:
    """What daemon and asker must have in common, and the limit that clients can only lower."""
    return {
        "CUDA_VISIBLE_DEVICES": uuid,
        "CUDA_MPS_PIPE_DIRECTORY": str(places.pipe),
        "CUDA_MPS_LOG_DIRECTORY": str(places.log),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
    }


def _clean(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Without what would set other limits, or another protocol."""
    return {name: value for name, value in environ.items() if not name.startswith("CUDA_")}
