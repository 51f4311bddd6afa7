"""The MPS control daemon as a program: its start and its commands.

Source: NVIDIA's Multi-Process Service documentation. The same program sends commands to the daemon:
it finds the daemon by the pipe directory and reads commands from standard input.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scheduler.agent.mps import mount_namespace
from scheduler.agent.pods.grants import MpsLimits
from scheduler.model.mps_folders import PIPE, SHM

ACTIVE = "ACTIVE"
"""A server's status when clients may connect."""

FAULT = "FAULT"
"""A server's status after a fatal fault of a client: none may connect until all have ended."""


_DEVICE = 0  # number of a daemon's only GPU


class ControlError(Exception):
    """The daemon did not answer; the message says why."""


@dataclass(frozen=True, slots=True)
class DaemonFolders:
    """The folders of one GPU's daemon."""

    root: Path  # the GPU's own

    @property
    def pipe(self) -> Path:
        """Sockets of daemon, servers and clients."""
        return self.root / PIPE

    @property
    def log(self) -> Path:
        """Logs of the servers."""
        return self.root / "log"

    @property
    def shm(self) -> Path:
        """The /dev/shm of daemon and clients."""
        return self.root / SHM

    def create(self) -> None:
        """Create the folders, for clients of any user.

        Raises:
            OSError: they cannot be created.
        """
        for folder, mode in ((self.root, 0o755), (self.pipe, 0o755), (self.log, 0o755)):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)
        self.shm.mkdir(exist_ok=True)
        self.shm.chmod(0o1777)

    def clean_pipe(self) -> None:
        """Remove the leftovers of a killed daemon; the next one would not start with them.

        The folder itself stays: containers have it mounted.

        Raises:
            OSError: something cannot be removed.
        """
        for leftover in self.pipe.iterdir():
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover)
            else:
                leftover.unlink(missing_ok=True)


class Control:
    """One GPU's daemon.

    Args:
        program: ``nvidia-cuda-mps-control``, or its path.
        uuid: UUID of the GPU that it serves.
        timeout_s: time limit of a command, in seconds.
    """

    def __init__(
        self, program: str, uuid: str, folders: DaemonFolders, *, timeout_s: float
    ) -> None:
        self._program = program
        self._timeout_s = timeout_s
        self._folders = folders
        self._environment = {**_clean(os.environ), **environment(uuid, folders)}

    async def start(self, *, multiuser: bool, own_shm: bool) -> asyncio.subprocess.Process:
        """Start the daemon in the foreground, in its own session.

        Raises:
            OSError: no process can be started.
        """
        command = [self._program, "-f", *(["-multiuser-server"] if multiuser else [])]
        shm = str(self._folders.shm) if own_shm else ""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", mount_namespace.__file__, shm, *command),
            stdin=asyncio.subprocess.DEVNULL,
            env=self._environment,
            start_new_session=True,  # a Ctrl-C at the terminal must reach only this process
        )

    async def servers(self) -> tuple[int, ...]:
        """List the process ids of its servers; empty before the first one is started.

        Raises:
            ControlError: it does not answer.
        """
        output = await self.send("get_server_list")
        return tuple(int(line) for line in output.split() if line.isdecimal())

    async def statuses(self) -> Mapping[int, str]:
        """Map servers to their status in NVIDIA's terms: `ACTIVE`, ``INITIALIZING``, `FAULT`.

        Raises:
            ControlError: it does not answer.
        """
        return {
            server: (await self.send(f"get_server_status {server}")).strip().upper()
            for server in await self.servers()
        }

    async def clients(self, server: int) -> tuple[int, ...]:
        """List the process ids of a server's clients.

        Raises:
            ControlError: it does not answer.
        """
        output = await self.send(f"get_client_list {server}")
        return tuple(int(line) for line in output.split() if line.isdecimal())

    async def limit(self, limits: MpsLimits, servers: Iterable[int]) -> None:
        """Limit the clients that connect from now on, to these servers and to later ones.

        Raises:
            ControlError: it does not answer, or does not confirm the limits.
        """
        memory = f"{_DEVICE} {limits.memory_mib}M"
        commands = [
            f"set_default_active_thread_percentage {limits.percent}",
            f"set_default_device_pinned_mem_limit {memory}",
        ]
        for server in servers:
            commands += [
                f"set_active_thread_percentage {server} {limits.percent}",
                f"set_device_pinned_mem_limit {server} {memory}",
            ]
        output = await self.send("\n".join([*commands, "get_default_active_thread_percentage"]))
        *_, confirmed = ["", *output.split()]
        if not confirmed.startswith(f"{limits.percent}."):
            raise ControlError(
                f"MPS daemon does not confirm {limits.percent} %: {output.strip()!r}"
            )

    async def start_server(self, uid: int) -> None:
        """Start a server for a user; the server's status shows the result.

        Raises:
            ControlError: it does not answer.
        """
        await self.send(f"start_server -uid {uid}")

    async def quit(self, within_s: int) -> None:
        """End the daemon and its servers; after ``within_s`` kill servers with clients.

        Raises:
            ControlError: it does not answer.
        """
        await self.send(f"quit -t {within_s}", timeout_s=within_s + self._timeout_s)

    async def send(self, command: str, *, timeout_s: float | None = None) -> str:
        """Send a command; return the daemon's output.

        Raises:
            ControlError: it does not answer.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        # Written to a pipe before the start: a program that ends without reading is then no error.
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
            raise ControlError(f"cannot start {self._program}: {error.strerror}") from None
        finally:
            os.close(reading_end)
        try:
            async with asyncio.timeout(limit_s):
                output, _ = await process.communicate()
        except TimeoutError:
            raise ControlError(
                f"MPS daemon did not answer {command!r} within {limit_s:g} s"
            ) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        text = output.decode("utf-8", "replace")
        if process.returncode != 0:
            raise ControlError(f"MPS daemon does not answer: {text.strip() or 'it is not running'}")
        return text


def environment(uuid: str, folders: DaemonFolders) -> Mapping[str, str]:
    """Build the environment that daemon and commands share; clients can only lower its limit."""
    return {
        "CUDA_VISIBLE_DEVICES": uuid,
        "CUDA_MPS_PIPE_DIRECTORY": str(folders.pipe),
        "CUDA_MPS_LOG_DIRECTORY": str(folders.log),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
    }


def _clean(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Remove variables that would set other limits, or another protocol."""
    return {name: value for name, value in environ.items() if not name.startswith("CUDA_")}
