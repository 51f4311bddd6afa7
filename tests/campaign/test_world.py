"""Parts of the simulated cluster that a verdict rests on."""

import asyncio
import json
from collections import deque

import pytest

from scheduler.cluster.errors import ApiTimeoutError
from tests.campaign.audit import GpuShares, Share
from tests.campaign.watch_feed import BOOKMARK_S, WatchFeed
from tests.campaign.world import World
from tests.virtual_loop import run_virtually
from workbench.cluster.api_requests import NODES, PODS


class Events:
    """Events of a watch, and the version after the last of them."""

    def __init__(self) -> None:
        self.waiting = deque()
        self.version = 1
        self._added = asyncio.Event()

    def add(self):
        self.version += 1
        self.waiting.append(self._object("ADDED"))
        self._added.set()

    def bookmark(self):
        return self._object("BOOKMARK")

    def _object(self, kind):
        return {"type": kind, "object": {"metadata": {"resourceVersion": str(self.version)}}}

    async def next_event(self):
        await self._added.wait()
        return self.waiting.popleft()

    def events_so_far(self):
        return []


def test_the_same_gpu_under_two_names_is_counted_once():
    """Pods of two node names on one GPU exceed it together, and nothing more fits there."""
    shares = GpuShares(80_000)
    shares.set("a", Share("a", "a", "n1", "GPU-1", 60, 1_000))
    shares.set("b", Share("b", "b", "n2", "GPU-1", 30, 1_000))
    assert not shares.violations
    assert not shares.fits("n1", "GPU-1", 10, 1_000)
    shares.set("c", Share("c", "c", "n2", "GPU-1", 30, 1_000))
    assert len(shares.violations) == 1


def test_no_bookmark_is_ahead_of_events_that_are_still_to_come():
    """A late watch that falls silent has not passed on a version after events that it withholds."""

    async def passed_on():
        events = Events()
        feed = WatchFeed(
            events,
            events.bookmark,
            plural="pods",
            duration_s=10 * BOOKMARK_S,
            silence_s=10.0,
            latency_s=0.001,
        )
        loop = asyncio.get_running_loop()
        loop.call_later(BOOKMARK_S - 1, feed.slow_down, 60.0)
        loop.call_later(BOOKMARK_S + 10, events.add)
        loop.call_later(BOOKMARK_S + 20, feed.fall_silent)
        versions = set()

        async def read():
            async for line in feed.lines():
                versions.add(json.loads(line)["object"]["metadata"]["resourceVersion"])

        with pytest.raises(ApiTimeoutError):
            await read()
        return versions

    assert "2" not in run_virtually(passed_on())


def test_the_capacity_of_a_node_covers_pods_of_gpus_that_are_gone():
    """Else an eviction for a pod of the new GPUs would not suffice by kube-scheduler's sums."""

    async def percent_of_node():
        world = World({"n1": 1}, active=1)
        share = {"gpu": "GPU-gone", "gpu-percent": "20", "gpu-memory": "0=4000M"}
        annotations = {f"esg-scheduler.io/{key}": value for key, value in share.items()}
        labels = {"esg-scheduler.io/function": "wide"}
        metadata = {"name": "p1", "namespace": "default", "uid": "u1", "labels": labels}
        world.server.store.create(
            PODS,
            {
                "metadata": metadata | {"annotations": annotations},
                "spec": {"nodeName": "n1", "containers": [{"name": "function", "resources": {}}]},
                "status": {"phase": "Running"},
            },
        )
        await asyncio.sleep(0)
        [node] = world.server.store.list(NODES)
        return node["status"]["allocatable"]["esg-scheduler.io/gpu-percent"]

    assert run_virtually(percent_of_node()) == "120"


def test_a_caller_that_ends_with_its_call_does_not_go_on():
    """At the end of a run all tasks are cancelled; a scheduler that went on would run forever."""

    async def end():
        world = World({"n1": 1}, active=1)
        life = world.lives[0]
        caller = asyncio.create_task(life.call(asyncio.Event().wait))
        await asyncio.sleep(0)
        [call] = life._calls
        call.cancel()
        caller.cancel()
        await caller

    with pytest.raises(asyncio.CancelledError):
        run_virtually(end())
