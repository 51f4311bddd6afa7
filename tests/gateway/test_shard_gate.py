"""Documents and pods of owned shards, and batches that a former owner may still run."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from scheduler.gateway.calls import CallError
from scheduler.gateway.discovery.server_pods import server_pod
from scheduler.gateway.model_server import ModelServerError
from scheduler.gateway.replicas.dispatch_fence import DispatchFence
from scheduler.gateway.replicas.shard_gate import ShardGate
from scheduler.gateway.replicas.shards import shard_of
from scheduler.model.documents import FunctionProfile, Workflow
from scheduler.model.function_server import FunctionServer
from tests.gateway.factories import pod, profile, server, workflow
from tests.gateway.harness import eventually
from tests.gateway.listeners import RecordingListener
from tests.virtual_loop import virtually

POD = "n/p"
SHARD = shard_of("n")


class Documents:
    """A listener of workflows."""

    def __init__(self):
        self.workflows = set()

    def set_profile(self, profile):
        """Profiles are passed on for all shards."""

    def set_workflow(self, workflow):
        self.workflows.add(workflow.key)

    def remove_workflow(self, key):
        self.workflows.remove(key)


class Bed:
    """A gate in front of two listeners; it knows one workflow, one server and one pod."""

    def __init__(self, latency_ms=100.0, p95_ms=None):
        self.documents, self.listener = Documents(), RecordingListener()
        self.gate = ShardGate(self.documents, self.listener)
        document = profile().model_dump(by_alias=True)
        times = {"latencyMs": latency_ms, "p95Ms": p95_ms}
        document["spec"]["gpus"][0]["configurations"][0].update(times)
        self.profile = FunctionProfile.model_validate(document)
        described = FunctionServer.model_validate(server())
        self.pod = server_pod(pod(), described, self.profile)
        self.gate.set_workflow(Workflow.model_validate(workflow()))
        self.server = described, self.profile
        self.gate.set_server(*self.server)
        self.gate.add_pod(self.pod)


async def test_listeners_know_open_shards_only():
    """Earlier reports are passed on when the shard opens, and withdrawn when it closes."""
    bed = Bed()
    assert (bed.documents.workflows, bed.listener.calls) == (set(), [])
    bed.gate.open(SHARD, hold=False)
    assert bed.documents.workflows == {("n", "w")}
    assert bed.listener.open == {POD}
    bed.gate.close(SHARD)
    assert bed.documents.workflows == set()
    assert (bed.listener.servers, bed.listener.pods) == ({}, {})
    bed.gate.remove_pod(POD)
    bed.gate.open(SHARD, hold=False)
    assert bed.listener.pods == {}


async def test_a_former_owners_runs_end_first():
    """After a loss, a pod gets batches when its longest run must be over."""
    bed = Bed(latency_ms=20.0)
    bed.gate.open(SHARD, hold=True)
    assert (set(bed.listener.pods), bed.listener.open) == ({POD}, set())
    assert bed.gate.is_held(SHARD)
    await eventually(lambda: bed.listener.open == {POD})
    assert not bed.gate.is_held(SHARD)


@pytest.mark.parametrize(("p95_ms", "wait_s"), [(None, 1.25), (1600.0, 2.0)])
@virtually
async def test_the_wait_covers_a_run_that_is_longer_than_the_mean(p95_ms, wait_s):
    """It is that of slices: a quarter more than the profile's longest run."""
    bed = Bed(latency_ms=1000.0, p95_ms=p95_ms)
    bed.gate.open(SHARD, hold=True)
    await asyncio.sleep(wait_s - 0.01)
    assert bed.listener.open == set()
    await asyncio.sleep(0.02)
    assert bed.listener.open == {POD}


async def test_a_held_pod_that_is_not_ready_waits_for_its_readiness():
    """The end of the wait does not make a pod ready."""
    bed = Bed(latency_ms=10.0)
    bed.gate.open(SHARD, hold=True)
    bed.gate.drain_pod(POD)
    await eventually(lambda: not bed.gate.is_held(SHARD))
    assert bed.listener.open == set()
    bed.gate.pod_ready(POD)
    assert bed.listener.open == {POD}


