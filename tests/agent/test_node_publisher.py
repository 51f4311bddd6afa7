"""The node is kept in its desired state, whatever other clients write."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.agent.node_publisher import DesiredNodeState, Publisher, annotation, capacity
from scheduler.agent.pods.node_pods import PodRequest
from scheduler.cluster.errors import ApiError, ApiUnreachableError, ClusterError
from scheduler.model.names import ANNOTATION_GPUS, RESOURCE_GPU_PERCENT
from scheduler.model.node import Gpu, gpus_of
from tests.waiting import running

Raw = dict[str, Any]


def gpu(index, *, healthy=True):
    return Gpu(
        index=index,
        uuid=f"GPU-{index}",
        model="NVIDIA A100-SXM4-80GB",
        memory_mib=81_920,
        multiprocessors=108,
        healthy=healthy,
    )


class FakeNode:
    """A node on an API server, with a watch that reports to the publisher."""

    def __init__(self, publisher, **content):
        self.raw: Raw = {"metadata": {"name": "n"}, "status": {}} | content
        self.writes: list[str] = []
        self.errors: list[ClusterError] = []
        self.changed = asyncio.Event()
        self.before_answering: list[Callable[[], None]] = []
        self._publisher = publisher
        publisher.replace([json.loads(json.dumps(self.raw))])

    async def annotate(self, annotations):
        return self._write("annotation", {"metadata": {"annotations": dict(annotations)}})

    async def set_capacity(self, resource, amount):
        # In the API server's canonical form.
        text = f"{amount // 1000}k" if amount and amount % 1000 == 0 else str(amount)
        amounts = {resource: text}
        return self._write("capacity", {"status": {"capacity": amounts, "allocatable": amounts}})

    def _write(self, field, change):
        if self.errors:
            raise self.errors.pop(0)
        self.writes.append(field)
        self.put(change)
        answer = json.loads(json.dumps(self.raw))
        while self.before_answering:
            self.before_answering.pop(0)()
        return answer

    def put(self, change):
        """Change the node, and report it by the watch."""
        for part, content in change.items():
            for key, value in content.items():
                self.raw[part].setdefault(key, {}).update(value)
        self._publisher.upsert(json.loads(json.dumps(self.raw)))
        self.changed.set()

    def percents(self):
        """Return capacity and allocatable."""
        status = self.raw["status"]
        return tuple(
            status.get(part, {}).get(RESOURCE_GPU_PERCENT) for part in ("capacity", "allocatable")
        )

    def gpus(self):
        """Return the GPUs that the scheduler reads."""
        return gpus_of(self.raw["metadata"].get("annotations", {}))

    async def until(self, condition):
        """Wait for a write that meets the condition."""
        async with asyncio.timeout(60):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


async def no_sleep(_):
    await asyncio.sleep(0)


@pytest.fixture
def publisher():
    return Publisher(sleep=no_sleep)


async def test_inventory_and_capacity_are_written_once(publisher):
    """100 per healthy GPU; an unchanged state is not written again."""
    node = FakeNode(publisher)
    gpus = (gpu(0), gpu(1, healthy=False))
    async with running(publisher, node):
        publisher.set_desired(DesiredNodeState(gpus))
        await node.until(lambda: node.percents() == ("100", "100"))
        assert node.gpus() == gpus
        publisher.set_desired(DesiredNodeState(gpus))
        publisher.upsert(node.raw)
        await asyncio.sleep(0.01)
    assert node.writes == ["annotation", "capacity"]
    assert publisher.trouble == ""


@pytest.mark.parametrize("zeroed", [("capacity", "allocatable"), ("capacity",), ("allocatable",)])
async def test_resource_is_restored_after_a_kubelet_start(publisher, zeroed):
    """A kubelet sets it to zero; it is set again, and the annotation is not written."""
    node = FakeNode(publisher)
    async with running(publisher, node):
        publisher.set_desired(DesiredNodeState((gpu(0), gpu(1))))
        await node.until(lambda: node.percents() == ("200", "200"))
        node.writes.clear()
        node.put({"status": {part: {RESOURCE_GPU_PERCENT: "0"} for part in zeroed}})
        await node.until(lambda: node.percents() == ("200", "200"))
    assert node.writes == ["capacity"]


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{", '[{"index": 0}]', annotation([gpu(7)]), annotation([gpu(0)]) + " "],
)
async def test_foreign_inventory_is_replaced(publisher, text):
    """It may be malformed, foreign, or almost correct."""
    node = FakeNode(publisher, metadata={"name": "n", "annotations": {ANNOTATION_GPUS: text}})
    async with running(publisher, node):
        publisher.set_desired(DesiredNodeState((gpu(0),)))
        await node.until(lambda: "capacity" in node.writes)
    assert node.raw["metadata"]["annotations"][ANNOTATION_GPUS] == annotation([gpu(0)])


@pytest.mark.parametrize("quantity", ["1k", "1000", "1000000m", "1e3"])
async def test_quantity_is_compared_by_its_value(publisher, quantity):
    """The API server writes 1000 as 1k: that is no difference, and causes no endless writes."""
    amounts = {RESOURCE_GPU_PERCENT: quantity}
    node = FakeNode(publisher, status={"capacity": amounts, "allocatable": amounts})
    publisher.set_desired(DesiredNodeState(tuple(gpu(index) for index in range(10))))
    await publisher.reconcile(node)
    assert node.writes == ["annotation"]


async def test_empty_inventory_is_published(publisher):
    """An old inventory does not stay."""
    node = FakeNode(
        publisher,
        metadata={"name": "n", "annotations": {ANNOTATION_GPUS: annotation([gpu(0)])}},
        status={"capacity": {RESOURCE_GPU_PERCENT: "100"}},
    )
    publisher.set_desired(DesiredNodeState(()))
    await publisher.reconcile(node)
    assert (node.gpus(), node.percents()) == ((), ("0", "0"))


async def test_no_write_before_the_first_reading(publisher):
    """An agent that has just started removes nothing."""
    node = FakeNode(publisher)
    await publisher.reconcile(node)
    assert node.writes == []
    assert publisher.trouble


async def test_missing_node(publisher):
    """It may register later, or return."""
    node = FakeNode(publisher)
    publisher.delete(node.raw)
    publisher.set_desired(DesiredNodeState((gpu(0),)))
    await publisher.reconcile(node)
    assert "not in the cluster" in publisher.trouble
    async with running(publisher, node):
        publisher.replace([])
        publisher.upsert(node.raw)
        await node.until(lambda: node.percents() == ("100", "100"))
    assert publisher.trouble == ""


async def test_refused_write_is_retried(publisher, logged):
    """The log names missing rights; after they are granted, the write succeeds by itself."""
    node = FakeNode(publisher)
    node.errors = [
        ApiError(403, "Forbidden", "User x cannot patch"),
        ApiError(403, "Forbidden", "User x cannot patch"),
        ApiUnreachableError("cannot reach the server", sent=False),
    ]
    async with running(publisher, node):
        publisher.set_desired(DesiredNodeState((gpu(0),)))
        await node.until(lambda: node.percents() == ("100", "100"))
    problems = [entry["problem"] for entry in logged]
    assert len(problems) == 2
    assert "RBAC: grant the verb patch on nodes and nodes/status" in problems[0]
    assert publisher.trouble == ""


async def test_conflicting_client_causes_at_most_two_writes_per_second():
    """There is a pause between writes, however often the node changes."""
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        await asyncio.sleep(0)

    publisher = Publisher(sleep=sleep)
    node = FakeNode(publisher)
    async with running(publisher, node):
        publisher.set_desired(DesiredNodeState((gpu(0),)))
        for _ in range(5):
            await node.until(lambda: node.percents() == ("100", "100"))
            node.put({"status": {"capacity": {RESOURCE_GPU_PERCENT: "0"}}})
    assert len(slept) >= 4
    assert all(seconds >= 0.5 for seconds in slept)


def zero(node):
    """Set the resource to zero, like a kubelet that starts."""
    none = {RESOURCE_GPU_PERCENT: "0"}
    node.put({"status": {"capacity": none, "allocatable": none}})


async def test_outdated_answer_is_ignored(publisher):
    """Another client writes later, and the watch reports that before the answer to this write."""
    metadata = {"name": "n", "annotations": {ANNOTATION_GPUS: annotation([gpu(0)])}}
    node = FakeNode(publisher, metadata=metadata)
    node.before_answering.append(lambda: zero(node))
    async with running(publisher, node):
        publisher.set_desired(DesiredNodeState((gpu(0),)))
        await node.until(lambda: node.writes == ["capacity", "capacity"])
    assert node.percents() == ("100", "100")


async def test_answer_counts_before_the_watch_reports_it(publisher):
    """A write is not repeated until the watch reports it."""
    node = FakeNode(Publisher())
    publisher.replace([node.raw | {"status": {}}])
    publisher.set_desired(DesiredNodeState((gpu(0),)))
    for _ in range(3):
        await publisher.reconcile(node)
    assert node.writes == ["annotation", "capacity"]


async def test_node_is_deleted_during_a_write(publisher):
    """The answer shows the node; the watch, its deletion."""
    node = FakeNode(publisher)
    node.before_answering.append(lambda: publisher.delete(node.raw))
    publisher.set_desired(DesiredNodeState((gpu(0),)))
    await publisher.reconcile(node)
    assert node.writes == ["annotation"]
    assert "not in the cluster" in publisher.trouble


async def test_pods_of_an_unhealthy_gpu_do_not_reduce_the_others(publisher):
    """Their requests stay in the capacity until they end, whatever the other GPUs' health."""
    node = FakeNode(publisher)
    first, second = PodRequest("GPU-0", 80), PodRequest("GPU-1", 80)
    one_unhealthy = (gpu(0, healthy=False), gpu(1))
    both_unhealthy = (gpu(0, healthy=False), gpu(1, healthy=False))
    offered = []
    for gpus, requests in [
        ((gpu(0), gpu(1)), (first, second)),
        (one_unhealthy, (first, second)),
        (both_unhealthy, (first, second)),
        (both_unhealthy, (second,)),
        (one_unhealthy, (second,)),
    ]:
        publisher.set_desired(DesiredNodeState(gpus, requests))
        await publisher.reconcile(node)
        assert len(set(node.percents())) == 1
        offered.append(int(node.percents()[0]))
    assert offered == [200, 180, 160, 80, 100]


