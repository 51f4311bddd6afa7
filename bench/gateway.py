"""CPU time and latency of the gateway's HTTP data path, next to Go's reverse proxy.

    python -m bench.gateway [--project build/compiled] [--rounds 5] [--seconds 3]

A do-nothing model server and the load run on one core, the process under test on the other one:
the gateway with queues, batches of 8 and decisions, and Go's ``httputil.ReverseProxy`` on one
thread, in turn. Requests per second of its own CPU time (user and system) are compared in pairs,
the median over the rounds: requests of 1 KB over 32 connections, and of 600 KB over 8. Added
latency is the p99 at half of the highest rate, less the p99 without a proxy at that rate; it needs
a quiet machine. With ``--project``, the gateway is that of a project installed in a folder, such as
the compiled one of ``make bench-gateway``; else that of this tree. Requires Go. Ratios are compared
with ``bench/ranges/gateway.json``; the status is 1 if one is out of its range.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.thresholds import check_ranges
from tests.testbed import REPOSITORY
from tests.testbed.binaries import build
from workbench.cluster.process import free_port

KIB = 1024
ANSWER_BYTES = KIB
START_S = 60.0
PROGRAMS = ("do-nothing-server", "inference-load", "reverse-proxy")


class Case(NamedTuple):
    """Size of requests, and connections."""

    name: str
    request_bytes: int
    connections: int


CASES = (Case("1k", KIB, 32), Case("600k", 3 * 224 * 224 * 4, 8))


class Target(NamedTuple):
    """A process under test."""

    name: str
    port: int
    process: psutil.Process

    def cpu_s(self) -> float:
        """Return the CPU time that it has used."""
        times = self.process.cpu_times()
        return times.user + times.system


@contextmanager
def started(command: Sequence[str], core: int, port: int, **environment: str) -> Iterator[int]:
    """Run a process on one core; entered once its port answers, with its id."""
    cores = sorted(os.sched_getaffinity(0))
    with subprocess.Popen(
        command,
        env=os.environ | environment,
        preexec_fn=lambda: os.sched_setaffinity(0, {cores[core % len(cores)]}),  # noqa: PLW1509 - no threads yet
    ) as process:
        try:
            _wait_ready(process, port)
            yield process.pid
        finally:
            process.terminate()


def _wait_ready(process: subprocess.Popen[bytes], port: int) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with status {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/m/ready", timeout=5):
                return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.1)
    raise RuntimeError(f"{process.args!r} was not ready after {START_S:.0f} s")


class Bench:
    """The processes of a run."""

    def __init__(
        self, programs: dict[str, Path], stack: ExitStack, seconds: float, project: Path
    ) -> None:
        self._load = str(programs["inference-load"])
        self._seconds = seconds
        self.server_port = free_port()
        address = f"127.0.0.1:{self.server_port}"
        server = [str(programs["do-nothing-server"]), address, str(ANSWER_BYTES)]
        stack.enter_context(started(server, 1, self.server_port))
        port = free_port()
        proxy = [str(programs["reverse-proxy"]), f"127.0.0.1:{port}", address]
        pid = stack.enter_context(started(proxy, 0, port, GOMAXPROCS="1"))
        self.proxy = Target("go", port, psutil.Process(pid))
        port = free_port()
        # -P: the folder of the process is not the first place for imports.
        command = [sys.executable, "-P", "-m", "bench.gateway_process"]
        command += [str(port), str(self.server_port)]
        path = f"{project}{os.pathsep}{REPOSITORY}"
        pid = stack.enter_context(started(command, 0, port, PYTHONPATH=path))
        self.gateway = Target("gateway", port, psutil.Process(pid))

    def load(self, port: int, case: Case, rate_rps: float = 0.0) -> dict[str, float]:
        """Send requests for some seconds; return what the load saw."""
        cores = sorted(os.sched_getaffinity(0))
        output = subprocess.run(
            [
                self._load,
                f"127.0.0.1:{port}",
                *map(str, (case.request_bytes, case.connections, self._seconds, rate_rps)),
            ],
            check=True,
            capture_output=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {cores[-1]}),
        ).stdout
        seen: dict[str, float] = json.loads(output)
        if seen["errors"]:
            raise RuntimeError(f"port {port}: {seen['errors']:,} requests failed")
        return seen

    def requests_per_cpu_s(self, target: Target, case: Case) -> tuple[float, float]:
        """Return requests per second of the target's CPU time, and per second."""
        began_s = target.cpu_s()
        seen = self.load(target.port, case)
        return seen["requests"] / (target.cpu_s() - began_s), seen["rps"]


