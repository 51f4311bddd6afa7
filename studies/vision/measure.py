"""Measures the stand-ins of the sample functions under MPS, and writes a bundle of profiles.

    python -m studies.vision.measure --out h100.yaml --license CC-BY-4.0 --machine "1 x H100"

It needs a GPU, NVIDIA's driver, PyTorch and torchvision, and starts an MPS daemon of its own. Each
function and share has a process with one vCPU, as `studies.vision.server`; one of them runs at a
time, and a batch is measured as by ``esg profiles measure``. Then each function is measured alone
and beside each one, both with half of the GPU: the bundle's ``interference``. Points are kept in a
file beside the bundle as they are measured; the same command goes on from there, and writes the
bundle of what there is after an interruption.

With ``--cpus 1,2`` it measures servers on the CPU instead, one for each number of vCPUs. The GPU
model of their profiles is ``none``.
"""

import argparse
import asyncio
import functools
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scheduler.agent.gpus.nvml import open_nvml
from scheduler.gateway.model_servers import model_server
from scheduler.model.function_server import ServerProtocol
from studies.vision.stand_ins import STAND_INS, StandIn
from workbench.profiles.batch_times import Precision
from workbench.profiles.bundles import BUNDLE_API_VERSION
from workbench.profiles.gpu_memory import GpuMemoryError, read_gpu, server_memory_mib
from workbench.profiles.interference import ServerBatches, measure_slowdown
from workbench.profiles.measured_points import (
    MeasuredPoint,
    append_point,
    measured_profile,
    read_points,
)
from workbench.profiles.mps_daemon import MpsDaemonError, mps_daemon
from workbench.profiles.profile_documents import as_yaml
from workbench.profiles.server_measurement import MeasuredServer, measure_server

BATCHES = (1, 2, 4, 8, 16)
CPU_BATCHES = (1, 2, 4)
SHARES = (10, 25, 50, 75, 100)
PAIR_PERCENT, PAIR_ROWS = 50, 4
_PROTOCOL: ServerProtocol = "http-binary"
_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Hardware:
    """Hardware that the servers run on.

    Attributes:
        gpu_model: model of the GPU; ``none`` on a CPU.
        batches: rows of the measured batches.
        sizes: vCPUs and GPU share in percent of each server, largest first.
        environ: environment of the servers.
        memory_mib: memory of a server by the id of its process.
    """

    gpu_model: str
    batches: Sequence[int]
    sizes: Sequence[tuple[int, int]]
    environ: Mapping[str, str]
    memory_mib: Callable[[int], int]


