"""Harness of the simulator's tests: documents, arrivals, runs, and a cluster that checks itself."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar
from unittest.mock import patch

import numpy as np

from scheduler.model.catalogue import Catalogue
from workbench.profiles.builders import GPU, profile, workflow
from workbench.simulation import setup
from workbench.simulation.containers.cluster import SimulatedCluster
from workbench.simulation.containers.configurations import anywhere, configurations_of
from workbench.simulation.engine import simulate
from workbench.simulation.loop import Observers
from workbench.simulation.policy import Policy
from workbench.simulation.scenario import Scenario


def one_function(rows, *, slo_ms=1_000.0, **about):
    """Workflow "w" of one stage."""
    return Catalogue.of([workflow([[]], slo_ms=slo_ms), profile("f0", rows, **about)])


@dataclass(frozen=True)
class Listed:
    """Arrivals at these times, of workflow "w" or of those named by number."""

    times_ms: Sequence[float]
    numbers: Sequence[int] = ()
    workflows: tuple[tuple[str, str], ...] = (("default", "w"),)
    chunk: int = 7

    def chunks(self):
        times_ms = np.array(self.times_ms, np.float64)
        numbers = np.array(self.numbers or [0] * len(self.times_ms), np.int32)
        for at in range(0, len(times_ms), self.chunk):
            yield times_ms[at : at + self.chunk], numbers[at : at + self.chunk]


@dataclass(frozen=True)
class Poisson:
    """Exponential gaps."""

    mean_ms: float
    seed: int
    workflows: tuple[tuple[str, str], ...] = (("default", "w"),)

    def chunks(self):
        random, last_ms = np.random.default_rng(self.seed), 0.0
        while True:
            times_ms = last_ms + np.cumsum(random.exponential(self.mean_ms, 4_096))
            last_ms = times_ms[-1]
            yield times_ms, random.integers(0, len(self.workflows), 4_096).astype(np.int32)


def quiet(**changes):
    """One node with one GPU, warm, and nothing left to chance but what is given."""
    settings = {
        "nodes": 1,
        "gpu_models": (GPU,),
        "noise_ratio": 0.0,
        "margin_ratio": 0.0,
        "prewarm": False,
        "resizable": True,
        "warmup_ms": 0.0,
    }
    return Scenario(**(settings | changes))


@dataclass
class Recording:
    """Result of a run, with the records of its requests and runs."""

    requests: list = field(default_factory=list)
    spans: list = field(default_factory=list)
    result: object = None


def run(
    scenario,
    catalogue,
    arrivals,
    policy="minimum",
    *,
    requests=10_000,
    seed=0,
    on_span=None,
    cluster=SimulatedCluster,
):
    """Simulate, and collect all records; a policy is a name or a class."""
    recording = Recording()
    observers = Observers(recording.requests.append, on_span or recording.spans.append)
    with patch.object(setup, "SimulatedCluster", cluster):
        recording.result = simulate(
            scenario,
            catalogue,
            arrivals,
            policy,
            requests=requests,
            seed=seed,
            observers=observers,
        )
    return recording


class Fixed(Policy):
    """Answers with the n-th configuration of the profile, anywhere; n by stage."""

    name = "fixed"
    choice: ClassVar[dict[str, int]] = {}

    def candidates(self, question):
        gpu = self.context.profile(question.key).spec.gpus[0]
        listed = configurations_of(gpu)
        return (anywhere(listed[self.choice.get(question.key[2], 0)], gpu.model),)


class WatchedCluster(SimulatedCluster):
    """Naive twin: after each change, compare the ledger with sums over the existing containers."""

    def __init__(self, scenario):
        super().__init__(scenario)
        self.there = {}

    def begin(self, function, grant, gpu, now_ms):
        container, is_new = super().begin(function, grant, gpu, now_ms)
        self.there[container] = (grant.percent, grant.cpu_milli)
        assert container.gpu == gpu
        self.check()
        return container, is_new

    def end(self, container, now_ms):
        super().end(container, now_ms)
        self.there[container] = (0, 0)
        self.check()

    def start(self, function, grant, gpu, now_ms, *, warm=False):
        container = super().start(function, grant, gpu, now_ms, warm=warm)
        if container is not None:
            starts = container.ready_ms > now_ms
            self.there[container] = (grant.percent, grant.cpu_milli) if starts else (0, 0)
        self.check()
        return container

    def started(self, container, now_ms):
        unclaimed = super().started(container, now_ms)
        if unclaimed:
            self.there[container] = (0, 0)
        self.check()
        return unclaimed

    def start_reserved(self, function, grant, gpu, now_ms, *, warm=False, pooled=False):
        container = super().start_reserved(function, grant, gpu, now_ms, warm=warm, pooled=pooled)
        self.there[container] = (0, 0) if pooled else (grant.percent, grant.cpu_milli)
        self.check()
        return container

    def stop(self, container, now_ms):
        super().stop(container, now_ms)
        self.check()

    def expire_ms(self, now_ms):
        next_ms = super().expire_ms(now_ms)
        assert next_ms > now_ms
        for container, held in self.there.items():
            idle = held == (0, 0)
            assert not idle or container.idle_since_ms + self._keep_alive_ms > now_ms
        return next_ms

    def _forget(self, container, now_ms):
        super()._forget(container, now_ms)
        del self.there[container]

    def check(self):
        """On every GPU and node: nothing beyond what there is, and the ledger says the same."""
        fleet, limits = self.ledger.fleet, self.ledger.limits
        for row, gpu in enumerate(fleet.gpus):
            here = [c for c in self.there if c.gpu == row]
            held = [c for c in here if self.there[c][0]]
            percent = sum(self.there[c][0] for c in held)
            assert percent <= limits.percent_max
            assert sum(c.memory_mib for c in here) <= gpu.memory_mib - limits.server_context_mib
            assert len(here) <= limits.clients_max
            assert fleet.arrays.gpu_free_percent[row] == limits.percent_max - percent
            assert fleet.arrays.gpu_free_memory_mib[row] == (
                gpu.memory_mib - limits.server_context_mib - sum(c.memory_mib for c in held)
            )
            assert fleet.arrays.gpu_free_clients[row] == limits.clients_max - len(held)
        for row, node in enumerate(fleet.nodes):
            cpu_milli = sum(cpu for c, (_, cpu) in self.there.items() if c.node == row)
            assert fleet.arrays.node_free_cpu_milli[row] == node.cpu_milli - cpu_milli >= 0
        if self._fixed:
            self.check_fixed()
        else:
            assert self.utilisation.held_percent == sum(
                percent for percent, _ in self.there.values()
            )

    def check_fixed(self):
        """Idle containers hold their share too, within what there is."""
        limits = self.ledger.limits
        for row in range(len(self.gpu_uuids)):
            held = sum(c.grant.percent for c in self.there if c.gpu == row)
            assert self._free_percent[row] == limits.percent_max - held >= 0
        for row, node in enumerate(self.ledger.fleet.nodes):
            held_milli = sum(c.grant.cpu_milli for c in self.there if c.node == row)
            assert self._free_cpu_milli[row] == node.cpu_milli - held_milli >= 0
        assert self.utilisation.held_percent == sum(c.grant.percent for c in self.there)
