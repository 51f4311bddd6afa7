"""End of an agent: by a signal, by a failed task, or without an API server for its last write."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from scheduler.agent import service
from scheduler.agent.service import Agent
from scheduler.cluster.errors import ApiUnreachableError
from scheduler.cluster.reflector import Handler
from scheduler.model.grant import Grant, grant_annotations
from scheduler.model.names import ANNOTATION_GPUS, RESOURCE_GPU_PERCENT
from scheduler.model.node import gpus_of
from tests.agent.factories import settings


class FakeOneNode:
    """A `scheduler.cluster.one_node.OneNode` that can stop answering."""

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

    async def annotate(self, annotations):
        await self._answer()
        self.annotations |= annotations
        return self._raw()

    async def set_capacity(self, resource, amount):
        await self._answer()
        assert resource == RESOURCE_GPU_PERCENT
        self.capacity.append(amount)
        self.written.set()
        return self._raw()

    def record_event(self, **_event):
        """Drop the event."""

    def healthy(self):
        return [gpu.healthy for gpu in gpus_of(self.annotations)]

    async def _answer(self):
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails is not None:
            raise self.fails

    def _raw(self):
        amounts = {RESOURCE_GPU_PERCENT: str(self.capacity[-1])} if self.capacity else {}
        return {
            "metadata": {"name": "n", "annotations": dict(self.annotations)},
            "status": {"capacity": amounts, "allocatable": amounts},
        }


class AgentOfTwoGpus:
    """An agent of two GPUs that are offered."""

    def __init__(self):
        self.node, self.stop = FakeOneNode(), asyncio.Event()
        self.pods: Handler | None = None
        self.agent = Agent(settings(read_every_s=0.1), "n", connect=self._connected)

    async def offered(self):
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


def pod(gpu_uuid, *, percent):
    """Create a running pod that was granted half of its request."""
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


async def test_gpus_are_removed_at_the_end(own_gpus):
    """Without granted pods nothing of the agent stays on the node."""
    case = AgentOfTwoGpus()
    running = await case.offered()
    case.stop.set()
    await running
    assert (case.node.annotations, case.node.capacity) == ({ANNOTATION_GPUS: None}, [200, None])


async def test_gpus_of_granted_pods_are_marked_unhealthy_at_the_end(own_gpus):
    """A kubelet that starts before the next agent must be able to admit the pods again."""
    case = AgentOfTwoGpus()
    running = await case.offered()
    case.pods.upsert(pod(own_gpus.uuids[1], percent=80))
    case.stop.set()
    await running
    assert (case.node.healthy(), case.node.capacity) == ([False, False], [200, 80])


async def test_failed_task_ends_the_agent(own_gpus):
    """The process must be replaced; the GPUs are removed all the same."""
    case = AgentOfTwoGpus()
    running = await case.offered()
    case.node.dies.set()
    with pytest.raises(RuntimeError, match="the watch broke"):
        await running
    assert case.node.annotations == {ANNOTATION_GPUS: None}


@pytest.mark.parametrize("hangs", [True, False])
async def test_server_without_an_answer(own_gpus, logged, monkeypatch, hangs):
    """The agent logs the missing write, and ends."""
    monkeypatch.setattr(service, "_LAST_WRITE_S", 0.2)
    case = AgentOfTwoGpus()
    running = await case.offered()
    case.node.hangs = hangs
    case.node.fails = ApiUnreachableError("the server cannot be reached", sent=False)
    case.stop.set()
    async with asyncio.timeout(60):
        await running
    assert "GPUs not removed from the node" in [entry["event"] for entry in logged]


async def test_end_before_the_first_reading(own_gpus):
    """The state written by another agent stays."""
    own_gpus.set_all(hang=1)
    case = AgentOfTwoGpus()
    case.stop.set()
    await case.agent.run(case.stop)
    assert (case.node.annotations, case.node.capacity) == ({}, [])
    own_gpus.set_all(hang=0)
