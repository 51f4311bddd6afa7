"""How an agent ends: told to, with a part of it broken, or with nobody to take its last write."""

import asyncio
from collections.abc import Mapping
from contextlib import asynccontextmanager

import pytest

from scheduler.agent import service
from scheduler.agent.service import Agent
from scheduler.cluster.errors import ApiUnreachableError
from scheduler.cluster.reflector import Handler
from scheduler.model.names import RESOURCE_GPU_PERCENT
from scheduler.model.node import gpus_of
from scheduler.model.pod import Grant, grant_annotations
from tests.agent.gpus import FakeGpus
from tests.agent.readings import settings


class OneNode:
    """A node as `scheduler.cluster.one_node.OneNode` shows it, that can stop answering."""

    def __init__(self):
        self.annotations: dict[str, str] = {}
        self.capacity: list[int] = []
        self.fails: Exception | None = None
        self.hangs = False
        self.written = asyncio.Event()
        self.dies = asyncio.Event()

    async def run(self):
        await self.dies.wait()
        raise RuntimeError("the watch broke")

    async def annotate(self, annotations: Mapping[str, str]):
        await self._answer()
        self.annotations |= annotations
        return self._raw()

    async def set_capacity(self, resource: str, amount: int):
        await self._answer()
        assert resource == RESOURCE_GPU_PERCENT
        self.capacity.append(amount)
        self.written.set()
        return self._raw()

    def record_event(self, **_event):
        """Nobody looks."""

    def healthy(self) -> list[bool]:
        return [gpu.healthy for gpu in gpus_of(self.annotations)]

    async def _answer(self):
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails is not None:
            raise self.fails

    def _raw(self):
        has = {RESOURCE_GPU_PERCENT: str(self.capacity[-1])} if self.capacity else {}
        return {
            "metadata": {"name": "n", "annotations": dict(self.annotations)},
            "status": {"capacity": has, "allocatable": has},
        }


class Case:
    """An agent of two GPUs that are offered."""

    def __init__(self):
        self.node, self.stop = OneNode(), asyncio.Event()
        self.pods: Handler | None = None
        self.agent = Agent(settings(read_every_s=0.1), "n", connect=self._connected)

    async def offered(self) -> "asyncio.Task[None]":
        running = asyncio.create_task(self.agent.run(self.stop))
        async with asyncio.timeout(60):
            await self.node.written.wait()
        assert (self.node.healthy(), self.node.capacity) == ([True, True], [200])
        return running

    @asynccontextmanager
    async def _connected(self, node, pods):
        self.pods = pods
        pods.replace([])
        node.replace([{"metadata": {"name": "n"}, "status": {}}])
        yield self.node


def pod(gpu_uuid: str, *, percent: int):
    """A pod that runs, and was granted half of what it requests."""
    requests = {RESOURCE_GPU_PERCENT: str(percent)}
    return {
        "metadata": {
            "name": "p",
            "uid": "p",
            "annotations": grant_annotations(Grant(gpu_uuid, percent // 2, 4096, 1, {})),
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }


async def test_at_its_end_it_takes_the_gpus_out(own_gpus: FakeGpus):
    """One last write, of both places."""
    case = Case()
    running = await case.offered()
    case.stop.set()
    await running
    assert (case.node.healthy(), case.node.capacity) == ([False, False], [200, 0])


async def test_what_pods_request_is_left_in_the_capacity(own_gpus: FakeGpus):
    """A kubelet that starts before the next agent does must be able to take them in again."""
    case = Case()
    running = await case.offered()
    case.pods.upsert(pod(own_gpus.uuids[1], percent=80))
    case.stop.set()
    await running
    assert (case.node.healthy(), case.node.capacity) == ([False, False], [200, 80])


async def test_a_part_that_dies_ends_it_with_its_error(own_gpus: FakeGpus):
    """So that the process is replaced; the GPUs are taken out all the same."""
    case = Case()
    running = await case.offered()
    case.node.dies.set()
    with pytest.raises(RuntimeError, match="the watch broke"):
        await running
    assert case.node.healthy() == [False, False]


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_server_that_does_not_answer_does_not_hold_it(own_gpus, logged, monkeypatch, hangs):
    """It says that its last write was not made, and ends."""
    monkeypatch.setattr(service, "_LAST_WRITE_S", 0.2)
    case = Case()
    running = await case.offered()
    case.node.hangs = hangs
    case.node.fails = ApiUnreachableError("the server cannot be reached", sent=False)
    case.stop.set()
    async with asyncio.timeout(60):
        await running
    assert "the GPUs could not be marked as ill" in [entry["event"] for entry in logged]


async def test_an_agent_that_knows_nothing_yet_changes_nothing(own_gpus: FakeGpus):
    """What another has written stays, when this one ends before its first reading."""
    own_gpus.set_all(hang=1)
    case = Case()
    case.stop.set()
    await case.agent.run(case.stop)
    assert (case.node.annotations, case.node.capacity) == ({}, [])
    own_gpus.set_all(hang=0)
