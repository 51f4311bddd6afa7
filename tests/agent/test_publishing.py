"""The node shows what it should, whoever else writes there."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.agent.node_publisher import DesiredNodeState, Publisher, annotation, capacity
from scheduler.agent.pods import PodRequest
from scheduler.cluster.errors import ApiError, ApiUnreachableError, ClusterError
from scheduler.model.names import ANNOTATION_GPUS, RESOURCE_GPU_PERCENT
from scheduler.model.node import Gpu, gpus_of

Raw = dict[str, Any]


def gpu(index: int, *, healthy: bool = True) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{index}",
        model="NVIDIA A100-SXM4-80GB",
        memory_mib=81_920,
        multiprocessors=108,
        healthy=healthy,
    )


class FakeNode:
    """A node as an API server keeps it, and as a watch would tell of it."""

    def __init__(self, publisher: Publisher, **content: Any) -> None:
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
        # As the API server spells quantities.
        text = f"{amount // 1000}k" if amount and amount % 1000 == 0 else str(amount)
        has = {resource: text}
        return self._write("capacity", {"status": {"capacity": has, "allocatable": has}})

    def _write(self, what: str, change: Raw) -> Raw:
        if self.errors:
            raise self.errors.pop(0)
        self.writes.append(what)
        self.put(change)
        answer = json.loads(json.dumps(self.raw))
        while self.before_answering:
            self.before_answering.pop(0)()
        return answer

    def put(self, change: Raw) -> None:
        """Somebody writes; the watch tells of it."""
        for part, content in change.items():
            for key, value in content.items():
                self.raw[part].setdefault(key, {}).update(value)
        self._publisher.upsert(json.loads(json.dumps(self.raw)))
        self.changed.set()

    def percents(self) -> tuple[str | None, str | None]:
        """Capacity and what is allocatable."""
        status = self.raw["status"]
        return tuple(
            status.get(part, {}).get(RESOURCE_GPU_PERCENT) for part in ("capacity", "allocatable")
        )

    def gpus(self) -> tuple[Gpu, ...]:
        """As the scheduler reads them."""
        return gpus_of(self.raw["metadata"].get("annotations", {}))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a write that makes it so."""
        async with asyncio.timeout(60):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def running(publisher: Publisher, node: FakeNode) -> AsyncIterator[None]:
    task = asyncio.create_task(publisher.run(node))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def no_sleep(_: float) -> None:
    await asyncio.sleep(0)


@pytest.fixture
def publisher() -> Publisher:
    return Publisher(sleep=no_sleep)


async def test_inventory_and_capacity_are_written_once(publisher: Publisher):
    """100 a healthy GPU; what is there already is not written again."""
    node = FakeNode(publisher)
    wanted = (gpu(0), gpu(1, healthy=False))
    async with running(publisher, node):
        publisher.want(DesiredNodeState(wanted))
        await node.until(lambda: node.percents() == ("100", "100"))
        assert node.gpus() == wanted
        publisher.want(DesiredNodeState(wanted))
        publisher.upsert(node.raw)
        await asyncio.sleep(0.01)
    assert node.writes == ["annotation", "capacity"]
    assert publisher.trouble == ""


@pytest.mark.parametrize("zeroed", [("capacity", "allocatable"), ("capacity",), ("allocatable",)])
async def test_a_kubelet_that_starts_does_not_win(publisher: Publisher, zeroed):
    """It zeroes the resource; it is set again, and the annotation left alone."""
    node = FakeNode(publisher)
    async with running(publisher, node):
        publisher.want(DesiredNodeState((gpu(0), gpu(1))))
        await node.until(lambda: node.percents() == ("200", "200"))
        node.writes.clear()
        node.put({"status": {part: {RESOURCE_GPU_PERCENT: "0"} for part in zeroed}})
        await node.until(lambda: node.percents() == ("200", "200"))
    assert node.writes == ["capacity"]


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{", '[{"index": 0}]', annotation([gpu(7)]), annotation([gpu(0)]) + " "],
)
async def test_what_others_write_is_replaced(publisher: Publisher, text):
    """Malformed, foreign, or nearly right."""
    node = FakeNode(publisher, metadata={"name": "n", "annotations": {ANNOTATION_GPUS: text}})
    async with running(publisher, node):
        publisher.want(DesiredNodeState((gpu(0),)))
        await node.until(lambda: "capacity" in node.writes)
    assert node.raw["metadata"]["annotations"][ANNOTATION_GPUS] == annotation([gpu(0)])


