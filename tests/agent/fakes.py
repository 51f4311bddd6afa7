"""Fakes of a node's GPUs, MPS daemons and clock.

A fake libnvidia-ml.so.1 reads the GPUs from a file; mps_control.py plays the MPS daemons.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from scheduler.agent.settings import AgentSettings

PROGRAM = Path(__file__).with_name("mps_control.py")
CLIENT = Path(__file__).with_name("mps_client.py")
SOURCES = Path(__file__).with_name("nvml")
GPU_IS_LOST = 15
DRIVER_NOT_LOADED = 9
DRIVER_EXCHANGED = 18
FUNCTION_NOT_FOUND = 13
ARGUMENT_VERSION_MISMATCH = 25
TIMEOUT = 10
DEFAULT = 0
PROHIBITED = 2
EXCLUSIVE_PROCESS = 3

Value = int | str


def a100(index: int, name: str = "node") -> dict[str, Value]:
    """Create the properties of a healthy GPU."""
    return {
        "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{name}/{index}')}",
        "name": "NVIDIA A100-SXM4-80GB",
        "memory": 81_920 * 2**20,
        "reserved": 0,
        "used": 0,
        "capability": "8.0",
        "cores": 6912,
        "mig": 0,
        "mode": 0,
        "ecc": 0,
        "rows_pending": 0,
        "rows_failed": 0,
        "utilization": 0,
        "temperature": 40,
        "processes": "",
        "mps_processes": "",
    }


class FakeGpus:
    """GPUs, by index; the next call of NVML sees a change.

    Attributes:
        environment: environment variables with which a program sees the GPUs.
    """

    def __init__(self, folder: Path, libraries: Path, count: int = 0) -> None:
        self._path = folder / "gpus"
        self.environment = {"FAKE_NVML": str(self._path), "LD_LIBRARY_PATH": str(libraries)}
        self._whole: dict[str, Value] = {"init": 0, "hang": 0, "wait": 0}
        self._gpus = [a100(index) for index in range(count)]
        self._events: list[tuple[int, int]] = []
        self._write()

    @property
    def uuids(self) -> list[str]:
        """Return the UUIDs of all GPUs, in order."""
        return [str(gpu["uuid"]) for gpu in self._gpus]

    def set(self, index: int, **properties: Value | None) -> None:
        """Change a GPU; None removes a property, as if the GPU did not support it."""
        for name, value in properties.items():
            if value is None:
                self._gpus[index].pop(name, None)
            else:
                self._gpus[index][name] = value
        self._write()

    def set_all(self, **properties: Value) -> None:
        """Change NVML as a whole: ``init``, ``hang``, ``wait``."""
        self._whole |= properties
        self._write()

    def replace(self, index: int, gpu: dict[str, Value]) -> None:
        """Replace the GPU at an index."""
        self._gpus[index] = gpu
        self._write()

    def remove_last(self) -> None:
        """Remove the last GPU."""
        self._gpus.pop()
        self._write()

    def strike(self, index: int, xid: int) -> None:
        """Let a critical error occur on a GPU."""
        self._events.append((index, xid))
        self._write()

    def mode(self, index: int) -> int:
        """Return the compute mode."""
        path = self._mode_path(index)
        return int(path.read_text()) if path.exists() else int(self._gpus[index]["mode"])

    def set_mode(self, index: int, mode: int) -> None:
        """Set the compute mode, like another program."""
        fresh = self._path.with_suffix(".mode")
        fresh.write_text(str(mode))
        fresh.replace(self._mode_path(index))

    def _mode_path(self, index: int) -> Path:
        return self._path.with_name(f"{self._path.name}.mode.{index}")

    def _write(self) -> None:
        lines: dict[str, Any] = {**self._whole, "count": len(self._gpus)}
        for index, gpu in enumerate(self._gpus):
            lines |= {f"gpu.{index}.{name}": value for name, value in gpu.items()}
        lines["events"] = len(self._events)
        for number, (index, xid) in enumerate(self._events):
            lines |= {f"event.{number}.gpu": index, f"event.{number}.xid": xid}
        fresh = self._path.with_suffix(".new")
        fresh.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        fresh.replace(self._path)


def compiled(folder: Path) -> Path:
    """Compile libnvidia-ml.so.1 and libcuda.so.1 into a folder for LD_LIBRARY_PATH.

    Without a C compiler the test is skipped; under `CI=true` that is an error.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        if os.environ.get("CI") == "true":
            raise FileNotFoundError("C compiler missing: cc; install it to build the tests' NVML")
        pytest.skip("no C compiler for the tests' NVML")
    for source, library in (("nvml.c", "libnvidia-ml.so.1"), ("cuda.c", "libcuda.so.1")):
        subprocess.run(
            [
                *(compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"),
                *(f"-Wl,-soname,{library}", "-o", str(folder / library), str(SOURCES / source)),
            ],
            check=True,
        )
    return folder


def load(libraries: Path) -> None:
    """Load the fake NVML, so that this process's pynvml finds it by its soname."""
    ctypes.CDLL(str(libraries / "libnvidia-ml.so.1"))


class FakeDaemons:
    """The MPS daemons of one machine.

    Attributes:
        program: path of the fake nvidia-cuda-mps-control.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.program = folder / "nvidia-cuda-mps-control"
        self.program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {PROGRAM} "$@"\n')
        self.program.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables with which `esg mps` finds them, and checks them often."""
        return {
            "ESG_AGENT_MPS_ROOT": str(self.root),
            "ESG_AGENT_MPS_CONTROL": str(self.program),
            "ESG_AGENT_MPS_CHECK_EVERY_S": "0.05",
            "ESG_AGENT_MPS_FAULT_GRACE_S": "0.2",
            "ESG_AGENT_MPS_STOP_S": "1",
            "ESG_AGENT_READ_EVERY_S": "0.1",
        }

    def settings(self, **overrides: Any) -> AgentSettings:
        """Create the same settings for a `Daemon` in this process."""
        prefix = "ESG_AGENT_"
        fields = {k.removeprefix(prefix).lower(): v for k, v in self.environment.items()}
        return AgentSettings(**{**fields, "mps_own_shm": False, **overrides})

    def fault(self, uuid: str, **faults: Any) -> None:
        """Set a daemon's faults; none: it works."""
        path = self.root / uuid / "fault.json"
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(faults))
        temporary.replace(path)

    def client(self, uuid: str, **variables: str) -> subprocess.Popen[str]:
        """Start a client of the GPU's daemon with these variables; it prints its limits."""
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(CLIENT), str(self.root / uuid / "pipe")],
            stdout=subprocess.PIPE,
            text=True,
            env=variables,
        )

    def pid(self, uuid: str) -> int:
        """Return the process id of the GPU's daemon."""
        return int((self.root / uuid / "pipe" / "nvidia-cuda-mps-control.pid").read_text())

    def kill(self, uuid: str) -> None:
        """Kill the daemon like the out-of-memory killer: its files stay."""
        os.kill(self.pid(uuid), signal.SIGKILL)

    def starts(self, uuid: str) -> list[dict[str, Any]]:
        """List the environments and arguments of its starts."""
        log = self.root / uuid / "log" / "control.log"
        return [json.loads(line) for line in log.read_text().splitlines()]

    def servers(self, uuid: str) -> list[int]:
        """List the users of its requested servers."""
        log = self.root / uuid / "log" / "server.log"
        return [int(line) for line in log.read_text().splitlines()]

    def state(self, uuid: str) -> dict[str, Any]:
        """Return its state file's content; empty without a file."""
        try:
            return json.loads((self.root / uuid / "state.json").read_text())
        except FileNotFoundError:
            return {}


class Clock:
    """Monotonic seconds."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s
