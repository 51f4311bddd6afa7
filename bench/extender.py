"""Latency of filter, prioritize and bind over HTTP, on a fleet that is half full.

    python -m bench.extender [--calls N]

For 100, 1,000 and 5,000 nodes of 8 GPUs, half of the nodes full: p50, p99 and maximum of each call,
over one connection, with 500 names a call (all nodes, where there are fewer), the client in another
process than the service. Then the growth of filter and prioritize with the names in a call, at
5,000 nodes, and the time of one changed document. Filter passes 32 nodes here: with its default,
one, prioritize is never called. The results are compared with ``bench/ranges/extender.json``; the
exit status is 1 where one is out of its range.
"""

import argparse
import gc
import http.client
import json
import math
import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench import synthetic_load
from bench.document_events import document_events_ms
from bench.service import documents, serving
from bench.thresholds import check_ranges
from workbench.cluster.extender import best_node, binding_arguments, extender_arguments
from workbench.cluster.process import free_port

NODES = (100, 1_000, 5_000)
GPUS = 8
NAMES = 500
GROWTH = (100, 250, 500, 1_000, 2_500, 5_000)
WARM_UP = 30
PERCENTS = (50, 99, 100)
ROUNDS = 5  # p50 and p99 are those of the median round: the machine has other things to do


class TimedConnection:
    """One kept-alive connection; it measures calls from the first byte to the last."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._http.connect()

    def post(self, path: str, body: bytes) -> tuple[bytes, float]:
        """Send a request; return the answer and its latency in ms."""
        began_s = time.perf_counter()
        self._http.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self._http.getresponse()
        text = answer.read()
        latency_ms = 1000 * (time.perf_counter() - began_s)
        if answer.status != http.client.OK:
            raise RuntimeError(f"{path}: {answer.status} {text[:500]!r}")
        return text, latency_ms


@dataclass
class CallTimes:
    """Latencies by type of call, and CPU times of the service's event loop, in ms."""

    filter: list[float] = field(default_factory=list)
    filter_cpu: list[float] = field(default_factory=list)
    prioritize: list[float] = field(default_factory=list)
    bind: list[float] = field(default_factory=list)


class SchedulerClient:
    """Calls the extender as kube-scheduler does: for each pod a sample of the nodes, then one."""

    def __init__(self, connection: TimedConnection, node_count: int, service_pid: int) -> None:
        self._connection = connection
        self._scheduler_statistics = Path(f"/proc/{service_pid}/schedstat")
        self._names = [synthetic_load.node_name(i) for i in range(node_count)]
        self._rng = random.Random(1)
        self._pods = 1_000_000
        workflows, _ = documents()
        self._stages = [(w, stage.name) for w in workflows for stage in w.spec.stages]

    def place(self, names: int, times: CallTimes, *, bind: bool) -> None:
        """Place one pod."""
        self._pods += 1
        workflow, stage = self._stages[self._pods % len(self._stages)]
        pod = synthetic_load.pod(self._pods, workflow, stage)
        sample = self._rng.sample(self._names, min(names, len(self._names)))
        before_ms = self._cpu_ms()
        text, latency_ms = self._call("/filter", pod, sample)
        times.filter.append(latency_ms)
        times.filter_cpu.append(self._cpu_ms() - before_ms)
        result = json.loads(text)
        passing = result["NodeNames"]
        if result["Error"] or not passing:
            raise RuntimeError(f"filter let nothing through: {text[:500]!r}")
        text, latency_ms = self._call("/prioritize", pod, passing)
        times.prioritize.append(latency_ms)
        if bind:
            self._bind(pod, best_node(json.loads(text)), times)

    def _call(self, path: str, pod: synthetic_load.Json, names: list[str]) -> tuple[bytes, float]:
        body = json.dumps(extender_arguments(pod, names)).encode()
        return self._connection.post(path, body)

    def _cpu_ms(self) -> float:
        """Return the CPU time of the service's main thread, which runs its event loop."""
        return int(self._scheduler_statistics.read_text().split()[0]) / 1e6

    def _bind(self, pod: synthetic_load.Json, node: str, times: CallTimes) -> None:
        body = json.dumps(binding_arguments(pod, node)).encode()
        text, latency_ms = self._connection.post("/bind", body)
        times.bind.append(latency_ms)
        if json.loads(text)["Error"]:
            raise RuntimeError(f"bind: {text!r}")


def measure(client: SchedulerClient, calls: int) -> dict[str, float]:
    """Measure p50, p99 and maximum of the three calls, in ms: medians of several rounds."""
    rounds: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        times = CallTimes()
        for _ in range(calls):
            client.place(NAMES, times, bind=True)
        rounds.append(
            {
                f"{verb}_p{percent}_ms": float(latency_ms)
                for verb in ("filter", "prioritize", "bind")
                for percent, latency_ms in zip(
                    PERCENTS,
                    np.percentile(getattr(times, verb), PERCENTS, method="inverted_cdf"),
                    strict=True,
                )
            }
        )
    return {name: statistics.median(results[name] for results in rounds) for name in rounds[0]}


def growth(client: SchedulerClient, calls: int) -> dict[str, float]:
    """Print the growth of filter with the names; fit a power law to the medians."""
    print("\n                            CPU of filter")
    print("names a call   filter p50   p50    least   prioritize p50   (ms, 5,000 nodes; 32 names)")
    points, results = [], {}
    for names in GROWTH:
        times = CallTimes()
        for _ in range(calls):
            client.place(names, times, bind=False)
        points.append((math.log(names), math.log(statistics.median(times.filter))))
        results[f"filter_cpu_{names}_ms"] = statistics.median(times.filter_cpu)
        print(
            f"{names:12,}   {statistics.median(times.filter):10.2f}   "
            f"{statistics.median(times.filter_cpu):4.2f}   {min(times.filter_cpu):6.2f}   "
            f"{statistics.median(times.prioritize):14.2f}",
            flush=True,
        )
    exponent = statistics.linear_regression(*zip(*points, strict=True)).slope
    print(f"filter grows as names ^ {exponent:.2f}")
    return results | {"growth_exponent": exponent}


def main() -> int:
    """Measure, print and compare with the ranges."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=200, help="pods a round, of five rounds")
    calls = parser.parse_args().calls
    gc.disable()  # the client's own collector must not count
    results: dict[str, float] = {}
    print("ms      filter                   prioritize               bind")
    print("nodes      p50    p99  maximum       p50    p99  maximum       p50    p99  maximum")
    for count in NODES:
        port = free_port()
        settings = {"ESG_FILTER_NODES_MAX": "32"}
        with serving(count, GPUS, count * GPUS, port, settings) as service:
            client = SchedulerClient(TimedConnection(port), count, service.pid)
            for _ in range(WARM_UP):
                client.place(NAMES, CallTimes(), bind=True)
            results = measure(client, calls)
            widths = 3 * (9, 7, 9)
            cells = [f"{x:{width}.2f}" for x, width in zip(results.values(), widths, strict=True)]
            print(f"{count:5,}{''.join(cells)}", flush=True)
            if count == NODES[-1]:
                results |= growth(client, max(20, calls // 4))
    results |= document_events_ms()
    status = check_ranges("extender", results)
    print(
        f"filter_p99_ms: {results['filter_p99_ms']:.2f}  "
        f"prioritize_p99_ms: {results['prioritize_p99_ms']:.2f}  "
        f"bind_p99_ms: {results['bind_p99_ms']:.2f}"
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
