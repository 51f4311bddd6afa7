"""CPU time and latency of the gateway's HTTP data path, next to Go's reverse proxy and Ray Serve.

    python -m bench.gateway [--project build/compiled] [--rounds 5] [--seconds 3]
    python -m bench.gateway --recording [--project build/compiled] [--rounds 20]

A do-nothing model server and the load run on one core, the process under test on the other one:
the gateway with queues, batches of 8 and decisions, and Go's ``httputil.ReverseProxy`` on one
thread, in turn. Requests per second of its own CPU time (user and system) are compared in pairs,
the median over the rounds: requests of 1 KB over 32 connections, and of 600 KB over 8. Added
latency is the p99 at half of the highest rate, less the p99 without a proxy at that rate; it needs
a quiet machine. Then Ray Serve's proxy takes Go's place, in front of a do-nothing replica, if
`make build/ray/.installed` has installed it. With ``--project``, the gateway is that of a project
installed in a folder, such as the compiled one of ``make bench-gateway``; else that of this tree.
Requires Go. Ratios, and the resident memory of such a project, are compared with
``bench/ranges/gateway.json``; the status is 1 if one is out of its range.

With ``--recording``, the cost of recording calls and batches (`esg why`, `esg calibrate`) is
measured in one process, which is compiled or not: in every second slice of a quarter of a second,
each call and each batch is recorded ten times more. A tenth of the difference between two
neighbouring slices, in CPU time of a request of 1 KB, is what recording costs; so noise counts a
tenth, too. The result is the median over the pairs, with its interval at 95 % by order statistics.
It is rather too high than too low: what records ten times more is not compiled.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.thresholds import check_ranges
from tests.testbed import REPOSITORY
from tests.testbed.binaries import build
from workbench.cluster.process import free_port
from workbench.profiles.quantile_intervals import quantile_interval

KIB = 1024
ANSWER_BYTES = KIB
START_S = 60.0
PROGRAMS = ("do-nothing-server", "inference-load", "reverse-proxy")
RECORDED_AGAIN = 10
CONFIDENCE = 0.95
RAY_PYTHON = REPOSITORY / "build" / "ray" / "bin" / "python"
# No telemetry, and the address 127.0.0.1, whose switch is for Windows first.
RAY_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
RAY_PROXY, RAY_REPLICA = "ray::ProxyActor", "ray::ServeReplica"


class Case(NamedTuple):
    """Size of requests, and connections."""

    name: str
    request_bytes: int
    connections: int


CASES = (Case("1k", KIB, 32), Case("600k", 3 * 224 * 224 * 4, 8))


class Target(NamedTuple):
    """A process under test, and its model server."""

    name: str
    port: int
    process: psutil.Process
    server: psutil.Process


class Cost(NamedTuple):
    """CPU time of a request in a target's two processes, and requests per second."""

    process_s: float
    server_s: float
    rate_rps: float


class GatewayFigures(NamedTuple):
    """Medians over the rounds.

    Attributes:
        rps: throughput of the gateway: requests per second of its CPU time.
        ratio: throughput as a ratio to the rival's.
        with_server_ratio: the same ratio with the CPU time of the model servers.
        rate_rps: rate of the load, requests per second.
    """

    rps: float
    ratio: float
    with_server_ratio: float
    rate_rps: float


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


@contextmanager
def started(command: Sequence[str], core: int, port: int, **environment: str) -> Iterator[int]:
    """Run a process on one core; entered once its port answers, with its id."""
    with subprocess.Popen(
        command,
        env=os.environ | environment,
        preexec_fn=lambda: os.sched_setaffinity(0, {_core(core)}),  # noqa: PLW1509 - no threads yet
    ) as process:
        try:
            _wait_ready(process, port)
            yield process.pid
        finally:
            process.terminate()


