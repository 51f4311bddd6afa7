"""Decisions of the gateway's dispatcher with many warm pods.

    python -m bench.dispatch [--pods 200] [--requests 20000] [--pooled]

The four sample workflows in virtual time: requests arrive at random, at a rate for which the scaler
has so many pods, and each run takes its profiled time with 5 % of noise. A decision is one report
to the dispatcher, an arrival or the end of a batch, with all batches that begin because of it; its
time is CPU time of the thread, so that other load of the machine does not count. Without the
garbage collector, as in `esg gateway`, whose objects end by their counts. With ``--pooled`` 400
pods run in slices, evenly spread, as few as the scaler decides. The pods stay as they are, while a
scaler would add some when requests are late. Figures are compared with
``bench/ranges/dispatch.json``; the status is 1 if one is out of its range.
"""

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count

import numpy as np

from bench.thresholds import check_ranges
from scheduler.dispatch.dispatcher import Dispatcher
from scheduler.dispatch.pods import FunctionKey, Pod, PodStart, PodState, Run
from scheduler.dispatch.requests import Job, PlainPart, Request
from scheduler.dispatch.scaling.scaler import PodLimits, Scaler
from scheduler.dispatch.scaling.sizing import PodPrices
from scheduler.dispatch.slices import Slice
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.search.rules import Rules
from workbench.profiles.generated import (
    FUNCTIONS,
    GPU_MODEL,
    WORKFLOWS,
    generated_profile,
    generated_workflow,
)

NOISE = 0.05
PODS, POOLED_PODS = 200, 400
PODS_MAX = 1_000_000  # of a function
NODE_CPUS, GPU_MIB = 16.0, 80_896  # beside one GPU, and of it for pods
ONE_PART = (PlainPart(),)


class Owner:
    """Runs what the dispatcher begins, in virtual time.

    Attributes:
        times_ns: CPU time of each decision.
        in_time: number of requests that ended within their SLO.
    """

    def __init__(
        self, profiles: Sequence[FunctionProfile], workflows: Sequence[Workflow], seed: int
    ) -> None:
        rules = Rules()
        self.dispatcher = Dispatcher(self, rules)
        for profile in profiles:
            self.dispatcher.set_profile(profile)
        for workflow in workflows:
            self.dispatcher.set_workflow(workflow, now_ms=0.0)
        self._prices = PodPrices(rules.prices)
        self._node_prices = PodPrices(rules.prices, NODE_CPUS, {GPU_MODEL: GPU_MIB})
        self._random = np.random.default_rng(seed)
        self._events: list[tuple[float, int, Run]] = []
        self._numbers = count()
        self._now_ms = 0.0
        self.times_ns: list[int] = []
        self.in_time = 0

    def start_pods(self, pods: int) -> float:
        """Start so many pods, or a few more; return the rate that they are for, in requests/s."""
        rate_rps = 1.0
        while len(starts := self._scaled(rate_rps)) < pods:
            rate_rps *= 1.05
        self._add_pods(starts)
        return rate_rps

    def start_gpus(self, gpus: float) -> float:
        """Start pods that hold so many GPUs, or a few more; return the rate that they are for."""
        rate_rps = gpus
        while (held := gpus_of(starts := self._scaled(rate_rps))) < gpus:
            rate_rps *= max(gpus / held, 1.01)
        self._add_pods(starts)
        return rate_rps

    def scaler_ms(self, rate_rps: float, looks: int) -> float:
        """Return the CPU time of a look of the scaler at all pods, the shares of which stay."""
        scaler = self._scaler(rate_rps)
        scaler.changes(0.0)
        began_ns = time.thread_time_ns()
        for _ in range(looks):
            scaler.pod_changes(0.0)
        return (time.thread_time_ns() - began_ns) / looks / 1e6

    def _scaled(self, rate_rps: float) -> Sequence[PodStart]:
        """Return the pods that the scaler starts for a rate."""
        return self._scaler(rate_rps).changes(0.0).starts

    def _scaler(self, rate_rps: float) -> Scaler:
        """Return a scaler without a limit of the number of pods."""
        keys = list(self.dispatcher.workflows)
        scaler = Scaler(self.dispatcher, self._prices)
        for function in self.dispatcher.functions:
            scaler.set_limits(function, PodLimits(max_pods=PODS_MAX))
        for key in keys:
            scaler.expect(key, rate_rps / len(keys))
        return scaler

    def _add_pods(self, starts: Sequence[PodStart]) -> None:
        for number, start in enumerate(starts):
            pod = Pod(f"p{number}", start.function, start.share, state=PodState.READY, ready_ms=0.0)
            self.dispatcher.add_pod(pod, 0.0)

    def start_pooled(self, pods: int) -> float:
        """Start so many pooled pods, or a few more, and their slices; return the rate."""
        rate_rps = 1.0
        while self._start_slices(rate_rps) < pods:
            for pod in list(self.dispatcher.pods):
                self.dispatcher.remove_pod(pod, 0.0)
            for known in self.dispatcher.slices:
                self.dispatcher.remove_slice(known.namespace, known.gpu, 0.0)
            rate_rps *= 1.05
        return rate_rps

    def _start_slices(self, rate_rps: float) -> int:
        """Start the slices and pods for a rate; return the number of pods."""
        scaler = Scaler(self.dispatcher, self._node_prices)
        for function in self.dispatcher.functions:
            scaler.set_limits(function, PodLimits(pooled=True))
        for key in self.dispatcher.workflows:
            scaler.expect(key, rate_rps / len(self.dispatcher.workflows))
        slices = scaler.changes(0.0).slice_starts
        for number, added in enumerate(slices):
            known = Slice(
                added.namespace,
                f"g{number}",
                f"n{number}",
                added.percent,
                added.cpus,
                gpu_model=added.gpu_model,
            )
            self.dispatcher.set_slice(known, 0.0)
        starts = scaler.pod_changes(0.0).starts
        turns: Counter[FunctionKey] = Counter()
        for number, start in enumerate(starts):
            place = turns[start.function] % len(slices)
            turns[start.function] += 1
            pod = Pod(
                f"p{number}",
                start.function,
                start.share,
                node=f"n{place}",
                gpu=f"g{place}",
                pooled=True,
                state=PodState.READY,
                ready_ms=0.0,
            )
            self.dispatcher.add_pod(pod, 0.0)
        return len(starts)

    def serve(self, rate_rps: float, requests: int) -> None:
        """Serve so many requests more; the clock goes on where it stood."""
        gaps_ms = self._random.exponential(1000 / rate_rps, requests)
        times_ms = (self._now_ms + np.cumsum(gaps_ms)).tolist()
        keys = list(self.dispatcher.workflows)
        for number, now_ms in zip(
            self._random.integers(0, len(keys), requests).tolist(), times_ms, strict=True
        ):
            self._run_until(now_ms)
            key = keys[number]
            self._timed(lambda: self.dispatcher.arrive(key, None, now_ms=now_ms))  # noqa: B023 - called at once
        self._now_ms = times_ms[-1] + 60_000.0
        self._run_until(self._now_ms)

    def _run_until(self, now_ms: float) -> None:
        while True:
            wake_ms = self.dispatcher.wake_at_ms
            end_ms = self._events[0][0] if self._events else np.inf
            if min(wake_ms, end_ms) > now_ms:
                return
            if wake_ms < end_ms:
                self._timed(lambda: self.dispatcher.wake(wake_ms))  # noqa: B023 - called at once
            else:
                _, _, run = heappop(self._events)
                self._timed(lambda: self.dispatcher.run_ended(run, end_ms))  # noqa: B023 - called at once

    def _timed(self, decide: Callable[[], object]) -> None:
        began_ns = time.thread_time_ns()
        decide()
        self.times_ns.append(time.thread_time_ns() - began_ns)

    # -- actions -------------------------------------------------------------------------------

    def enter(self, request: Request, stage: int, rows_max: int) -> Sequence[PlainPart]:  # noqa: ARG002
        """Enter a stage with one row."""
        return ONE_PART

    def begin(self, run: Run) -> None:
        """Run a batch."""
        factor = self._random.lognormal(-(NOISE**2) / 2, NOISE)
        end_ms = run.execute_ms + run.profiled_ms * factor
        heappush(self._events, (end_ms, next(self._numbers), run))

    def end(self, request: Request, job: Job, now_ms: float) -> None:  # noqa: ARG002
        """Count a request that ends in time."""
        self.in_time += now_ms <= request.deadline_ms

    def drop(self, request: Request, job: Job, reason: str, now_ms: float) -> None:
        """Count nothing."""