@contextmanager
def hardware(cpus: Sequence[int]) -> Iterator[Hardware]:
    """Return the first GPU under an MPS daemon, or the machine's CPUs.

    Args:
        cpus: vCPUs of the servers on the CPU; none: servers on the GPU.
    """
    if cpus:
        sizes = [(cpu, 100) for cpu in sorted(cpus, reverse=True)]
        yield Hardware("none", CPU_BATCHES, sizes, os.environ, _resident_mib)
        return
    with mps_daemon() as environ:
        sizes = [(1, percent) for percent in sorted(SHARES, reverse=True)]
        yield Hardware(read_gpu(0).model, BATCHES, sizes, environ, _gpu_memory_mib)


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server of one architecture.

    Attributes:
        cold_start_ms: time from the start of the process until it served.
    """

    stand_in: StandIn
    cpu: int
    percent: int
    pid: int
    port: int
    cold_start_ms: float


class Starting:
    """A server that starts; `wait` returns it when it serves.

    Args:
        stand_in: architecture that it serves.
        percent: share of the GPU that MPS gives it, in percent.
        vcpus: CPUs that it runs on.
        environ: environment of the process.
    """

    def __init__(
        self, stand_in: StandIn, percent: int, vcpus: Collection[int], environ: Mapping[str, str]
    ) -> None:
        self._stand_in, self._percent, self._cpu = stand_in, percent, len(vcpus)
        self._begun_s = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "studies.vision.server", stand_in.function],
            env={
                **environ,
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent),
                "OMP_NUM_THREADS": str(len(vcpus)),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        os.sched_setaffinity(self._process.pid, vcpus)

    def wait(self) -> ServerProcess:
        """Wait until it serves."""
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise SystemExit(f"the server of {self._stand_in.function} did not start")
        port = int(line)
        start_ms = 1000 * (time.perf_counter() - self._begun_s)
        return ServerProcess(
            self._stand_in, self._cpu, self._percent, self._process.pid, port, start_ms
        )

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def servers(
    wanted: Sequence[tuple[StandIn, int, int]], environ: Mapping[str, str], *, first_vcpu: int = 1
) -> Iterator[list[ServerProcess]]:
    """Run servers of architecture, vCPUs and percent; the first one starts alone, as one would."""
    vcpus = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:

        def start(place: int) -> Starting:
            stand_in, cpu, percent = wanted[place]
            own = {vcpus[(first_vcpu + place + i) % len(vcpus)] for i in range(cpu)}
            starting = Starting(stand_in, percent, own, environ)
            stack.callback(starting.end)
            return starting

        first = start(0).wait()
        rest = [start(place) for place in range(1, len(wanted))]
        yield [first, *(starting.wait() for starting in rest)]


async def measure_function(
    stand_in: StandIn, points: list[MeasuredPoint], file: Path, options: argparse.Namespace
) -> None:
    """Measure the points of a function that the file lacks."""
    machine: Hardware = options.hardware
    done = {point.key for point in points}
    keys = {
        size: [
            rows
            for rows in machine.batches
            if (stand_in.function, machine.gpu_model, (rows, *size)) not in done
        ]
        for size in machine.sizes
    }
    wanted = [(stand_in, *size) for size, missing in keys.items() if missing]
    if not wanted:
        return
    with servers(wanted, machine.environ) as running:
        async for point in _points(running, machine, keys, options.precision):
            append_point(file, point)
            points.append(point)
            print(f"{stand_in.function}: {point.describe()}, {point.memory_mib} MiB")


async def _points(
    running: Sequence[ServerProcess],
    machine: Hardware,
    batches: Mapping[tuple[int, int], Sequence[int]],
    precision: Precision,
) -> AsyncIterator[MeasuredPoint]:
    """Measure the batches of a function by vCPUs and percent of the server, on each server."""
    start_ms = round(running[0].cold_start_ms, 1)
    for process in running:
        server = MeasuredServer(
            client=model_server(_PROTOCOL, _HOST, process.port),
            model=process.stand_in.architecture,
            address=f"http://{_HOST}",
            function=process.stand_in.function,
            gpu_model=machine.gpu_model,
            cpu=process.cpu,
            gpu_percent=process.percent,
            inputs={},
            memory_mib=functools.partial(machine.memory_mib, process.pid),
        )
        rows = batches[process.cpu, process.percent]
        async for point in measure_server(server, rows, precision, cold_start_ms=start_ms):
            yield point
        await server.client.close()


async def measure_pairs(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return the slowdown of each function beside each one with the whole GPU."""
    ratios: dict[str, dict[str, float]] = {}
    wanted = [(stand_in, 1, PAIR_PERCENT) for stand_in in options.stand_ins]
    environ = options.hardware.environ
    with (
        servers(wanted, environ) as measured,
        servers(wanted, environ, first_vcpu=1 + len(wanted)) as neighbours,
    ):
        for process in measured:
            function = process.stand_in.function
            run = await _batches(process)()
            for neighbour in neighbours:
                name = neighbour.stand_in.function
                slowdown = await measure_slowdown(
                    run,
                    options.pair_precision,
                    connect=_batches(neighbour),
                    neighbour_percent=PAIR_PERCENT,
                )
                ratios.setdefault(function, {})[name] = round(slowdown.interference_ratio, 3)
                print(
                    f"{function} beside {name}: alone {slowdown.alone.median_ms:.2f} ms, "
                    f"beside {slowdown.beside.median_ms:.2f} ms"
                )
    return ratios