async def test_capacity_does_not_fall_before_the_pods_are_known(publisher):
    """An unhealthy GPU may have pods; a capacity that a kubelet zeroed is restored meanwhile."""
    amounts = {RESOURCE_GPU_PERCENT: "180"}
    node = FakeNode(publisher, status={"capacity": amounts, "allocatable": amounts})
    gpus = (gpu(0, healthy=False), gpu(1))
    publisher.set_desired(DesiredNodeState(gpus, None))
    await publisher.reconcile(node)
    assert node.percents() == ("180", "180")
    assert node.gpus() == gpus
    zero(node)
    await publisher.reconcile(node)
    assert node.percents() == ("100", "100")


PERCENTS = st.lists(st.integers(1, 100), max_size=4).filter(lambda percents: sum(percents) <= 100)


@given(
    st.lists(st.tuples(st.booleans(), PERCENTS), max_size=8),
    st.lists(st.integers(1, 100), max_size=2),
)
def test_free_capacity_is_the_free_share_of_healthy_gpus(node, on_a_removed_gpu):
    """For any pods on any GPUs."""
    gpus = [gpu(index, healthy=healthy) for index, (healthy, _) in enumerate(node)]
    requests = [
        *(
            PodRequest(f"GPU-{i}", percent)
            for i, (_, percents) in enumerate(node)
            for percent in percents
        ),
        *(PodRequest("GPU-removed", percent) for percent in on_a_removed_gpu),
    ]
    free = sum(100 - sum(percents) for healthy, percents in node if healthy)
    assert capacity(gpus, requests) - sum(request.percent for request in requests) == free


