"""Process of the played model servers of many pods, each at its own address.

    python -m workbench.cluster.model_player SEED NOISE_RATIO

It reads commands from its standard input, one JSON object a line, until the end of the input:
``{"start": {…}}`` with the fields of a `PlayedPod`, ``{"stop": "name"}``, ``{"report": true}`` and
``{"busy": true}``; each has one line of answer.
"""

import asyncio
import contextlib
import json
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import uvloop

from workbench.cluster.model_server import Array, PlayedModelServer, ServedRun
from workbench.cluster.process import read_lines
from workbench.simulation.rng import Noise

INPUT, ROW_VALUES = "x", 256
"""Input of a workflow, and the number of values in one of its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedPod:
    """A pod whose model server is to be played.

    Attributes:
        host, port: address on which it listens.
        gpu: UUID of the GPU; empty: one of its own.
        gpu_percent: share of a GPU, in percent.
        latencies_ms: mean time of a run, by batch; a run takes the time of the smallest batch that
            holds its rows.
        outputs: names of the outputs; each is twice the sum of the inputs.
    """

    name: str
    host: str
    port: int
    gpu_percent: int
    latencies_ms: Mapping[int, float]
    outputs: tuple[str, ...]
    gpu: str = ""


@dataclass(slots=True)
class RunTotals:
    """Sums over all runs.

    Attributes:
        busy_s: time of the runs, each times its share of a GPU, in seconds.
        pods: number of servers that had a run; the gateway's first one is a warm-up.
        late_ms: delay of each run behind its planned end.
        running_percent: percent of the runs in progress, by GPU.
        most_percent: largest percent that ran at a time on one GPU.
    """

    busy_s: float = 0.0
    pods: int = 0
    late_ms: "array[float]" = field(default_factory=lambda: array("d"))
    running_percent: Counter[str] = field(default_factory=Counter)
    most_percent: int = 0

    @contextlib.contextmanager
    def running(self, pod: PlayedPod) -> Iterator[float]:
        """Count a run while inside; yields by how much the runs on its GPU slow it down."""
        gpu = pod.gpu or pod.name
        self.running_percent[gpu] += pod.gpu_percent
        percent = self.running_percent[gpu]
        self.most_percent = max(self.most_percent, percent)
        try:
            yield max(percent / 100, 1.0)
        finally:
            self.running_percent[gpu] -= pod.gpu_percent

    def as_json(self) -> dict[str, float]:
        """Return the values of a report."""
        late_p99_ms = float(np.percentile(self.late_ms, 99)) if self.late_ms else 0.0
        return {
            "runs": len(self.late_ms),
            "pods": self.pods,
            "busy_s": self.busy_s,
            "late_p99_ms": late_p99_ms,
            "most_percent": self.most_percent,
        }


@dataclass
class PodModelServer(PlayedModelServer):
    """The model server of one pod."""

    pod: PlayedPod = field(kw_only=True)
    noise: Noise = field(kw_only=True)
    totals: RunTotals = field(kw_only=True)
    busy_s: float = 0.0

    def begin(self, run: ServedRun) -> int:
        """Count nothing: runs are as many as requests."""
        del run
        return 1

    async def spend_time(self, rows: int) -> None:
        """Wait for the time of the profile with noise; note by how much the wait was longer.

        Where more than 100 % of a GPU runs, it takes as much longer.
        """
        batches = [batch for batch in self.pod.latencies_ms if batch >= rows]
        batch = min(batches, default=max(self.pod.latencies_ms))
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        run_s = self.pod.latencies_ms[batch] * self.noise.take_factor() / 1000
        with self.totals.running(self.pod) as slow_down_ratio:
            run_s *= slow_down_ratio
            await asyncio.sleep(run_s)
        gpu_s = run_s * self.pod.gpu_percent / 100
        self.totals.pods += self.busy_s == 0.0
        self.busy_s += gpu_s
        self.totals.busy_s += gpu_s
        self.totals.late_ms.append(1000 * (loop.time() - begin_s - run_s))

    def outputs(self, inputs: Mapping[str, Array], number: int) -> dict[str, Array]:
        """Compute the outputs of a run."""
        del number
        total = 2 * np.sum(list(inputs.values()), axis=0)
        return dict.fromkeys(self.pod.outputs, total)

    def signature(self) -> dict[str, Any]:
        """Describe the tensors of the load generator."""
        row = {"datatype": "FP32", "shape": [-1, ROW_VALUES]}
        outputs = [{"name": name, **row} for name in self.pod.outputs]
        return {"inputs": [{"name": INPUT, **row}], "outputs": outputs}


class ModelPlayer:
    """All played pods of the process."""

    def __init__(self, seed: int, noise_ratio: float) -> None:
        self._seeds = np.random.SeedSequence(seed)
        self._noise_ratio = noise_ratio
        self._pods: dict[str, contextlib.AsyncExitStack] = {}
        self._servers: dict[str, PodModelServer] = {}
        self._totals = RunTotals()

    async def obey(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Process a command; return its answer."""
        match command:
            case {"start": fields}:
                await self._start(_pod(fields))
            case {"stop": name}:
                await self._stop(name)
            case {"report": _}:
                return self._totals.as_json()
            case {"busy": _}:
                return {name: server.busy_s for name, server in self._servers.items()}
        return {}

    async def _start(self, pod: PlayedPod) -> None:
        address = pod.host, pod.port
        for name, running in list(self._servers.items()):
            if (running.pod.host, running.pod.port) == address:  # its end is known later
                await self._stop(name)
        random = np.random.default_rng(self._seeds.spawn(1)[0])
        noise = Noise(random, self._noise_ratio)
        server = PodModelServer(pod=pod, noise=noise, totals=self._totals)
        stack = contextlib.AsyncExitStack()
        await stack.enter_async_context(server.serving(pod.host, pod.port))
        self._pods[pod.name] = stack
        self._servers[pod.name] = server

    async def _stop(self, name: str) -> None:
        self._servers.pop(name, None)
        if (pod := self._pods.pop(name, None)) is not None:
            await pod.aclose()


def _pod(fields: Mapping[str, Any]) -> PlayedPod:
    latencies_ms = {int(batch): ms for batch, ms in fields["latencies_ms"].items()}
    changed = {"latencies_ms": latencies_ms, "outputs": tuple(fields["outputs"])}
    return PlayedPod(**{**fields, **changed})


async def _main(seed: int, noise_ratio: float) -> None:
    player = ModelPlayer(seed, noise_ratio)
    async for line in read_lines(sys.stdin.buffer):
        print(json.dumps(await player.obey(json.loads(line))), flush=True)  # noqa: T201


if __name__ == "__main__":
    uvloop.run(_main(int(sys.argv[1]), float(sys.argv[2])))