def write_bundle(
    points: Sequence[MeasuredPoint],
    ratios: Mapping[str, Mapping[str, float]],
    options: argparse.Namespace,
) -> None:
    """Write header and profiles."""
    by_function: dict[str, list[MeasuredPoint]] = {}
    for point in points:
        by_function.setdefault(point.function, []).append(point)
    digests = {
        stand_in.function: f"sha256:{hashlib.sha256(repr(stand_in).encode()).hexdigest()}"
        for stand_in in STAND_INS
        if stand_in.function in by_function
    }
    header: dict[str, Any] = {
        "apiVersion": BUNDLE_API_VERSION,
        "kind": "ProfileBundle",
        "metadata": {"name": options.out.stem},
        "spec": {
            "license": options.license,
            "machine": options.machine,
            "driver": None if options.cpus else driver_version(),
            "command": "python -m studies.vision.measure"
            + (f" --cpus {','.join(map(str, options.cpus))}" if options.cpus else ""),
            "modelDigests": digests,
            "interference": {name: dict(ratios[name]) for name in digests if name in ratios},
        },
    }
    profiles = [measured_profile(measured) for measured in by_function.values()]
    architectures = ", ".join(f"{known.function}: {known.architecture}" for known in STAND_INS)
    options.out.write_text(
        "# Measured by python -m studies.vision.measure, on stand-ins for the sample functions:\n"
        f"# {architectures}.\n"
        "# They have no weights: a digest is that of an architecture's name and options.\n"
        + yaml.safe_dump(header, sort_keys=False, default_flow_style=None, width=200)
        + "---\n"
        + as_yaml(profiles),
        encoding="utf-8",
    )


def driver_version() -> str:
    """Return the version of NVIDIA's driver."""
    with open_nvml(listen=False) as session:
        return session.driver_version()


def _batches(process: ServerProcess) -> ServerBatches:
    return ServerBatches(
        protocol=_PROTOCOL,
        host=_HOST,
        port=process.port,
        model=process.stand_in.architecture,
        rows=PAIR_ROWS,
        inputs={},
    )


def _gpu_memory_mib(pid: int) -> int:
    return server_memory_mib(read_gpu(0), [pid])


def _resident_mib(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


async def _measure(options: argparse.Namespace) -> None:
    file = options.out.with_suffix(".jsonl")
    pairs_file = options.out.with_suffix(".pairs.json")
    points = read_points(file)
    ratios: dict[str, dict[str, float]] = {}
    try:
        if pairs_file.exists():
            ratios = json.loads(pairs_file.read_text(encoding="utf-8"))
        for stand_in in options.stand_ins:
            await measure_function(stand_in, points, file, options)
        if not ratios and not options.cpus:
            ratios = await measure_pairs(options)
            pairs_file.write_text(json.dumps(ratios), encoding="utf-8")
    finally:
        if points:
            write_bundle(points, ratios, options)


def main() -> None:
    """Measure what is missing, and write the bundle."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.vision.measure", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="file of the bundle")
    parser.add_argument("--license", required=True, help="SPDX identifier of the license")
    parser.add_argument("--machine", required=True, help="machine and its CPUs")
    parser.add_argument("--runs", type=int, default=75, help="least number of runs of a point")
    parser.add_argument("--limit-s", type=float, default=4.0, help="longest time of a point")
    parser.add_argument("--pair-limit-s", type=float, default=0.6, help="the same of a pair")
    names = [stand_in.function for stand_in in STAND_INS]
    parser.add_argument(
        "--cpus",
        type=lambda text: [int(cpu) for cpu in text.split(",")],
        default=[],
        help="vCPUs of servers on the CPU, as 1,2",
    )
    parser.add_argument("--function", action="append", choices=names, help="repeatable; all")
    options = parser.parse_args()
    options.stand_ins = [s for s in STAND_INS if s.function in (options.function or names)]
    options.precision = Precision(runs_min=options.runs, limit_s=options.limit_s, warm_up_runs=5)
    options.pair_precision = Precision(runs_min=40, limit_s=options.pair_limit_s, warm_up_runs=5)
    try:
        with hardware(options.cpus) as options.hardware:
            asyncio.run(_measure(options))
    except (GpuMemoryError, MpsDaemonError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
