"""GPU memory of pods is not known while their GPU cannot be read."""

import asyncio
import os
from contextlib import asynccontextmanager

import pytest
from prometheus_client import generate_latest

from scheduler.agent import service
from scheduler.agent.service import Agent
from scheduler.model.grant import Grant, grant_annotations
from tests.agent.factories import settings
from tests.agent.fakes import GPU_IS_LOST, Clock

EVICT_AFTER_S = 200  # within the time for which a lost GPU is published


class EvictingNode:
    """A node that records evictions."""

    def __init__(self):
        self.evicted = []

    async def run(self):
        await asyncio.Event().wait()

    async def evict(self, pod):
        self.evicted.append(pod.name)

    def record_event(self, **_event):
        """Drop the event."""


@pytest.mark.parametrize("reason", ["lost", "nvml"])
async def test_no_pod_is_evicted_by_an_old_reading(own_gpus, monkeypatch, reason):
    """The excess of a GPU that is lost, or whose calls hang, has ended as far as is known."""
    for name in ("_CHECK_EVERY_S", "_EVICT_EVERY_S"):
        monkeypatch.setattr(service, name, 0.01)
    monkeypatch.setattr(service, "pod_uid_of_process", {os.getpid(): "p"}.get)
    grant = grant_annotations(Grant(own_gpus.uuids[0], 40, 1024, 1, {}))
    pod = {"metadata": {"name": "p", "uid": "p", "annotations": grant}, "spec": {}}
    clock, node, stop = Clock(), EvictingNode(), asyncio.Event()

    @asynccontextmanager
    async def connected(_node, pods):
        pods.replace([pod])
        yield node

    def series():
        return generate_latest(agent.metrics.registry).decode()

    own_gpus.set(0, mps_processes=f"{os.getpid()}:{2**31}")
    agent = Agent(
        settings(read_every_s=0.1, evict_after_s=EVICT_AFTER_S), "n", connect=connected, clock=clock
    )
    running = asyncio.create_task(agent.run(stop))
    async with asyncio.timeout(60):
        while "memory_excess_bytes{" not in series():  # noqa: ASYNC110 - a poll
            await asyncio.sleep(0.01)
        if reason == "lost":
            own_gpus.set(0, error=GPU_IS_LOST)
        else:
            own_gpus.set_all(hang=1)
        while f'reason="{reason}"' not in series():
            clock.now_s += 7 * (reason == "nvml")
            await asyncio.sleep(0.05)
        while "memory_excess_bytes{" in series() and not node.evicted:
            clock.now_s += EVICT_AFTER_S / 10
            await asyncio.sleep(0.05)
        assert (node.evicted, "pod_gpu_memory_used_bytes{" in series()) == ([], False)
        own_gpus.set_all(hang=0)
        stop.set()
        await running
