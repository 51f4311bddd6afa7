"""Processes of the test bed: started on free ports, polled until ready, stopped by their ids."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from workbench.cluster.guard import Guard

LOG_TAIL_LINES = 25


class StartFailedError(RuntimeError):
    """A program ended or did not become ready in time; the message ends with its log's tail."""


class Process:
    """One program that can be started, stopped, killed and started again with the same arguments.

    Args:
        name: its name in messages and of its log.
        command: program and arguments.
        log_folder: folder of its log, `<name>.log`.
        guard: ends it if this process dies.
        environment: variables in addition to the inherited ones.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log_folder: Path,
        guard: Guard,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log_folder / f"{name}.log"
        self._guard = guard
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id; None unless it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start the program in a session of its own, out of reach of the terminal's Ctrl-C.

        Raises:
            StartFailedError: it runs already.
        """
        if self.pid is not None:
            raise StartFailedError(f"{self.name} runs already: process {self.pid}; stop it first")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        self._guard.watch(self._process.pid)

    def wait_ready(self, is_ready: Callable[[], bool], *, timeout_s: float) -> None:
        """Poll until the program is ready.

        Raises:
            StartFailedError: it ended, or was not ready after `timeout_s`.
        """
        deadline_s = time.monotonic() + timeout_s
        pause_s = 0.02
        while not is_ready():
            self.check_alive()
            if time.monotonic() > deadline_s:
                raise StartFailedError(
                    f"{self.name} was not ready after {timeout_s:g} s\n{self.log_tail()}"
                )
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.2)

    def check_alive(self) -> None:
        """Raise StartFailedError if it has ended by itself or was not started."""
        if self._process is None:
            raise StartFailedError(f"{self.name} is not started")
        if self._process.poll() is not None:
            status = self._process.returncode
            raise StartFailedError(f"{self.name} ended with status {status}\n{self.log_tail()}")

    def wait_ended(self, *, timeout_s: float) -> None:
        """Wait until the program has ended by itself.

        Raises:
            StartFailedError: it still runs after `timeout_s`.
        """
        if self._process is None:
            return
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise StartFailedError(f"{self.name} has not ended in {timeout_s:g} s") from None

    def stop(self, *, grace_s: float = 10.0) -> None:
        """Send SIGTERM, and SIGKILL if the program still runs after `grace_s`."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Kill the program (SIGKILL), as the out-of-memory killer would."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the program while inside (SIGSTOP), as a machine that swaps or hangs."""
        if self._process is None:
            raise StartFailedError(f"{self.name} is not started")
        self._process.send_signal(signal.SIGSTOP)
        try:
            # Until the last of its threads has stopped, it may still answer.
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def log_tail(self) -> str:
        """Return the last lines of its log, below a line with the file's name."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([f"the end of {self.log}:", *lines[-LOG_TAIL_LINES:]])
