"""How long filter, prioritize and bind take over HTTP, on a fleet that is half full.

    python -m bench.extender [--calls N]

For 100, 1,000 and 5,000 nodes of 8 GPUs, half of the nodes full: p50, p99 and the longest of each
call, over one connection, with 500 names a call (all there are, where those are fewer), the client
in another process than the service. Then how filter and prioritize grow with the names in a call,
at 5,000 nodes. The figures are compared with ``bench/ranges/extender.json``; the status is 1 where
one is out of its range.
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

from bench import synthetic_load
from bench.service import documents, serving
from bench.thresholds import check_ranges
from tests.testbed.processes import free_port

NODES = (100, 1_000, 5_000)
GPUS = 8
NAMES = 500
GROWTH = (100, 250, 500, 1_000, 2_500, 5_000)
WARM_UP = 30
ROUNDS = 5  # p50 and p99 are those of the median round: the machine has other things to do


class Connection:
    """One kept-alive connection; what is measured is the call, from the first byte to the last."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._http.connect()

    def post(self, path: str, body: bytes) -> tuple[bytes, float]:
        """The answer, and how long it took in ms."""
        began = time.perf_counter()
        self._http.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self._http.getresponse()
        text = answer.read()
        took_ms = 1000 * (time.perf_counter() - began)
        if answer.status != http.client.OK:
            raise RuntimeError(f"{path}: {answer.status} {text[:500]!r}")
        return text, took_ms


@dataclass
class Times:
    """Of one kind of call, in ms."""

    filter: list[float] = field(default_factory=list)
    prioritize: list[float] = field(default_factory=list)
    bind: list[float] = field(default_factory=list)


class Scheduler:
    """Asks as kube-scheduler does: for each pod a sample of the nodes, then one of them."""

    def __init__(self, connection: Connection, node_count: int) -> None:
        self._connection = connection
        self._names = [synthetic_load.node_name(i) for i in range(node_count)]
        self._rng = random.Random(1)
        self._pods = 1_000_000
        workflows, _ = documents()
        self._stages = [(w, stage.name) for w in workflows for stage in w.spec.stages]

    def place(self, names: int, times: Times, *, bind: bool) -> None:
        """One pod."""
        self._pods += 1
        workflow, stage = self._stages[self._pods % len(self._stages)]
        pod = synthetic_load.pod(self._pods, workflow, stage)
        sample = self._rng.sample(self._names, min(names, len(self._names)))
        text, took_ms = self._ask("/filter", pod, sample)
        times.filter.append(took_ms)
        result = json.loads(text)
        passing = result["NodeNames"]
        if result["Error"] or not passing:
            raise RuntimeError(f"filter let nothing through: {text[:500]!r}")
        text, took_ms = self._ask("/prioritize", pod, passing)
        times.prioritize.append(took_ms)
        if bind:
            best = max(json.loads(text), key=lambda scored: scored["Score"])["Host"]
            self._bind(pod, best, times)

    def _ask(self, path: str, pod: synthetic_load.Json, names: list[str]) -> tuple[bytes, float]:
        body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
        return self._connection.post(path, body)

    def _bind(self, pod: synthetic_load.Json, node: str, times: Times) -> None:
        metadata = pod["metadata"]
        body = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        text, took_ms = self._connection.post("/bind", json.dumps(body).encode())
        times.bind.append(took_ms)
        if json.loads(text)["Error"]:
            raise RuntimeError(f"bind: {text!r}")


def percentile(values: list[float], part: float) -> float:
    """The least value that ``part`` of them do not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def measured(scheduler: Scheduler, calls: int) -> dict[str, float]:
    """p50 and p99 of the three calls, in ms; each the median of several rounds."""
    rounds: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        times = Times()
        for _ in range(calls):
            scheduler.place(NAMES, times, bind=True)
        rounds.append(
            {
                f"{verb}_p{percent}_ms": percentile(getattr(times, verb), percent / 100)
                for verb in ("filter", "prioritize", "bind")
                for percent in (50, 99, 100)
            }
        )
    return {figure: statistics.median(each[figure] for each in rounds) for figure in rounds[0]}


def grown(scheduler: Scheduler, calls: int) -> float:
    """Print how filter grows with the names; the exponent of a power law through the medians."""
    print(
        "\nnames a call   filter p50   prioritize p50   (ms, 5,000 nodes; prioritize: those held)"
    )
    points = []
    for names in GROWTH:
        times = Times()
        for _ in range(calls):
            scheduler.place(names, times, bind=False)
        points.append((math.log(names), math.log(statistics.median(times.filter))))
        print(
            f"{names:12,}   {statistics.median(times.filter):10.2f}   "
            f"{statistics.median(times.prioritize):14.2f}",
            flush=True,
        )
    slope: float = statistics.linear_regression(*zip(*points, strict=True)).slope
    print(f"filter grows as names ^ {slope:.2f}")
    return slope


def main() -> int:
    """Measure all, print it, and judge it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=200, help="pods a round, of five rounds")
    calls = parser.parse_args().calls
    gc.disable()  # the client's own collector is not what is measured
    figures: dict[str, float] = {}
    exponent = math.nan
    print("ms      filter                   prioritize               bind")
    print("nodes      p50    p99  longest       p50    p99  longest       p50    p99  longest")
    for count in NODES:
        port = free_port()
        with serving(count, GPUS, count * GPUS, port):
            scheduler = Scheduler(Connection(port), count)
            for _ in range(WARM_UP):
                scheduler.place(NAMES, Times(), bind=True)
            figures = measured(scheduler, calls)
            widths = 3 * (9, 7, 9)
            told = [f"{x:{width}.2f}" for x, width in zip(figures.values(), widths, strict=True)]
            print(f"{count:5,}{''.join(told)}", flush=True)
            if count == NODES[-1]:
                exponent = grown(scheduler, max(20, calls // 4))
    status = check_ranges("extender", {**figures, "growth_exponent": exponent})
    print(
        f"filter_p99_ms: {figures['filter_p99_ms']:.2f}  "
        f"prioritize_p99_ms: {figures['prioritize_p99_ms']:.2f}  "
        f"bind_p99_ms: {figures['bind_p99_ms']:.2f}"
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
