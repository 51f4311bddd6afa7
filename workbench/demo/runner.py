"""A whole run: start the cluster, send the requests, show the state, and summarise."""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Console
from rich.live import Live

from scheduler.model.catalogue import Catalogue
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.node import node_from_json
from scheduler.model.plan import Prices
from scheduler.search.cost_bound import request_bounds_dollars
from workbench.cluster.api_requests import PODS
from workbench.cluster.process import Program
from workbench.demo import board
from workbench.demo.cluster import DemoCluster, Share, running_cluster
from workbench.demo.function_servers import answer_factor
from workbench.demo.load_generator import LoadPlan, LoadWorkflow, RequestOutcome
from workbench.demo.results import RunResults
from workbench.demo.summary import DemoSummary, PodUsage, summarise
from workbench.simulation.workloads.paper import GAPS_MS, Load

_TICK_S = 0.5  # between two updates of the table
_LINE_S = 3.0  # between two lines without a terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoConfig:
    """Configuration of a run.

    Attributes:
        warm_up_s, seconds: durations of the warm-up, while pods start, and of the measurement after
            it.
        cool_down_s: limit of the time in which pods end after the last request, in seconds.
        share: form in which pods hold their share of a GPU: always, or in slices of a pool while
            they run.
    """

    nodes: Sequence[dict[str, Any]]
    workflows: Sequence[Workflow]
    profiles: Sequence[FunctionProfile]
    load: Load
    warm_up_s: float
    seconds: float
    cool_down_s: float
    seed: int
    share: Share = "pooled"
    prices: Prices

    @property
    def gpus(self) -> int:
        """Number of all GPUs."""
        return sum(len(node_from_json(node).gpus) for node in self.nodes)


async def play(config: DemoConfig, console: Console) -> DemoSummary:
    """Play a run, and print its progress on the console.

    Raises:
        ProgramError: a program failed.
    """
    _say(console, "starting an API server in memory, esg serve, esg gateway and model servers")
    async with demo_cluster(config) as cluster:
        _say(console, f"live page: {cluster.page}")
        shortest_ms, longest_ms = GAPS_MS[config.load]
        _say(
            console,
            f"requests for {len(config.workflows)} workflows to "
            f"http://{cluster.gateway[0]}:{cluster.gateway[1]}, one every {shortest_ms:g} to "
            f"{longest_ms:g} ms: {config.warm_up_s:g} s while the gateway creates pods on "
            f"{len(config.nodes)} nodes, then {config.seconds:g} s that count; then the "
            "pods end",
        )
        return await send_requests(config, cluster, console)


def demo_cluster(config: DemoConfig) -> AbstractAsyncContextManager[DemoCluster]:
    """Run a cluster for a configuration; raises like `play`."""
    profiles = {profile.metadata.name: profile for profile in config.profiles}
    return running_cluster(
        config.nodes, config.workflows, profiles, seed=config.seed, share=config.share
    )


async def send_requests(config: DemoConfig, cluster: DemoCluster, console: Console) -> DemoSummary:
    """Send the requests of a configuration to a cluster, and wait until they and the pods end."""
    run = _DemoRun(config, cluster, console)
    await run.play()
    return await run.summary()


class _DemoRun:
    """The requests of a run, and what is known of them so far."""

    def __init__(self, config: DemoConfig, cluster: DemoCluster, console: Console) -> None:
        self._config = config
        self._cluster = cluster
        self._console = console
        self._results = RunResults(
            [(w.key[1], w.spec.slo.latency_ms, len(w.spec.stages)) for w in config.workflows],
            warm_up_s=config.warm_up_s,
        )
        self._usage = PodUsage(config.prices)
        catalogue = Catalogue.of([*config.workflows, *config.profiles])
        limits_dollars = request_bounds_dollars(catalogue, config.prices)
        self._limits_dollars = [limits_dollars[workflow.key] for workflow in config.workflows]
        self._sent = 0
        self._begin_s = 0.0
        self._core_wait_ratios: Sequence[float | None] = (None, None)

    async def play(self) -> None:
        """Send all requests."""
        command = [sys.executable, "-m", "workbench.demo.load_generator"]
        client = await self._cluster.programs.start("the client", command, pipes=True, may_end=True)
        await client.write(json.dumps(asdict(self._plan())).encode())
        self._begin_s = json.loads(await client.line())
        self._usage.update(self._cluster.pods(), self._begin_s)
        waits_s = self._cluster.core_waits_s()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(work) for work in (self._follow_pods(), self._show_progress())
            ]
            await self._receive(client)
            requests_s = time.monotonic() - self._begin_s
            self._core_wait_ratios = [
                None if before_s is None or after_s is None else (after_s - before_s) / requests_s
                for before_s, after_s in zip(waits_s, self._cluster.core_waits_s(), strict=True)
            ]
            await self._cluster.wait_until_empty(self._config.cool_down_s)
            for task in tasks:
                task.cancel()

    async def _follow_pods(self) -> None:
        with self._cluster.store.watching(PODS) as changes:
            async for _ in changes:
                self._usage.update(self._cluster.pods(), time.monotonic())

    async def _receive(self, client: Program) -> None:
        while line := json.loads(await client.line()):
            self._sent, outcomes = line
            self._results.add(RequestOutcome(*fields) for fields in outcomes)

    def _plan(self) -> LoadPlan:
        host, port = self._cluster.gateway
        return LoadPlan(
            host=host,
            port=port,
            workflows=[LoadWorkflow(*w.key, answer_factor(w)) for w in self._config.workflows],
            load=self._config.load,
            seconds=self._config.warm_up_s + self._config.seconds,
            seed=self._config.seed,
        )

    async def summary(self) -> DemoSummary:
        """Summarise the run so far."""
        runs = await self._cluster.model_pods.report()
        now_s = time.monotonic()
        self._usage.update(self._cluster.pods(), now_s)
        summary = summarise(
            self._results,
            self._usage,
            runs,
            gpus=self._config.gpus,
            seconds=max(now_s - self._begin_s, _TICK_S),
        )
        return replace(
            summary,
            core_wait_ratios=self._core_wait_ratios,
            limit_dollars=self._results.limit_dollars(self._limits_dollars),
        )

    async def _show_progress(self) -> None:
        console = self._console
        live = Live(console=console, auto_refresh=False, transient=True)
        line_due_s = 0.0
        with live if console.is_terminal else nullcontext():
            while True:
                await asyncio.sleep(_TICK_S)
                now_s = time.monotonic()
                if now_s < line_due_s:
                    continue
                summary = await self.summary()
                waiting = self._sent - self._results.ended
                if console.is_terminal:
                    live.update(board.live(summary, waiting), refresh=True)
                else:
                    _say(console, board.state_line(summary, waiting))
                    line_due_s = now_s + _LINE_S


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True)
