"""A whole run: start the service, play the requests, show the state, and summarise."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.live import Live

from scheduler.model.documents import Workflow
from scheduler.model.plan import Prices
from workbench.demo import board
from workbench.demo.engine import DemoEngine
from workbench.demo.extender import DemoError, ExtenderClient
from workbench.demo.process import serving
from workbench.demo.summary import DemoSummary, by_workflow, summarise, total_of
from workbench.simulation.workloads.arrivals import Extent
from workbench.simulation.workloads.paper import GAPS_MS, Load, Paper

_TICK_S = 0.5  # between two updates of the table
_LINE_S = 3.0  # between two lines without a terminal
_LEAD_S = 0.2  # from the service being ready to the first arrival
_DRAIN_S = 20.0  # for what has arrived; of these workflows, ten times their SLO


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoConfig:
    """Configuration of a run."""

    nodes: Path
    profiles: Path
    node_names: Sequence[str]
    workflows: Sequence[Workflow]
    load: Load
    seconds: float
    seed: int
    prices: Prices


async def play(config: DemoConfig, console: Console) -> DemoSummary:
    """Play a run, and print its progress on the console.

    Raises:
        DemoError: the service failed, or placed nothing.
    """
    console.print(
        f"starting the service: esg serve --embedded {config.nodes} --profiles {config.profiles}",
        soft_wrap=True,
    )
    async with serving(config.nodes, config.profiles) as extender:
        shortest_ms, longest_ms = GAPS_MS[config.load]
        console.print(
            f"ready; {config.seconds:g} s of requests for {len(config.workflows)} workflows, one "
            f"every {shortest_ms:g} to {longest_ms:g} ms, over {len(config.node_names)} nodes",
            soft_wrap=True,
        )
        engine = DemoEngine(
            extender, config.node_names, config.workflows, config.prices, config.seed
        )
        began_ms = 1000 * (time.time() + _LEAD_S)
        arrivals = demo_arrivals(
            config.workflows,
            config.load,
            seconds=config.seconds,
            seed=config.seed,
            began_ms=began_ms,
        )
        async with _progress(engine, extender, began_ms, console) as utilisations:
            await engine.play(arrivals, drain_s=_DRAIN_S)
        ended_ms = 1000 * time.time()
        samples = await extender.metrics()
    summary = summarise(
        engine,
        began_ms=began_ms,
        ended_ms=ended_ms,
        utilisations=[
            ratio for now_ms, ratio in utilisations if now_ms <= began_ms + 1000 * config.seconds
        ],
        samples=samples,
    )
    if summary.pods == 0:
        raise DemoError("the service placed no pod; do the workflows fit the nodes?")
    return summary


def demo_arrivals(
    workflows: Sequence[Workflow], load: Load, *, seconds: float, seed: int, began_ms: float
) -> Iterator[tuple[float, int]]:
    """Yield time (ms since the epoch) and index of the workflow of each request."""
    arrivals = Paper(load=load).arrivals(
        [workflow.key for workflow in workflows],
        seed=seed,
        extent=Extent(duration_ms=1000 * seconds),
    )
    for times_ms, indices in arrivals.chunks():
        yield from zip((began_ms + times_ms).tolist(), indices.tolist(), strict=True)


@contextlib.asynccontextmanager
async def _progress(
    engine: DemoEngine, extender: ExtenderClient, began_ms: float, console: Console
) -> AsyncIterator[list[tuple[float, float]]]:
    """Print the progress; yield the list of times (ms) and GPU utilisations that it fills."""
    utilisations: list[tuple[float, float]] = []
    live = Live(console=console, auto_refresh=False, transient=True)

    async def update() -> None:
        last_ms, last_pods, line_due_ms = began_ms, 0, began_ms
        while True:
            await asyncio.sleep(_TICK_S)
            utilisation_ratio = await extender.gpu_utilisation_ratio()
            now_ms = 1000 * time.time()
            utilisations.append((now_ms, utilisation_ratio))
            if not console.is_terminal and now_ms < line_due_ms:
                continue
            line_due_ms = now_ms + 1000 * _LINE_S
            pods = len(engine.counts.batches)
            total = total_of(engine, now_ms)
            line = board.state_line(
                elapsed_s=(now_ms - began_ms) / 1000,
                total=total,
                utilisation_ratio=utilisation_ratio,
                pods_per_s=1000 * (pods - last_pods) / (now_ms - last_ms),
                waiting=engine.waiting,
            )
            last_ms, last_pods = now_ms, pods
            if console.is_terminal:
                live.update(board.live(by_workflow(engine, now_ms), total, line), refresh=True)
            else:
                console.print(line, highlight=False, soft_wrap=True)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(update())
        with live if console.is_terminal else contextlib.nullcontext():
            yield utilisations
            task.cancel()
