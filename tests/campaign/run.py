"""One run: incidents, then quiet, then the checks."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import structlog

from scheduler.cluster import backoff
from scheduler.extender import stale_cache
from scheduler.gateway.scaling import pool_pod
from tests.campaign.checks import is_settled, problems
from tests.campaign.gateway_incidents import has_gateways
from tests.campaign.incidents import Incident, draw_incidents, draw_layout
from tests.campaign.machines import MachineLoop
from tests.campaign.world import World
from tests.virtual_loop import run_virtually

WATCHED_S = 40.0  # before the first incident: after it a process knows of all that has vanished
STEP_S = 5.0
QUIET_S = 480.0  # longer than kube-scheduler's longest wait, and than two silent watches
POLL_S = 0.05  # of a stale cache; the extender's own, 2 ms, would be most of a run's steps


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one run.

    Attributes:
        seed: seed with which the run is made again.
        overcommits: each GPU that had more than it has, at the server.
        running_overcommits: the same, by the containers that ran.
        problems: what was lost: waits without an end, wrong ledgers, metrics and errors.
        bound: number of pods that were bound.
    """

    seed: int
    overcommits: Sequence[str] = field(default_factory=tuple)
    running_overcommits: Sequence[str] = field(default_factory=tuple)
    problems: Sequence[str] = field(default_factory=tuple)
    bound: int = 0

    @property
    def failed(self) -> bool:
        return bool(self.failures)

    @property
    def failures(self) -> Sequence[str]:
        running = [f"containers: {violation}" for violation in self.running_overcommits]
        return (*self.overcommits, *running, *self.problems)

    @property
    def kinds(self) -> tuple[bool, bool]:
        """Tell which sums were exceeded."""
        return bool(self.overcommits), bool(self.running_overcommits)


def run_seed(seed: int, *, active: int = 1) -> Verdict:
    """Run the incidents of a seed."""
    return run_incidents(seed, draw_incidents(seed), active=active)


def run_incidents(seed: int, incidents: Sequence[Incident], *, active: int = 1) -> Verdict:
    """Run these incidents, in their order."""
    with _captured_errors() as errors, _repeatable(seed):
        verdict = run_virtually(_run(seed, incidents, active), MachineLoop)
    if not errors:
        return verdict
    return replace(verdict, problems=(*verdict.problems, *errors))


async def _run(seed: int, incidents: Sequence[Incident], active: int) -> Verdict:
    loop = asyncio.get_running_loop()
    world = World(draw_layout(seed), active, has_gateways=has_gateways(seed))
    await asyncio.sleep(WATCHED_S)
    began_s = loop.time()
    for incident in incidents:
        await asyncio.sleep(max(0.0, began_s + incident.at_s - loop.time()))
        world.apply(incident)
    await asyncio.sleep(60.0)  # until what is late has arrived
    world.heal()
    end_s = loop.time() + QUIET_S
    while loop.time() < end_s and not is_settled(world):  # noqa: ASYNC110 - by time alone
        await asyncio.sleep(STEP_S)
    lost = tuple(problems(world))
    return Verdict(
        seed,
        tuple(world.audit.violations),
        tuple(world.kubelet.running.violations),
        lost,
        len(world.audit.bound),
    )


@contextmanager
def _repeatable(seed: int) -> Iterator[None]:
    """Draw names of pods and pauses from the seed, and poll rarely."""
    random = Random(f"process {seed}")
    with (
        mock.patch.object(stale_cache, "_PAUSE_S", POLL_S),
        mock.patch.object(pool_pod, "secrets", random),
        mock.patch.object(backoff, "random_module", SimpleNamespace(Random=lambda: random)),
    ):
        yield


@contextmanager
def _captured_errors() -> Iterator[list[str]]:
    """Collect exceptions that the code under test logs, and drop all other lines."""
    errors: list[str] = []

    def processor(_logger: Any, _method: str, event: Any) -> Any:
        if (info := event.get("exc_info")) is not None:
            errors.append(f"logged: {event['event']}: {info!r}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[processor])
    try:
        yield errors
    finally:
        structlog.configure(**before)