@pytest.mark.parametrize("host", ["10.0.0.1", "10.0.0.2"], ids=["the same", "another address"])
@virtually
async def test_a_held_pod_that_is_added_again_still_waits(host):
    """A change of its address or of its server does not end the former owner's run."""
    bed = Bed(latency_ms=60_000.0)
    bed.gate.open(SHARD, hold=True)
    await asyncio.sleep(30)
    bed.gate.remove_pod(POD)
    bed.gate.add_pod(replace(bed.pod, host=host))
    await asyncio.sleep(29)
    assert (set(bed.listener.pods), bed.listener.open) == ({POD}, set())
    await asyncio.sleep(60)
    assert bed.listener.open == {POD}


@virtually
async def test_a_held_pod_that_is_gone_gets_no_batch_after_the_wait():
    """The end of the wait concerns the pods that are there."""
    bed = Bed(latency_ms=10.0)
    bed.gate.open(SHARD, hold=True)
    bed.gate.remove_pod(POD)
    await asyncio.sleep(1)
    assert (bed.listener.pods, bed.gate.is_held(SHARD)) == ({}, False)


@pytest.mark.parametrize("hold", [False, True])
async def test_a_paused_shard_gets_no_batches(hold):
    """While a shard is handed over, no pod of it gets a batch, whatever is reported of it."""
    bed = Bed()
    bed.gate.open(SHARD, hold=hold)
    bed.gate.pause(SHARD)
    assert bed.listener.open == set()
    bed.gate.drain_pod(POD)
    bed.gate.pod_ready(POD)
    assert bed.listener.open == set()
    bed.gate.close(SHARD)
    bed.gate.open(SHARD, hold=False)
    assert bed.listener.open == {POD}


async def test_every_replica_knows_which_workflows_have_pods():
    """Readiness is answered for shards of others, too."""
    bed = Bed()
    assert bed.gate.has_pods("n", "w", None)
    assert bed.gate.has_pods("n", "w", "f")
    bed.gate.drain_pod(POD)
    assert not bed.gate.has_pods("n", "w", None)
    with pytest.raises(CallError, match="workflow v is not known"):
        bed.gate.has_pods("n", "v", None)


class Answering:
    """A model server that answers once a test lets it."""

    binary = True
    ready = metadata = close_idle = close = None

    def __init__(self):
        self.batches = 0
        self.gate = asyncio.Event()

    async def infer(self, model, ranges, *, timeout_ms, headers=()):
        self.batches += 1
        await self.gate.wait()
        return ()


async def test_nothing_is_sent_without_ownership():
    """A process that lost its lease while it was paused sends no batch; another pod may run it."""
    answering = Answering()
    owned = {"n"}
    fence = DispatchFence(lambda _: answering, owned.__contains__)
    client = fence.connect(Bed().pod)
    run = asyncio.create_task(client.infer("f", [], timeout_ms=None))
    await asyncio.sleep(0)
    idle = asyncio.create_task(fence.until_idle(SHARD))
    await asyncio.sleep(0)
    assert not idle.done()
    answering.gate.set()
    assert await run == ()
    await idle
    owned.clear()
    with pytest.raises(ModelServerError) as refused:
        await client.infer("f", [], timeout_ms=None)
    assert refused.value.retryable
    assert answering.batches == 1


class Pool:
    """A listener of holders that notes what it is told."""

    def __init__(self):
        self.calls = []

    def take_over(self, namespace, *, is_clean):
        self.calls.append(("take_over", namespace, is_clean))

    def holder_changed(self, holder):
        self.calls.append(("holder_changed", holder))

    def holder_gone(self, namespace, name):
        self.calls.append(("holder_gone", namespace, name))


@pytest.mark.parametrize("hold", [False, True])
async def test_holders_are_reported_after_the_take_over(hold):
    """A pool learns first whether a former owner's runs can be in its slices."""
    bed, pool, holder = Bed(latency_ms=10.0), Pool(), SimpleNamespace(namespace="n", name="h")
    gate = ShardGate(bed.documents, bed.listener, pool)
    gate.set_server(*bed.server)
    gate.holder_changed(holder)
    assert pool.calls == []
    gate.open(SHARD, hold=hold)
    assert pool.calls == [("take_over", "n", not hold), ("holder_changed", holder)]
    gate.close(SHARD)
    assert pool.calls[2:] == [("holder_gone", "n", "h")]
    gate.holder_gone("n", "h")
    gate.open(SHARD, hold=False)
    assert pool.calls[3:] == [("take_over", "n", True)]