def gpus_of(starts: Sequence[PodStart]) -> float:
    """Return the GPUs that pods hold."""
    return sum(start.share.gpu_percent for start in starts) / 100


def main() -> int:
    """Measure, and compare with the ranges."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int)
    parser.add_argument("--pooled", action="store_true")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    profiles = [generated_profile(function) for function in FUNCTIONS]
    workflows = [generated_workflow(name) for name in WORKFLOWS]
    owner = Owner(profiles, workflows, options.seed)
    if options.pooled:
        rate_rps = owner.start_pooled(options.pods or POOLED_PODS)
    else:
        rate_rps = owner.start_pods(options.pods or PODS)
    pods = len(list(owner.dispatcher.pods))
    owner.serve(rate_rps, options.requests // 10)  # plans are made, kernels are loaded
    owner.times_ns.clear()
    gc.disable()
    in_time = owner.in_time
    owner.serve(rate_rps, options.requests)
    times_us = np.array(owner.times_ns) / 1000
    median_us, p99_us, longest_us = np.percentile(times_us, (50, 99, 100), method="inverted_cdf")
    percent = 100 * (owner.in_time - in_time) / options.requests
    print(
        f"{pods} pods, {rate_rps:.0f} requests/s, {options.requests:,} requests, "
        f"{percent:.1f} % in time, {len(times_us):,} decisions"
    )
    print(
        f"decision_us: {median_us:.1f}  p99_us: {p99_us:.1f}  longest_us: {longest_us:.0f}  "
        f"request_us: {times_us.sum() / options.requests:.1f}"
    )
    figure = "pooled_p99_us" if options.pooled else "p99_us"
    return check_ranges("dispatch", {figure: float(p99_us)})


if __name__ == "__main__":
    sys.exit(main())
