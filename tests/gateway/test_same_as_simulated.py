"""The gateway under a clock of its own forms the batches that the simulator forms for one trace.

The simulator's pods start and stop in the gateway at the same times, and a batch takes as long as
in the simulation. All else is the gateway's own: calls, queues, timers, tasks and answers.
"""

import asyncio
from collections import defaultdict, deque

import numpy as np
import pytest

from scheduler.dispatch.dispatcher import Dispatcher
from scheduler.dispatch.pods import PodStart
from scheduler.gateway.serving import runtime as gateway_runtime
from scheduler.gateway.serving.runtime import Runtime
from scheduler.search.rules import Rules
from tests.gateway.ready_pods import ready_pod, server
from tests.gateway.runtime_bed import Records
from tests.gateway.timed_server import TimedServer, one_row_call
from tests.simulation.harness import Listed, quiet, run
from tests.simulation.test_warm import FORKED, KEYS
from tests.virtual_loop import run_virtually
from workbench.simulation.live import simulation as warm_simulation
from workbench.simulation.scenario_catalogue import shaped

REQUESTS = 400


def described(run_, number_of):
    """Return a batch: its time, its pod, its stage, and the numbers of its requests."""
    numbers = [number_of(job.request.payload) for job in run_.jobs]
    return round(run_.begin_ms, 3), run_.pod.name, run_.workflow, run_.stage, numbers, run_.batch


class Simulated:
    """One run of the simulator: its batches, how long they took, and its pods."""

    def __init__(self, monkeypatch, scenario, times_ms, workflows):
        self.batches, self.pods, self.removals = [], [], []
        self._run_ms = defaultdict(deque)
        simulated = self

        class Recorded(Dispatcher):
            def add_pod(self, pod, now_ms):
                ready_ms = max(pod.ready_ms, now_ms)
                simulated.pods.append((now_ms, ready_ms, pod))
                super().add_pod(pod, now_ms)

            def remove_pod(self, pod, now_ms):
                simulated.removals.append((now_ms, pod.name))
                return super().remove_pod(pod, now_ms)

            def _begin(self, run_):
                simulated.batches.append(described(run_, lambda payload: payload.number))
                super()._begin(run_)

        monkeypatch.setattr(warm_simulation, "Dispatcher", Recorded)
        arrivals = Listed(times_ms, workflows, KEYS, chunk=REQUESTS)
        for span in run(scenario, FORKED, arrivals, "warm").spans:
            name = f"container-{span.container}"
            self._run_ms[name].append(span.end_ms - span.begin_ms)

    def next_run_ms(self, name):
        """Return how long the next batch of a pod took; 100 ms after the last one: they differ."""
        return self._run_ms[name].popleft() if self._run_ms[name] else 100.0


class Live:
    """A gateway that serves a trace; ``batches`` are those that it formed."""

    def __init__(self, monkeypatch, scenario, simulated):
        self.batches, self._numbers, self._answers = [], {}, []
        self._simulated = simulated
        live = self

        class Recorded(Dispatcher):
            def _begin(self, run_):
                live.batches.append(described(run_, live.number_of))
                super()._begin(run_)

        monkeypatch.setattr(gateway_runtime, "Dispatcher", Recorded)
        self._runtime = runtime = Runtime(
            Rules(),
            Records(),
            lambda pod: TimedServer(lambda _: simulated.next_run_ms(pod.name)),
            rows_max=10_000,
        )
        catalogue = shaped(FORKED, scenario, KEYS)
        for known in catalogue.profiles.values():
            runtime.set_profile(known)
        for document in catalogue.workflows.values():
            runtime.set_workflow(document)
        for name, known in catalogue.profiles.items():
            runtime.set_server(server(name), known)

    def number_of(self, payload):
        """Return the number of a call."""
        return self._numbers[payload.call.headers]

    async def serve(self, times_ms, workflows):
        """Let pods start and stop and calls arrive at their times; wait for all answers."""
        due = defaultdict(list)  # timers of equal times have no order of their own
        for start_ms, ready_ms, pod in self._simulated.pods:
            due[start_ms].append((self._start, pod, ready_ms))
            due[ready_ms].append((self._be_ready, pod))
        for time_ms, name in self._simulated.removals:
            due[time_ms].append((self._runtime.remove_pod, name))
        for number, (time_ms, workflow) in enumerate(zip(times_ms, workflows, strict=True)):
            due[time_ms].append((self._arrive, number, KEYS[workflow]))
        loop = asyncio.get_running_loop()
        last = loop.create_future()
        due[times_ms[-1]].append((last.set_result, None))
        for time_ms, calls in due.items():
            loop.call_at(time_ms / 1000, _call_all, calls)
        await last
        await asyncio.gather(*self._answers)
        await self._runtime.close()

    def _start(self, pod, ready_ms):
        start = PodStart(pod.function, pod.share)
        self._runtime.expect_pod(pod.name, start, slots=1, ready_ms=ready_ms)

    def _be_ready(self, pod):
        self._runtime.add_pod(server_pod(pod))
        self._runtime.pod_ready(pod.name)

    def _arrive(self, number, key):
        headers = ((b"number", str(number).encode()),)
        self._numbers[headers] = number
        call = one_row_call(key, self._runtime.now_ms(), headers)
        self._answers.append(self._runtime.submit(call))


async def served(monkeypatch, scenario, simulated, times_ms, workflows):
    """Serve the trace; return the batches."""
    live = Live(monkeypatch, scenario, simulated)
    await live.serve(times_ms, workflows)
    return live.batches


def _call_all(calls):
    for call, *arguments in calls:
        call(*arguments)


def server_pod(pod):
    """Return a ready pod as discovery reports it."""
    gpu_model, cpu, gpu_percent, memory_mib = pod.share
    return ready_pod(
        0,
        server(pod.function[1]),
        name=pod.name,
        uid=pod.name,
        gpu_model=gpu_model,
        cpu=cpu,
        gpu_percent=gpu_percent,
        memory_mib=memory_mib,
        gpu=pod.gpu,
        node=pod.node,
    )


@pytest.mark.replaces
@pytest.mark.parametrize("mean_ms", [25.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_the_same_trace_gives_the_same_batches(mean_ms, monkeypatch):
    """Batches, their pods, their times and their order are those of the simulator.

    With noise no two events have the same time, whose order would be the event loop's own.
    """
    scenario = quiet(nodes=40, noise_ratio=0.05, margin_ratio=None)
    random = np.random.default_rng(3)
    times_ms = np.cumsum(random.exponential(mean_ms, REQUESTS)).round(3).tolist()
    workflows = random.integers(0, len(KEYS), REQUESTS).tolist()
    simulated = Simulated(monkeypatch, scenario, times_ms, workflows)
    batches = run_virtually(served(monkeypatch, scenario, simulated, times_ms, workflows))
    assert len(batches) > REQUESTS
    assert batches == simulated.batches
