"""Measurement of a function in a cluster: a pod for each share and number of vCPUs.

One pod runs at a time, and the batches of its share are measured one after the other. The adaptive
plan chooses the points, unless all of the grid are wanted.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import groupby, product

from scheduler.cluster.api import Api
from scheduler.gateway.model_server import ModelServer
from scheduler.gateway.model_servers import model_server
from scheduler.gateway.scaling.warm_up import warm_up
from scheduler.model.function_server import FunctionServer
from scheduler.model.plan import Prices
from workbench.profiles.adaptive_plan import ERROR_RATIO, Point, next_points
from workbench.profiles.batch_times import Precision
from workbench.profiles.dominance import point
from workbench.profiles.measured_pod import (
    MeasuredPodError,
    PodShare,
    StartedPod,
    measured_pod,
    neighbour_percent,
)
from workbench.profiles.measured_points import MeasuredPoint
from workbench.profiles.server_measurement import TIMEOUT_MS, MeasuredServer, measure_server

_DIGITS = 1  # of a cold start in ms: an address is looked for ten times a second
_UNTIMED_RUNS = 3  # of a batch size: the first one, and two that may begin before the limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterGrid:
    """Grid of a measurement, and how it is measured.

    Attributes:
        server: FunctionServer with a template.
        gpu_percents, cpus, batches: the axes of the grid.
        memory_mib: GPU memory that each pod may have, and that the profile states.
        gpu_model: NVML's name of the GPU; empty: that of the first pod.
        inputs: files or shapes of inputs by name.
        precision: end of the runs of each point.
        prices: prices of vCPUs and GPUs, for the adaptive plan.
        error_ratio: tolerated error of the planner's cost; None: measure the whole grid.
        scheduler_name: scheduler of the pods, if the template names none.
        start_s: longest time until a pod answers, in seconds.
    """

    server: FunctionServer
    gpu_percents: Collection[int]
    cpus: Collection[int]
    batches: Collection[int]
    memory_mib: int
    gpu_model: str = ""
    inputs: dict[str, str]
    precision: Precision
    prices: Prices
    error_ratio: float | None = ERROR_RATIO
    scheduler_name: str = ""
    start_s: float = 600.0

    @property
    def points(self) -> list[Point]:
        """All points, in the order of servers."""
        grid = product(sorted(self.gpu_percents), sorted(self.cpus), sorted(self.batches))
        return [(batch, cpu, percent) for percent, cpu, batch in grid]

    def life_s(self, measurements: int) -> float:
        """Return the longest life of a pod that answers a number of measurements, in seconds."""
        runs = self.precision.warm_up_runs + _UNTIMED_RUNS
        return self.start_s + measurements * (self.precision.limit_s + runs * TIMEOUT_MS / 1000)


class ClusterMeasurement:
    """Measures a grid in a cluster.

    Args:
        api: the API server, with the caller's rights.
        grid: grid of the measurement.
        points: points that are measured already.
        report: prints a line about a pod that waits.
    """

    def __init__(
        self,
        api: Api,
        grid: ClusterGrid,
        points: Sequence[MeasuredPoint],
        report: Callable[[str], None],
    ) -> None:
        self._api = api
        self._grid = grid
        self._report = report
        self._gpu_model = grid.gpu_model
        function = grid.server.spec.function
        self.points = [
            measured
            for measured in points
            if measured.function == function and grid.gpu_model in {"", measured.gpu_model}
        ]
        models = {measured.gpu_model for measured in self.points}
        if len(models) > 1:
            raise MeasuredPodError(
                f"the points are of {len(models)} GPU models; choose one with --gpu-model"
            )
        self._gpu_model = next(iter(models), grid.gpu_model)

    def due(self) -> list[Point]:
        """Return the points to measure next, by server; empty at the end."""
        grid = self._grid
        measured_ms = {point(measured): measured.latency_ms for measured in self.points}
        if grid.error_ratio is None:
            return [place for place in grid.points if place not in measured_ms]
        within = {place: ms for place, ms in measured_ms.items() if place in set(grid.points)}
        return next_points(
            grid.points,
            within,
            prices=grid.prices,
            gpu_model=self._gpu_model,
            error_ratio=grid.error_ratio,
        )

    async def run(self) -> AsyncGenerator[MeasuredPoint]:
        """Measure until no point is due; yield each.

        Raises:
            MeasuredPodError: a pod does not start.
            InputError, ModelServerError: as `measure_server`.
        """
        while places := self.due():
            for (percent, cpu), group in groupby(places, key=lambda place: (place[2], place[1])):
                batches = [batch for batch, _, _ in group]
                # Closed at once, also after an error elsewhere: it deletes its pod.
                async with aclosing(self._measure_share(cpu, percent, batches)) as points:
                    async for measured in points:
                        self.points.append(measured)
                        yield measured

    async def _measure_share(
        self, cpu: int, percent: int, batches: Sequence[int]
    ) -> AsyncGenerator[MeasuredPoint]:
        grid = self._grid
        share = PodShare(
            batch=max(batches),
            cpu=cpu,
            gpu_percent=percent,
            memory_mib=grid.memory_mib,
            gpu_model=self._gpu_model,
        )
        life_s = grid.life_s(len(batches))
        async with serving_pod(self._api, grid, grid.server, share, life_s, self._report) as pod:
            self._gpu_model = str(pod.started.grant.plan["gpu_model"])
            server = MeasuredServer(
                client=pod.client,
                model=grid.server.model,
                address=pod.started.name,
                function=grid.server.spec.function,
                gpu_model=self._gpu_model,
                cpu=cpu,
                gpu_percent=percent,
                inputs=grid.inputs,
                memory_mib=lambda: grid.memory_mib,
            )
            facts = {
                "cold_start_ms": pod.cold_start_ms,
                "neighbour_percent": await neighbour_percent(self._api, pod.started),
            }
            async for measured in measure_server(server, batches, grid.precision, **facts):
                yield measured


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPod:
    """A pod whose model server has answered.

    Attributes:
        client: client of the model server.
        cold_start_ms: time from its creation to the first answer; None: it waited for a node.
    """

    started: StartedPod
    client: ModelServer
    cold_start_ms: float | None


@asynccontextmanager
async def serving_pod(  # noqa: PLR0913, PLR0917 - what a pod depends on
    api: Api,
    grid: ClusterGrid,
    server: FunctionServer,
    share: PodShare,
    life_s: float,
    report: Callable[[str], None],
) -> AsyncIterator[ServingPod]:
    """Create a pod as `measured_pod` does, and wait for its first answer.

    Raises:
        MeasuredPodError: the pod or its model server does not start.
    """
    async with measured_pod(
        api,
        server,
        share,
        scheduler_name=grid.scheduler_name,
        start_s=grid.start_s,
        life_s=life_s,
        report=report,
    ) as pod:
        client = model_server(server.spec.protocol, pod.host, server.spec.port)
        try:
            cold_start_ms = await _first_answer_ms(client, pod, server, grid.start_s)
            yield ServingPod(started=pod, client=client, cold_start_ms=cold_start_ms)
        finally:
            await client.close()


async def _first_answer_ms(
    client: ModelServer, pod: StartedPod, server: FunctionServer, start_s: float
) -> float | None:
    """Wait for the first answer; return the time since the creation, if no pod was in the way."""
    try:
        async with asyncio.timeout(start_s):
            await warm_up(client, server.model, 1, pod=pod.name)
    except TimeoutError:
        raise MeasuredPodError(
            f"model {server.model} of pod {pod.name} is not ready after {start_s:g} s at "
            f"{pod.host}, port {server.spec.port}; see `kubectl logs`, or run the command where "
            "the addresses of pods are reachable"
        ) from None
    if pod.has_waited:
        return None
    return round(1000 * (time.monotonic() - pod.sent_s), _DIGITS)
