"""`esg mps check`: check from inside a container that its GPU limits are enforced.

It must run in the container that has the GPU: other containers of the pod have neither its
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

from scheduler.agent.gpus.nvml import NvmlError, open_nvml
from scheduler.agent.gpus.reading import DeviceReading
from scheduler.agent.mps.cuda import CudaReport

_CUDA_S = 30.0  # the first context on a machine takes some seconds
_ANSWER_S = 3.0
_GRANULARITY = 2  # multiprocessors: shares are multiples of a TPC, which has two
_MEMORY = re.compile(r"0=(?P<amount>[1-9]\d{0,8})(?P<unit>[MG])", re.ASCII)
_UNIT_BYTES = {"M": 2**20, "G": 2**30}
_CUDA_REPORT = TypeAdapter(CudaReport)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check.

    ``not checked``: the check could not run; ``undecided``: it shows nothing either way.
    """

    verdict: Literal["ok", "undecided", "not enforced", "not checked"]
    text: str

    def __str__(self) -> str:
        return f"{self.verdict}: {self.text}"


def visible_devices() -> tuple[DeviceReading, ...]:
    """Read the GPUs that NVML shows here.

    Raises:
        NvmlError: it shows none.
    """
    with open_nvml(listen=False) as session:
        return session.read().devices


def run_checks(
    environ: Mapping[str, str],
    *,
    devices: Callable[[], tuple[DeviceReading, ...]] = visible_devices,
) -> Iterator[CheckResult]:
    """Check each limit for a process with this environment, in order."""
    percent = _percent(environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"))
    limit_bytes = _bytes(environ.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"))
    yield _variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", environ, understood=percent is not None)
    yield _variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", environ, understood=limit_bytes is not None)
    yield _daemon(environ.get("CUDA_MPS_PIPE_DIRECTORY", ""))
    total: int | None = None
    free_bytes: int | None = None
    try:
        visible = devices()
    except NvmlError as error:
        yield CheckResult("not checked", f"compute mode: {error}")
    else:
        if len(visible) == 1:
            total, free_bytes = visible[0].multiprocessors, _free_bytes(visible[0])
        yield _mode(visible)
    report = _query_cuda(environ)
    if report.problem:
        text = f"effective limits: {report.problem}"
        yield CheckResult("not checked" if report.installed else "not enforced", text)
        return
    yield _multiprocessors(report, total, percent)
    yield _memory(report.free_bytes, limit_bytes, free_bytes)


def _variable(name: str, environ: Mapping[str, str], *, understood: bool) -> CheckResult:
    value = environ.get(name)
    if value is None:
        return CheckResult("not enforced", f"{name} is not set")
    if not understood:
        return CheckResult("not enforced", f"{name} is {value!r}: not a limit of one GPU")
    return CheckResult("ok", f"{name} is {value}")


def _percent(text: str | None) -> float | None:
    try:
        percent = float(text or "")
    except ValueError:
        return None
    return percent if 0 < percent <= 100 else None  # noqa: PLR2004


def _bytes(text: str | None) -> int | None:
    match = _MEMORY.fullmatch(text or "")
    return int(match["amount"]) * _UNIT_BYTES[match["unit"]] if match else None


def _daemon(folder: str) -> CheckResult:
    if not folder:
        return CheckResult("not enforced", "CUDA_MPS_PIPE_DIRECTORY is not set: without MPS daemon")
    path = Path(folder) / "control"
    try:
        # Only connect: commands need the daemon's own program, which the image may lack.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(str(path))
    except OSError as error:
        # A socket of another type still shows that a process listens.
        if error.errno != errno.EPROTOTYPE:
            reason = error.strerror or str(error)
            text = f"the MPS daemon does not answer at {path}: {reason}"
            return CheckResult("not enforced", text)
    return CheckResult("ok", f"the MPS daemon answers at {path}")


def _mode(devices: tuple[DeviceReading, ...]) -> CheckResult:
    if len(devices) != 1:
        number = "no GPU is visible" if not devices else f"{len(devices)} GPUs are visible, not one"
        return CheckResult(
            "not enforced", f"{number}; set NVIDIA_VISIBLE_DEVICES to the granted GPU"
        )
    if not devices[0].exclusive:
        return CheckResult(
            "not enforced",
            "compute mode is not EXCLUSIVE_PROCESS: without the MPS daemon a process gets the "
            "whole GPU",
        )
    return CheckResult("ok", "compute mode is EXCLUSIVE_PROCESS")


def _free_bytes(device: DeviceReading) -> int | None:
    """Free memory of the whole GPU."""
    used_bytes = device.memory_used_bytes
    return None if used_bytes is None else device.memory_mib * 2**20 - used_bytes


def _query_cuda(environ: Mapping[str, str]) -> CudaReport:
    """Query CUDA in its own process, whose limits come from ``environ``."""
    try:
        answer = subprocess.run(
            [sys.executable, "-m", "scheduler.agent.mps.cuda"],
            env=dict(environ),
            capture_output=True,
            timeout=_CUDA_S,
            check=False,
        )
        return _CUDA_REPORT.validate_json(answer.stdout)
    except subprocess.TimeoutExpired:
        return CudaReport(f"CUDA did not start within {_CUDA_S:g} s; it may wait for an MPS server")
    except ValidationError:
        return CudaReport("CUDA ended the process that queried it")


def _multiprocessors(report: CudaReport, total: int | None, percent: float | None) -> CheckResult:
    visible = report.multiprocessors
    if report.devices != 1:
        return CheckResult("not enforced", f"CUDA sees {report.devices} GPUs, not one")
    if total is None or percent is None:
        return CheckResult(
            "not checked", f"effective share: {visible} multiprocessors of an unknown total"
        )
    text = f"effective share: {visible} of {total} multiprocessors, for {percent:g} %"
    # Rounded down to the granularity, but never to zero.
    limit = min(total, max(percent / 100 * total, _GRANULARITY))
    return CheckResult("ok" if visible <= limit else "not enforced", text)


def _memory(free_bytes: int, limit_bytes: int | None, gpu_free_bytes: int | None) -> CheckResult:
    """Check the memory limit; if the whole GPU has less free memory, the check shows nothing."""
    text = f"effective memory: {free_bytes // 2**20:,} MiB are free for this process"
    if limit_bytes is None:
        return CheckResult("not enforced", text)
    text += f", its limit is {limit_bytes // 2**20:,} MiB"
    if free_bytes > limit_bytes:
        return CheckResult("not enforced", text)
    if gpu_free_bytes is None or gpu_free_bytes <= limit_bytes:
        return CheckResult("undecided", f"{text}; other processes may leave no more than that")
    return CheckResult("ok", text)
