"""A whole run: the service started, the requests played, the figures shown and summed up."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.live import Live

from scheduler.model.documents import Workflow
from scheduler.model.plan import Prices
from workbench.demo import board
from workbench.demo.arrivals import Load, arrivals
from workbench.demo.engine import Engine
from workbench.demo.extender import DemoError, Extender
from workbench.demo.figures import Summary, by_workflow, figures, summary
from workbench.demo.process import serving

_TICK_S = 0.5  # between two pictures on a terminal, and two looks at the GPUs
_LINE_S = 3.0  # between two lines where there is no terminal
_LEAD_S = 0.2  # from the service being ready to the first arrival
_DRAIN_S = 20.0  # for what has arrived; of these workflows, ten times their SLO


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoConfig:
    """What is played."""

    nodes: Path
    profiles: Path
    node_names: Sequence[str]
    workflows: Sequence[Workflow]
    load: Load
    seconds: float
    seed: int
    prices: Prices


async def play(script: DemoConfig, console: Console) -> Summary:
    """Play it all, and tell on the console how it goes.

    Raises:
        DemoError: the service failed, or placed nothing.
    """
    console.print(
        f"starting the service: esg serve --embedded {script.nodes} --profiles {script.profiles}",
        soft_wrap=True,
    )
    async with serving(script.nodes, script.profiles) as extender:
        shortest_ms, longest_ms = script.load.interval_ms
        console.print(
            f"ready; {script.seconds:g} s of requests for {len(script.workflows)} workflows, one "
            f"every {shortest_ms:g} to {longest_ms:g} ms, over {len(script.node_names)} nodes",
            soft_wrap=True,
        )
        rng = random.Random(script.seed)  # noqa: S311 - a load, not a secret
        engine = Engine(extender, script.node_names, script.prices, random.Random(rng.random()))  # noqa: S311
        began = time.time() + _LEAD_S
        requests = arrivals(
            script.workflows, script.load, start=began, seconds=script.seconds, rng=rng
        )
        async with _telling(engine, extender, began, console) as fills:
            await engine.play(requests, drain_s=_DRAIN_S)
        ended = time.time()
        samples = await extender.metrics()
    told = summary(
        engine,
        began=began,
        ended=ended,
        fills=[fill for moment, fill in fills if moment <= began + script.seconds],
        samples=samples,
    )
    if told.pods == 0:
        raise DemoError("not one pod was placed")
    return told


@contextlib.asynccontextmanager
async def _telling(
    engine: Engine, extender: Extender, began: float, console: Console
) -> AsyncIterator[list[tuple[float, float]]]:
    """Tell how it goes while inside; the moments, and how much of the GPUs was granted then."""
    fills: list[tuple[float, float]] = []
    live = Live(console=console, auto_refresh=False, transient=True)

    async def tell() -> None:
        last_s, last_pods, line_due = began, 0, began
        while True:
            await asyncio.sleep(_TICK_S)
            fill = await extender.gpu_fill()
            now = time.time()
            fills.append((now, fill))
            if not console.is_terminal and now < line_due:
                continue
            line_due = now + _LINE_S
            pods = len(engine.tally.batches)
            total = figures("all", None, engine.requests, now)
            line = board.state_line(
                elapsed_s=now - began,
                total=total,
                fill=fill,
                pods_per_second=(pods - last_pods) / (now - last_s),
                waiting=engine.waiting,
            )
            last_s, last_pods = now, pods
            if console.is_terminal:
                live.update(
                    board.live(by_workflow(engine.requests, now), total, line), refresh=True
                )
            else:
                console.print(line, highlight=False, soft_wrap=True)

    async with asyncio.TaskGroup() as group:
        teller = group.create_task(tell())
        with live if console.is_terminal else contextlib.nullcontext():
            yield fills
            teller.cancel()
