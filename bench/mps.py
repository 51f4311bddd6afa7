"""Processes that share a GPU under MPS: what a batch costs beside idle and beside running ones.

    python -m bench.mps [--processes 12] [--percent 25] [--runs 200] [--daemon]

It needs a GPU of compute capability 7.0 or later and NVIDIA's driver, and nothing else. Pools (ADR
44) rest on three properties of MPS, which it measures with processes of ``--percent`` each:

- *idle*: a process runs alone, and beside the others that have a context and no work. The ratio of
  the medians is at most 1.01.
- *full*: all processes have batches, and an arbiter lets as many run at once as 100 % hold. The
  ratio of the 95th percentile to that of the process alone is at most 1.10.
- *beyond*: the same with twice as many at once. The ratio of the medians says what an arbiter is
  worth; it is at least 1.2.

The kernel computes and reads no memory, so neighbours' memory bandwidth does not count here. With
``--daemon`` the script starts an MPS daemon of its own, and ends it; without it, it uses the one of
``CUDA_MPS_PIPE_DIRECTORY``. The status is 1 if a ratio is out of its bound, and 2 without a GPU.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import BoundedSemaphore

from workbench.profiles.mps_daemon import MpsDaemonError, mps_daemon

IDLE_MAX, FULL_MAX, BEYOND_MIN = 1.01, 1.10, 1.2
RUN_MS = 20.0  # of one batch alone, about
BLOCKS_PER_MULTIPROCESSOR = 64  # eight times as many as run at once, whatever the share
WHOLE_PERCENT = 100


class NoGpuError(Exception):
    """The processes cannot run here; the message says why."""


class Client:
    """One process under MPS.

    Raises:
        NoGpuError: it has no GPU.
    """

    def __init__(self, percent: int, environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.mps_client"],
            env={**environ, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.multiprocessors = int(self._answer())

    def run_ms(self, blocks: int, rounds: int) -> float:
        """Run one batch; return its time."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{blocks} {rounds}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line or line.startswith("error: "):
            self.close()
            raise NoGpuError(line.removeprefix("error: ") or "a process ended without an answer")
        return line


def together_ms(
    clients: Sequence[Client], at_once: int, runs: int, batch: tuple[int, int]
) -> list[float]:
    """Return the times of batches of all clients, of which at most ``at_once`` run at a time."""
    arbiter = BoundedSemaphore(at_once)

    def serve(client: Client) -> list[float]:
        times_ms = []
        for _ in range(runs):
            with arbiter:
                times_ms.append(client.run_ms(*batch))
        return times_ms

    with ThreadPoolExecutor(len(clients)) as pool:
        return [time_ms for times_ms in pool.map(serve, clients) for time_ms in times_ms]


def fitted_batch(client: Client) -> tuple[int, int]:
    """Return blocks and rounds of a batch that takes about `RUN_MS` alone."""
    blocks, rounds = BLOCKS_PER_MULTIPROCESSOR * client.multiprocessors, 1_000
    client.run_ms(blocks, rounds)  # the first one loads the kernel
    time_ms = statistics.median(client.run_ms(blocks, rounds) for _ in range(5))
    return blocks, max(1, round(rounds * RUN_MS / time_ms))


def p95(times_ms: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return statistics.quantiles(times_ms, n=20)[-1]


def measure(
    processes: int, percent: int, runs: int, environ: Mapping[str, str]
) -> dict[str, float]:
    """Return the three ratios; raises a `NoGpuError`."""
    at_once = max(1, WHOLE_PERCENT // percent)
    with ExitStack() as stack:
        clients: list[Client] = []

        def start() -> None:
            clients.append(Client(percent, environ))
            stack.callback(clients[-1].close)

        start()
        batch = fitted_batch(clients[0])
        alone_ms = together_ms(clients, 1, runs, batch)
        while len(clients) < processes:
            start()
            clients[-1].run_ms(batch[0], 1)  # it has a context, and its kernel is loaded
        idle_ms = together_ms(clients[:1], 1, runs, batch)
        full_ms = together_ms(clients, at_once, runs, batch)
        beyond_ms = together_ms(clients, min(2 * at_once, processes), runs, batch)
    alone_p50_ms = statistics.median(alone_ms)
    print(f"{clients[0].multiprocessors} multiprocessors, {batch[1]:,} rounds a batch")
    for name, times_ms in (
        ("alone", alone_ms),
        ("beside idle processes", idle_ms),
        (f"{at_once} at once", full_ms),
        (f"{min(2 * at_once, processes)} at once", beyond_ms),
    ):
        print(f"{name:<24} p50 {statistics.median(times_ms):7.2f} ms  p95 {p95(times_ms):7.2f} ms")
    return {
        "idle_ratio": statistics.median(idle_ms) / alone_p50_ms,
        "full_p95_ratio": p95(full_ms) / p95(alone_ms),
        "beyond_ratio": statistics.median(beyond_ms) / alone_p50_ms,
    }


def main() -> int:
    """Measure and print; return the status."""
    parser = argparse.ArgumentParser(prog="python -m bench.mps", description=__doc__)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--percent", type=int, default=25, help="of each process")
    parser.add_argument("--runs", type=int, default=200, help="of each process in each case")
    parser.add_argument("--daemon", action="store_true", help="start an MPS daemon, and end it")
    options = parser.parse_args()
    try:
        with ExitStack() as stack:
            environ = stack.enter_context(mps_daemon()) if options.daemon else os.environ
            ratios = measure(options.processes, options.percent, options.runs, environ)
    except (MpsDaemonError, NoGpuError) as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 2
    texts = [f"{name}: {ratio:.3f}" for name, ratio in ratios.items()]
    print("  ".join([f"mps: {options.processes} x {options.percent} %", *texts]))
    is_within = (
        ratios["idle_ratio"] <= IDLE_MAX
        and ratios["full_p95_ratio"] <= FULL_MAX
        and ratios["beyond_ratio"] >= BEYOND_MIN
    )
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main())