def _core(number: int) -> int:
    cores = sorted(os.sched_getaffinity(0))
    return cores[number % len(cores)]


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
        command = [str(programs["do-nothing-server"]), address, str(ANSWER_BYTES)]
        server = psutil.Process(stack.enter_context(started(command, 1, self.server_port)))
        port = free_port()
        proxy = [str(programs["reverse-proxy"]), f"127.0.0.1:{port}", address]
        pid = stack.enter_context(started(proxy, 0, port, GOMAXPROCS="1"))
        self.proxy = Target("Go", port, psutil.Process(pid), server)
        self._server, self._stack, self._project = server, stack, project
        self.gateway = self.start_gateway("gateway")

    def start_gateway(self, name: str, *options: str) -> Target:
        """Start a gateway on the first core."""
        port = free_port()
        # -P: the folder of the process is not the first place for imports.
        command = [sys.executable, "-P", "-m", "bench.gateway_process"]
        command += [str(port), str(self.server_port), *options]
        path = f"{self._project}{os.pathsep}{REPOSITORY}"
        pid = self._stack.enter_context(started(command, 0, port, PYTHONPATH=path))
        return Target(name, port, psutil.Process(pid), self._server)

    def load(self, port: int, case: Case, rate_rps: float = 0.0) -> dict[str, float]:
        """Send requests for some seconds; return what the load saw."""
        output = subprocess.run(
            [
                self._load,
                f"127.0.0.1:{port}",
                *map(str, (case.request_bytes, case.connections, self._seconds, rate_rps)),
            ],
            check=True,
            capture_output=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {_core(-1)}),
        ).stdout
        seen: dict[str, float] = json.loads(output)
        if seen["errors"]:
            raise RuntimeError(f"port {port}: {seen['errors']:,} requests failed")
        return seen

    def cost(self, target: Target, case: Case) -> Cost:
        """Return what requests cost a target."""
        processes = (target.process, target.server)
        began_s = [_cpu_s(process) for process in processes]
        seen = self.load(target.port, case)
        process_s, server_s = (
            (_cpu_s(process) - before_s) / seen["requests"]
            for process, before_s in zip(processes, began_s, strict=True)
        )
        return Cost(process_s, server_s, seen["rps"])


