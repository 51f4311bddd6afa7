"""The machine's GPUs as the tests play them: a file that our libnvidia-ml.so.1 answers from."""

import ctypes
import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest

SOURCES = Path(__file__).with_name("nvml")
GPU_IS_LOST = 15
DRIVER_NOT_LOADED = 9
DRIVER_EXCHANGED = 18
FUNCTION_NOT_FOUND = 13
ARGUMENT_VERSION_MISMATCH = 25
TIMEOUT = 10
PROHIBITED = 2
EXCLUSIVE_PROCESS = 3

Value = int | str


def a100(index: int, name: str = "node") -> dict[str, Value]:
    """A GPU in good health."""
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
    """GPUs, by index; what is changed is seen by the next call of NVML.

    Attributes:
        environment: what a program needs to see them.
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
        """Of all GPUs, in order."""
        return [str(gpu["uuid"]) for gpu in self._gpus]

    def set(self, index: int, **properties: Value | None) -> None:
        """Change a GPU; None takes a property away, as with a GPU that does not know it."""
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
        """Put another GPU in its place."""
        self._gpus[index] = gpu
        self._write()

    def remove_last(self) -> None:
        """Take the last GPU out."""
        self._gpus.pop()
        self._write()

    def strike(self, index: int, xid: int) -> None:
        """Let a critical error happen on a GPU."""
        self._events.append((index, xid))
        self._write()

    def mode(self, index: int) -> int:
        """The compute mode that was set."""
        path = self._mode_path(index)
        return int(path.read_text()) if path.exists() else int(self._gpus[index]["mode"])

    def set_mode(self, index: int, mode: int) -> None:
        """Set the compute mode, as anybody may."""
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
    """A folder with our libnvidia-ml.so.1 and libcuda.so.1, for LD_LIBRARY_PATH.

    Without a C compiler the test is skipped; under `CI=true` that is an error.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        if os.environ.get("CI") == "true":
            raise FileNotFoundError("a C compiler (cc) is needed: the tests' NVML is built with it")
        pytest.skip("there is no C compiler, and the tests' NVML is built with it")
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
    """Have this process' pynvml find our library: the loader knows it by its soname from now on."""
    ctypes.CDLL(str(libraries / "libnvidia-ml.so.1"))
