"""`esg mps check`: are a pod's limits in force, seen from inside?

To be run in the container that has the GPU: another container of the pod has neither its
environment nor its mounts.
"""

import errno
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from scheduler.agent.cuda import Granted
from scheduler.agent.nvml import NvmlError, opened
from scheduler.agent.reading import DeviceReading

_CUDA_S = 30.0  # the first context on a machine takes some seconds
_ANSWER_S = 3.0
_GRAIN = 2  # multiprocessors: shares are given in TPCs, of two each
_MEMORY = re.compile(r"0=(?P<amount>[1-9]\d{0,8})(?P<unit>[MG])", re.ASCII)
_UNIT_BYTES = {"M": 2**20, "G": 2**30}
_GRANTED = TypeAdapter(Granted)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    ``not seen`` is what could not be looked at; ``undecided``, what shows nothing either way.
    """

    verdict: Literal["ok", "undecided", "not in force", "not seen"]
    text: str

    def __str__(self) -> str:
        return f"{self.verdict}: {self.text}"


def visible_devices() -> tuple[DeviceReading, ...]:
    """The GPUs that NVML shows here.

    Raises:
        NvmlError: it shows nothing.
    """
    with opened(listen=False) as session:
        return session.read().devices


def findings(
    environ: Mapping[str, str],
    *,
    devices: Callable[[], tuple[DeviceReading, ...]] = visible_devices,
) -> Iterator[Finding]:
    """What is and what is not in force for a process with this environment, in order."""
    percent = _percent(environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"))
    limit_bytes = _bytes(environ.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"))
    yield _variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", environ, understood=percent is not None)
    yield _variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", environ, understood=limit_bytes is not None)
    yield _daemon(environ.get("CUDA_MPS_PIPE_DIRECTORY", ""))
    whole: int | None = None
    left_bytes: int | None = None
    try:
        here = devices()
    except NvmlError as error:
        yield Finding("not seen", f"compute mode: {error}")
    else:
        if len(here) == 1:
            whole, left_bytes = here[0].multiprocessors, _left_bytes(here[0])
        yield _mode(here)
    granted = _ask_cuda(environ)
    if granted.problem:
        told = f"limits at work: {granted.problem}"
        yield Finding("not seen" if granted.installed else "not in force", told)
        return
    yield _multiprocessors(granted, whole, percent)
    yield _memory(granted.free_bytes, limit_bytes, left_bytes)


def _variable(name: str, environ: Mapping[str, str], *, understood: bool) -> Finding:
    value = environ.get(name)
    if value is None:
        return Finding("not in force", f"{name} is not set")
    if not understood:
        return Finding("not in force", f"{name} is {value!r}, which is no limit of one GPU")
    return Finding("ok", f"{name} is {value}")


def _percent(text: str | None) -> float | None:
    try:
        percent = float(text or "")
    except ValueError:
        return None
    return percent if 0 < percent <= 100 else None  # noqa: PLR2004


def _bytes(text: str | None) -> int | None:
    match = _MEMORY.fullmatch(text or "")
    return int(match["amount"]) * _UNIT_BYTES[match["unit"]] if match else None


def _daemon(folder: str) -> Finding:
    if not folder:
        return Finding("not in force", "CUDA_MPS_PIPE_DIRECTORY is not set: there is no MPS daemon")
    door = Path(folder) / "control"
    try:
        # Knocking is all: what the daemon is asked by its own program, the image may not have.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
            knock.settimeout(_ANSWER_S)
            knock.connect(str(door))
    except OSError as error:
        # Another kind of socket than ours still says that somebody listens.
        if error.errno != errno.EPROTOTYPE:
            why = error.strerror or str(error)
            return Finding("not in force", f"the MPS daemon does not answer at {door}: {why}")
    return Finding("ok", f"the MPS daemon answers at {door}")


def _mode(devices: tuple[DeviceReading, ...]) -> Finding:
    if len(devices) != 1:
        told = "no GPU is visible" if not devices else f"{len(devices)} GPUs are visible, not one"
        return Finding("not in force", f"{told}: NVIDIA_VISIBLE_DEVICES names the one granted")
    if not devices[0].exclusive:
        return Finding(
            "not in force",
            "compute mode is not EXCLUSIVE_PROCESS: who misses the MPS daemon has the whole GPU",
        )
    return Finding("ok", "compute mode is EXCLUSIVE_PROCESS")


def _left_bytes(device: DeviceReading) -> int | None:
    """Free on the whole GPU, for whomever."""
    used_bytes = device.memory_used_bytes
    return None if used_bytes is None else device.memory_mib * 2**20 - used_bytes


def _ask_cuda(environ: Mapping[str, str]) -> Granted:
    """Ask in a process of its own, whose limits are those of ``environ``."""
    try:
        answer = subprocess.run(
            [sys.executable, "-m", "scheduler.agent.cuda"],
            env=dict(environ),
            capture_output=True,
            timeout=_CUDA_S,
            check=False,
        )
        return _GRANTED.validate_json(answer.stdout)
    except subprocess.TimeoutExpired:
        return Granted(f"CUDA did not start within {_CUDA_S:g} s; it may wait for an MPS server")
    except ValidationError:
        return Granted("CUDA ended the process that asked it")


def _multiprocessors(granted: Granted, whole: int | None, percent: float | None) -> Finding:
    has = granted.multiprocessors
    if granted.devices != 1:
        return Finding("not in force", f"CUDA sees {granted.devices} GPUs, not one")
    if whole is None or percent is None:
        return Finding(
            "not seen", f"share at work: {has} multiprocessors, of how many is not known"
        )
    told = f"share at work: {has} of {whole} multiprocessors, for {percent:g} %"
    # Rounded down to whole grains, of which at least one is given.
    most = min(whole, max(percent / 100 * whole, _GRAIN))
    return Finding("ok" if has <= most else "not in force", told)


def _memory(free_bytes: int, limit_bytes: int | None, left_bytes: int | None) -> Finding:
    """``left_bytes`` are free on the whole GPU: where those are few, no limit is needed for it."""
    told = f"memory at work: {free_bytes // 2**20:,} MiB are free to this process"
    if limit_bytes is None:
        return Finding("not in force", told)
    told += f", its limit is {limit_bytes // 2**20:,} MiB"
    if free_bytes > limit_bytes:
        return Finding("not in force", told)
    if left_bytes is None or left_bytes <= limit_bytes:
        return Finding("undecided", f"{told}; its neighbours may leave no more than that")
    return Finding("ok", told)