@pytest.mark.parametrize("quantity", ["1k", "1000", "1000000m", "1e3"])
async def test_a_quantity_is_compared_by_its_value(publisher: Publisher, quantity):
    """The API server spells 1000 as 1k: that is no difference, and is not written for ever."""
    has = {RESOURCE_GPU_PERCENT: quantity}
    node = FakeNode(publisher, status={"capacity": has, "allocatable": has})
    publisher.want(DesiredNodeState(tuple(gpu(index) for index in range(10))))
    await publisher.make_so(node)
    assert node.writes == ["annotation"]


async def test_that_there_is_no_gpu_is_shown_too(publisher: Publisher):
    """An inventory of earlier does not stay."""
    node = FakeNode(
        publisher,
        metadata={"name": "n", "annotations": {ANNOTATION_GPUS: annotation([gpu(0)])}},
        status={"capacity": {RESOURCE_GPU_PERCENT: "100"}},
    )
    publisher.want(DesiredNodeState(()))
    await publisher.make_so(node)
    assert (node.gpus(), node.percents()) == ((), ("0", "0"))


async def test_nothing_is_written_before_anything_is_known(publisher: Publisher):
    """An agent that has just started takes nothing away."""
    node = FakeNode(publisher)
    await publisher.make_so(node)
    assert node.writes == []
    assert publisher.trouble


async def test_a_node_that_is_not_there_is_waited_for(publisher: Publisher):
    """It registers later, or comes back."""
    node = FakeNode(publisher)
    publisher.delete(node.raw)
    publisher.want(DesiredNodeState((gpu(0),)))
    await publisher.make_so(node)
    assert "not in the cluster" in publisher.trouble
    async with running(publisher, node):
        publisher.replace([])
        publisher.upsert(node.raw)
        await node.until(lambda: node.percents() == ("100", "100"))
    assert publisher.trouble == ""


async def test_refusals_are_told_and_tried_again(publisher: Publisher, logged):
    """Missing rights are named; when they are there, the write is made without a new reason."""
    node = FakeNode(publisher)
    node.errors = [
        ApiError(403, "Forbidden", "User x cannot patch"),
        ApiError(403, "Forbidden", "User x cannot patch"),
        ApiUnreachableError("cannot be reached", sent=False),
    ]
    async with running(publisher, node):
        publisher.want(DesiredNodeState((gpu(0),)))
        await node.until(lambda: node.percents() == ("100", "100"))
    told = [entry["problem"] for entry in logged]
    assert len(told) == 2
    assert "RBAC: grant the verb patch on nodes and nodes/status" in told[0]
    assert publisher.trouble == ""


async def test_somebody_who_writes_against_us_costs_two_writes_a_second():
    """Between two rounds there is a pause, however often the node changes."""
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    publisher = Publisher(sleep=sleep)
    node = FakeNode(publisher)
    async with running(publisher, node):
        publisher.want(DesiredNodeState((gpu(0),)))
        for _ in range(5):
            await node.until(lambda: node.percents() == ("100", "100"))
            node.put({"status": {"capacity": {RESOURCE_GPU_PERCENT: "0"}}})
    assert len(slept) >= 4
    assert all(seconds >= 0.5 for seconds in slept)


def zero(node: FakeNode) -> None:
    """As a kubelet does that starts."""
    none = {RESOURCE_GPU_PERCENT: "0"}
    node.put({"status": {"capacity": none, "allocatable": none}})


async def test_an_answer_that_is_older_than_what_was_heard_is_not_believed(publisher: Publisher):
    """Somebody writes after us, and the watch tells of it before our own write is answered."""
    shown = {"name": "n", "annotations": {ANNOTATION_GPUS: annotation([gpu(0)])}}
    node = FakeNode(publisher, metadata=shown)
    node.before_answering.append(lambda: zero(node))
    async with running(publisher, node):
        publisher.want(DesiredNodeState((gpu(0),)))
        await node.until(lambda: node.writes == ["capacity", "capacity"])
    assert node.percents() == ("100", "100")


async def test_our_own_answer_counts_where_the_watch_is_behind(publisher: Publisher):
    """What was written is not written again until it is heard of."""
    node = FakeNode(Publisher())
    publisher.replace([node.raw | {"status": {}}])
    publisher.want(DesiredNodeState((gpu(0),)))
    for _ in range(3):
        await publisher.make_so(node)
    assert node.writes == ["annotation", "capacity"]


