"""Steps of the test bed's builds: commands, messages, and results that later runs find stored."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

LOG_TAIL_LINES = 20


class BuildFailedError(RuntimeError):
    """A step failed; the message ends with the last lines of its output."""


def run(
    command: Sequence[str],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a command; return its output.

    Raises:
        BuildFailedError: it failed.
    """
    done = subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
        tail = "\n".join(lines[-LOG_TAIL_LINES:])
        raise BuildFailedError(f"{' '.join(command)} failed:\n{tail}")
    return done.stdout


def cache_folder() -> Path:
    """Return the folder of built programs: `$XDG_CACHE_HOME` or `~/.cache`, and `esg-scheduler`."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "esg-scheduler" / "testbed"


def stored(file: Path, *, kind: str, build: Callable[[Path], object]) -> Path:
    """Return the file; unless it exists, build it under another name first."""
    if not file.exists():
        with locked(kind):
            if not file.exists():
                fresh = file.with_suffix(".new")
                fresh.unlink(missing_ok=True)
                build(fresh)
                fresh.rename(file)
    return file


@contextmanager
def locked(kind: str) -> Iterator[None]:
    """Allow one build of a kind at a time; the kernel drops the lock of a dead process."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / f"{kind}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that builds or runs {kind}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say(line: str) -> None:
    """Write a line for the person who waits."""
    sys.stderr.write(f"test bed: {line}\n")
    sys.stderr.flush()