def test_pod_without_a_grant():
    """Another scheduler bound it; its request adds nothing to the capacity."""
    assert capacity([gpu(0)], [PodRequest("", 30)]) == 100


@given(
    st.lists(st.booleans(), max_size=4),
    st.lists(
        st.builds(PodRequest, st.sampled_from(["", "GPU-0", "GPU-1", "GPU-9"]), st.integers(1, 100))
    ),
)
def test_capacity_covers_all_requests(healths, requests):
    """Requests may exceed grants, so a GPU's pods may request more than 100."""
    gpus = [gpu(index, healthy=healthy) for index, healthy in enumerate(healths)]
    total = sum(request.percent for request in requests)
    assert capacity(gpus, requests) >= max(total, 100 * sum(healths))


@given(st.lists(st.booleans(), max_size=20), st.lists(st.booleans(), max_size=20))
async def test_last_desired_state_wins(first, second):
    """From any state, at most two writes reach the desired one."""
    publisher = Publisher(sleep=no_sleep)
    node = FakeNode(publisher)
    for healths in (first, second):
        gpus = tuple(gpu(index, healthy=healthy) for index, healthy in enumerate(healths))
        node.writes.clear()
        publisher.set_desired(DesiredNodeState(gpus))
        await publisher.reconcile(node)
        assert node.gpus() == gpus
        assert len(node.writes) <= 2
        node.writes.clear()
        await publisher.reconcile(node)
        assert node.writes == []