def compare(bench: Bench, case: Case, rounds: int) -> tuple[float, float, float]:
    """Print the figures of a case; return the gateway's, its ratio to Go's, and its rate."""
    ratios, gateway_rps, rates_rps = [], [], []
    for target in (bench.gateway, bench.proxy):
        bench.load(target.port, case)  # caches, connections
    for _ in range(rounds):
        ours_rps, rate_rps = bench.requests_per_cpu_s(bench.gateway, case)
        go_rps, _ = bench.requests_per_cpu_s(bench.proxy, case)
        print(
            f"{case.name}: gateway {ours_rps:,.0f} requests per CPU-second "
            f"({1e6 / ours_rps:.0f} us each), Go {go_rps:,.0f} ({1e6 / go_rps:.0f} us)",
            flush=True,
        )
        ratios.append(ours_rps / go_rps)
        gateway_rps.append(ours_rps)
        rates_rps.append(rate_rps)
    return statistics.median(gateway_rps), statistics.median(ratios), statistics.median(rates_rps)


def added_p99_ms(bench: Bench, rate_rps: float, rounds: int) -> float:
    """Print latencies at a rate; return what the gateway adds to the p99, the smallest round."""
    added_ms = []
    for _ in range(rounds):
        direct = bench.load(bench.server_port, CASES[0], rate_rps)
        ours = bench.load(bench.gateway.port, CASES[0], rate_rps)
        go = bench.load(bench.proxy.port, CASES[0], rate_rps)
        print(
            f"at {rate_rps:,.0f} requests/s, p50/p99 in ms: "
            + ", ".join(
                f"{name} {seen['p50_ms']:.2f}/{seen['p99_ms']:.2f}"
                for name, seen in (("direct", direct), ("gateway", ours), ("Go", go))
            ),
            flush=True,
        )
        added_ms.append(ours["p99_ms"] - direct["p99_ms"])
    return min(added_ms)


def main() -> int:
    """Measure, print and compare with the ranges."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--project", type=Path, default=REPOSITORY)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    programs = build(PROGRAMS)
    with ExitStack() as stack:
        bench = Bench(programs, stack, arguments.seconds, arguments.project.resolve())
        rps_1k, vs_go_1k, rate_rps = compare(bench, CASES[0], arguments.rounds)
        _, vs_go_600k, _ = compare(bench, CASES[1], arguments.rounds)
        memory = bench.gateway.process.memory_info()
        added_ms = added_p99_ms(bench, rate_rps / 2, arguments.rounds)
    print(
        f"memory of the gateway after 600 KB requests: {(memory.rss - memory.shared) / 2**20:.0f} "
        f"MiB of its own, {memory.shared / 2**20:.0f} MiB of libraries"
    )
    print(
        f"gateway_rps: {rps_1k:.0f}  vs_go_1k: {vs_go_1k:.2f}  vs_go_600k: {vs_go_600k:.2f}  "
        f"added_p99_ms: {added_ms:.2f}"
    )
    return check_ranges("gateway", {"vs_go_1k": vs_go_1k, "vs_go_600k": vs_go_600k})


if __name__ == "__main__":
    sys.exit(main())
