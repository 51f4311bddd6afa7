"""Measure the tutorial's step 0 on empty caches: python -m bench.first_request [FOLDER].

From `git clone` to the first answer of the tutorial's models. Prints the seconds of each step and
the lines that it prints. MLServer's ports, 8080 to 8082, have to be free.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import split

REPOSITORY = Path(__file__).resolve().parents[1]
_START_S = 180
_READY = "http://127.0.0.1:8080/v2/health/ready"


class Measurement:
    """Seconds and printed lines of each step."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, float, int]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Time a step; yields a function that takes what it has printed."""
        lines: list[str] = []
        begin_s = time.monotonic()
        yield lambda output: lines.extend(output.splitlines())
        seconds = time.monotonic() - begin_s
        self.steps.append((name, seconds, len(lines)))
        print(f"{seconds:7.1f} s {len(lines):4} lines  {name}", flush=True)

    def run(self, command: str, folder: Path, environment: dict[str, str]) -> None:
        """Run a command as a step of its own."""
        with self.step(command) as add:
            ended = subprocess.run(
                command,
                shell=True,
                cwd=folder,
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            add(ended.stdout)
        if ended.returncode:
            raise SystemExit(f"{command}: status {ended.returncode}\n{ended.stdout}")


@contextmanager
def running(command: str, folder: Path, environment: dict[str, str]) -> Iterator[Path]:
    """Run a program while inside; yield the file with its output. Ctrl-C ends it."""
    log = folder / f"{split(command)[0]}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            split(command), cwd=folder, env=environment, stdout=output, stderr=output
        )
        try:
            yield log
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def wait_for(is_ready: Callable[[], bool]) -> None:
    """Wait until a program is ready."""
    end_s = time.monotonic() + _START_S
    while not is_ready():
        if time.monotonic() > end_s:
            raise SystemExit(f"not ready after {_START_S} s")
        time.sleep(0.1)


def measure(folder: Path) -> Measurement:
    """Do the steps in an empty folder."""
    own, caches, work = folder / "esg-scheduler", folder / "caches", folder / "work"
    work.mkdir()
    environment = {
        **os.environ,
        **dict.fromkeys(("XDG_CACHE_HOME", "PIP_CACHE_DIR", "UV_CACHE_DIR"), str(caches)),
    }
    environment.pop("VIRTUAL_ENV", None)
    measured = Measurement()
    measured.run(f"git clone {REPOSITORY} {own.name}", folder, environment)
    measured.run("make setup", own, environment)
    text = (own / "docs" / "tutorial.md").read_text(encoding="utf-8")
    step = text[text.index("## 0.") : text.index("## 1.")]
    for name, content in re.findall(r"```\w+\n# ([\w.-]+)\n(.*?)```", step, re.DOTALL):
        (work / name).write_text(content, encoding="utf-8")
    [settings] = re.findall(r"```json\n(.*?)```", step, re.DOTALL)
    (work / "settings.json").write_text(settings, encoding="utf-8")
    measured.run("python3 -m venv models", work, environment)
    path = f"{work / 'models' / 'bin'}:{own / '.venv' / 'bin'}:{environment['PATH']}"
    environment["PATH"] = path
    commands = re.findall(r"^\$ (.*)$", step, re.MULTILINE)
    server = next(command for command in commands if command.endswith("&")).removesuffix("&")
    local = next(command for command in commands if command.startswith("esg local"))
    for command in commands[: commands.index(f"{server}&")]:
        measured.run(command, work, environment)
    with running(server, work, environment):
        with measured.step(server):
            wait_for(lambda: not subprocess.call(["curl", "-sf", "-o/dev/null", _READY]))
        for command in commands[commands.index(f"{server}&") + 1 : commands.index(local)]:
            measured.run(command, work, environment)
        with running(local, work, environment) as log:
            with measured.step(local) as add:
                wait_for(lambda: "Ctrl-C" in log.read_text(encoding="utf-8"))
                add(log.read_text(encoding="utf-8"))
            [curl] = re.findall(r"^curl .*$", log.read_text(encoding="utf-8"), re.MULTILINE)
            measured.run(curl, work, environment)
    total_s = sum(seconds for _, seconds, _ in measured.steps)
    lines = sum(count for _, _, count in measured.steps)
    print(
        f"{total_s:7.1f} s {lines:4} lines  in all; the tutorial's step 0 has "
        f"{len(step.splitlines())} lines"
    )
    return measured


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as scratch:
        measure(Path(scratch))