async def test_a_node_that_goes_under_a_write_is_not_written_on(publisher: Publisher):
    """The answer says that it was there; the watch, that it is not any more."""
    node = FakeNode(publisher)
    node.before_answering.append(lambda: publisher.delete(node.raw))
    publisher.want(DesiredNodeState((gpu(0),)))
    await publisher.make_so(node)
    assert node.writes == ["annotation"]
    assert "not in the cluster" in publisher.trouble


async def test_the_pods_of_an_ill_gpu_take_nothing_from_the_others(publisher: Publisher):
    """What they request stays in the capacity until they end, be another GPU well or none."""
    node = FakeNode(publisher)
    sick, well = PodRequest("GPU-0", 80), PodRequest("GPU-1", 80)
    one_ill = (gpu(0, healthy=False), gpu(1))
    both_ill = (gpu(0, healthy=False), gpu(1, healthy=False))
    offered = []
    for gpus, requests in [
        ((gpu(0), gpu(1)), (sick, well)),
        (one_ill, (sick, well)),
        (both_ill, (sick, well)),
        (both_ill, (well,)),
        (one_ill, (well,)),
    ]:
        publisher.want(DesiredNodeState(gpus, requests))
        await publisher.make_so(node)
        assert len(set(node.percents())) == 1
        offered.append(int(node.percents()[0]))
    assert offered == [200, 180, 160, 80, 100]


async def test_nothing_is_taken_away_before_the_pods_are_known(publisher: Publisher):
    """An ill GPU may have some; what a kubelet has zeroed is given back meanwhile."""
    has = {RESOURCE_GPU_PERCENT: "180"}
    node = FakeNode(publisher, status={"capacity": has, "allocatable": has})
    gpus = (gpu(0, healthy=False), gpu(1))
    publisher.want(DesiredNodeState(gpus, None))
    await publisher.make_so(node)
    assert node.percents() == ("180", "180")
    assert node.gpus() == gpus
    zero(node)
    await publisher.make_so(node)
    assert node.percents() == ("100", "100")


PERCENTS = st.lists(st.integers(1, 100), max_size=4).filter(lambda each: sum(each) <= 100)


@given(
    st.lists(st.tuples(st.booleans(), PERCENTS), max_size=8),
    st.lists(st.integers(1, 100), max_size=2),
)
def test_exactly_what_is_free_on_healthy_gpus_is_free_in_the_capacity(node, on_a_gpu_that_is_gone):
    """Whatever runs where."""
    gpus = [gpu(index, healthy=healthy) for index, (healthy, _) in enumerate(node)]
    requests = [
        *(
            PodRequest(f"GPU-{i}", each)
            for i, (_, percents) in enumerate(node)
            for each in percents
        ),
        *(PodRequest("GPU-gone", each) for each in on_a_gpu_that_is_gone),
    ]
    free = sum(100 - sum(percents) for healthy, percents in node if healthy)
    assert capacity(gpus, requests) - sum(each.percent for each in requests) == free


def test_a_pod_that_was_granted_nothing_uses_what_it_requests():
    """It came past this scheduler, and adds nothing to what others can have."""
    assert capacity([gpu(0)], [PodRequest("", 30)]) == 100


@given(
    st.lists(st.booleans(), max_size=4),
    st.lists(
        st.builds(PodRequest, st.sampled_from(["", "GPU-0", "GPU-1", "GPU-9"]), st.integers(1, 100))
    ),
)
def test_nothing_that_runs_is_above_the_capacity(healths, requests):
    """Also where pods request more than they were granted, so that more of them are on a GPU."""
    gpus = [gpu(index, healthy=healthy) for index, healthy in enumerate(healths)]
    asked = sum(each.percent for each in requests)
    assert capacity(gpus, requests) >= max(asked, 100 * sum(healths))


@given(st.lists(st.booleans(), max_size=20), st.lists(st.booleans(), max_size=20))
async def test_the_last_wish_wins(first, second):
    """Whatever was shown before, two writes at most make it so."""
    publisher = Publisher(sleep=no_sleep)
    node = FakeNode(publisher)
    for healths in (first, second):
        wanted = tuple(gpu(index, healthy=healthy) for index, healthy in enumerate(healths))
        node.writes.clear()
        publisher.want(DesiredNodeState(wanted))
        await publisher.make_so(node)
        assert node.gpus() == wanted
        assert len(node.writes) <= 2
        node.writes.clear()
        await publisher.make_so(node)
        assert node.writes == []