@contextmanager
def ray_serve() -> Iterator[Target]:
    """Run Ray Serve on the core of the model server, and its proxy on the gateway's."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        command = [str(RAY_PYTHON), str(Path(__file__).with_name("ray_process.py"))]
        command += [str(port), str(ANSWER_BYTES), folder]
        with started(command, 1, port, HOME=folder, **RAY_SETTINGS) as pid:
            actors = psutil.Process(pid).children(recursive=True)
            proxy, replica = (
                next(actor for actor in actors if actor.cmdline()[0].startswith(name))
                for name in (RAY_PROXY, RAY_REPLICA)
            )
            for thread in proxy.threads():
                os.sched_setaffinity(thread.id, {_core(0)})
            yield Target("Ray", port, proxy, replica)


def compare(bench: Bench, rival: Target, case: Case, rounds: int) -> GatewayFigures:
    """Print the costs of a case's requests; return how the gateway's compare."""
    rows = []
    for target in (bench.gateway, rival):
        bench.load(target.port, case)  # caches, connections
    for _ in range(rounds):
        ours, theirs = bench.cost(bench.gateway, case), bench.cost(rival, case)
        print(
            f"{case.name}, us of CPU per request (and of its model server): "
            + ", ".join(
                f"{name} {1e6 * cost.process_s:.0f} ({1e6 * cost.server_s:.0f})"
                for name, cost in (("gateway", ours), (rival.name, theirs))
            ),
            flush=True,
        )
        ratio = theirs.process_s / ours.process_s
        both = (theirs.process_s + theirs.server_s) / (ours.process_s + ours.server_s)
        rows.append(GatewayFigures(1 / ours.process_s, ratio, both, ours.rate_rps))
    return GatewayFigures(*map(statistics.median, zip(*rows, strict=True)))


def added_p99_ms(bench: Bench, rate_rps: float, rounds: int) -> float:
    """Print latencies at a rate; return what the gateway adds to the p99, the median."""
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
    return statistics.median(added_ms)


def recording_ratio(bench: Bench, rounds: int) -> float:
    """Print what recording adds to the CPU time of a request; return the median of the ratios."""
    with tempfile.TemporaryDirectory(prefix="recording-") as folder:
        file = Path(folder, "slices")
        target = bench.start_gateway("recording", str(RECORDED_AGAIN), str(file))
        bench.load(target.port, CASES[0])
        warm_up = len(_lines(file))
        for _ in range(rounds):
            bench.load(target.port, CASES[0])
        slices = _lines(file)[warm_up + warm_up % 2 :]
    costs_us: list[dict[int, float]] = [
        {times: 1e6 * spent_s / calls for times, calls, spent_s in pair}
        for pair in zip(slices[::2], slices[1::2], strict=False)
        if all(calls for _, calls, _ in pair)
    ]
    ratios = []
    for cost_us in costs_us:
        recorded_us = (cost_us[RECORDED_AGAIN] - cost_us[0]) / RECORDED_AGAIN
        ratios.append(cost_us[0] / (cost_us[0] - recorded_us))
    ratio = statistics.median(ratios)
    interval = quantile_interval(sorted(ratios), 0.5, CONFIDENCE)
    once_us, again_us = (
        statistics.median(cost_us[times] for cost_us in costs_us) for times in (0, RECORDED_AGAIN)
    )
    print(
        f"us of CPU per request: {once_us:.1f}, recorded {RECORDED_AGAIN} times more "
        f"{again_us:.1f}; medians of {len(costs_us)} pairs"
    )
    low, high = interval or (float("nan"), float("nan"))
    print(f"recording_ratio: {ratio:.4f} ({low:.4f} to {high:.4f} at {100 * CONFIDENCE:.0f} %)")
    return ratio


def _lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def compare_with_ray(bench: Bench, rounds: int) -> dict[str, float]:
    """Print the figures of Ray Serve's proxy, and return them."""
    with ray_serve() as ray:
        small, large = (compare(bench, ray, case, rounds) for case in CASES)
    print(
        f"vs_ray_1k: {small.ratio:.1f}  vs_ray_600k: {large.ratio:.1f}  with the model servers: "
        f"{small.with_server_ratio:.1f}  {large.with_server_ratio:.1f}"
    )
    return {"vs_ray_1k": small.ratio, "vs_ray_600k": large.ratio}


def main() -> int:
    """Measure, print and compare with the ranges."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--project", type=Path, default=REPOSITORY)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--recording", action="store_true")
    arguments = parser.parse_args()
    programs = build(PROGRAMS)
    with ExitStack() as stack:
        bench = Bench(programs, stack, arguments.seconds, arguments.project.resolve())
        if arguments.recording:
            ratio = recording_ratio(bench, arguments.rounds)
            return check_ranges("gateway", {"recording_ratio": ratio})
        small, large = (compare(bench, bench.proxy, case, arguments.rounds) for case in CASES)
        memory = bench.gateway.process.memory_info()
        added_ms = added_p99_ms(bench, small.rate_rps / 2, arguments.rounds)
        rss_mib = memory.rss / 2**20
        print(
            f"memory of the gateway after 600 KB requests: {rss_mib:.0f} MiB, of which "
            f"{(memory.rss - memory.shared) / 2**20:.0f} of its own and "
            f"{memory.shared / 2**20:.0f} of mapped files"
        )
        figures = {"vs_go_1k": small.ratio, "vs_go_600k": large.ratio}
        if arguments.project != REPOSITORY:  # the tree itself loads Numba
            figures["compiled_rss_mib"] = rss_mib
        if RAY_PYTHON.exists():
            figures |= compare_with_ray(bench, arguments.rounds)
        else:
            print("Ray Serve is left out: run `make build/ray/.installed`")
    print(
        f"gateway_rps: {small.rps:.0f}  vs_go_1k: {small.ratio:.2f}  "
        f"vs_go_600k: {large.ratio:.2f}  added_p99_ms: {added_ms:.2f}"
    )
    return check_ranges("gateway", figures)


if __name__ == "__main__":
    sys.exit(main())
