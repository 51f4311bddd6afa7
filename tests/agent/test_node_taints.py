"""Taints for autoscalers: what they may count on a node, and when a new node is ready."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.agent.node_publisher import DesiredNodeState, Publisher
from scheduler.agent.node_taints import STEADY_S, NodeTaints
from scheduler.agent.pods.node_pods import PodRequest
from scheduler.cluster.errors import ApiError
from scheduler.model.names import TAINT_NO_EMPTY_GPU, TAINT_STARTUP
from tests.agent.fakes import Clock
from tests.agent.test_node_publisher import gpu

FULL = {"key": TAINT_NO_EMPTY_GPU, "effect": "PreferNoSchedule"}
STARTUP = {"key": TAINT_STARTUP, "effect": "NoSchedule"}
FOREIGN = {"key": "example.org/team", "value": "a", "effect": "NoSchedule"}
TWO = (gpu(0), gpu(1))
ON_BOTH = (PodRequest("GPU-0", 60), PodRequest("GPU-1", 60))


@pytest.fixture
def clock():
    return Clock()


def settled(clock, gpus, requests, *, is_autoscaled=True):
    """Create taints that have seen these GPUs and pods long enough."""
    taints = NodeTaints(is_autoscaled=is_autoscaled, clock=clock)
    taints.observe(gpus, requests)
    clock.now_s += STEADY_S
    taints.observe(gpus, requests)
    return taints


@pytest.mark.parametrize(
    ("gpus", "requests", "expected"),
    [
        (TWO, ON_BOTH, [FULL]),
        (TWO, ON_BOTH[:1], []),
        (TWO, (), []),
        ((gpu(0),), (PodRequest("GPU-0", 1),), [FULL]),
        ((gpu(0), gpu(1, healthy=False)), ON_BOTH[:1], [FULL]),
        ((gpu(0), gpu(1, healthy=False)), ON_BOTH[1:], []),
        (TWO, (ON_BOTH[0], PodRequest("", 60)), []),
        ((gpu(0, healthy=False),), ON_BOTH, []),
        ((), (), []),
    ],
    ids=[
        "pods on both", "one is empty", "no pods", "a small pod", "the healthy one has pods",
        "the healthy one is empty", "another scheduler's pod", "no healthy GPU", "no GPU",
    ],
)  # fmt: skip
def test_a_node_without_an_empty_gpu_is_tainted(clock, gpus, requests, expected):
    """Whatever is free on its GPUs: a sum says nothing of one GPU, of memory or clients."""
    assert settled(clock, gpus, requests).desired([], has_gpus=True) == expected


def test_taint_ends_with_the_pods_of_a_gpu(clock):
    """Taints of others stay, in their order."""
    taints = settled(clock, TWO, ON_BOTH)
    assert taints.desired([FULL, FOREIGN], has_gpus=True) == [FULL, FOREIGN]
    taints.observe(TWO, ON_BOTH[:1])
    assert taints.desired([FULL, FOREIGN], has_gpus=True) == [FULL, FOREIGN]
    clock.now_s += STEADY_S
    taints.observe(TWO, ON_BOTH[:1])
    assert taints.desired([FULL, FOREIGN], has_gpus=True) == [FOREIGN]


@given(st.lists(st.tuples(st.floats(0, 3 * STEADY_S), st.booleans()), max_size=30))
def test_the_taint_changes_at_most_once_in_the_steady_time(steps):
    """However fast pods come and go."""
    clock = Clock()
    taints = NodeTaints(is_autoscaled=True, clock=clock)
    changed_s, current = [], []
    for wait_s, is_full in steps:
        clock.now_s += wait_s
        taints.observe(TWO, ON_BOTH if is_full else ())
        desired = taints.desired(current, has_gpus=True)
        if desired != current:
            changed_s.append(clock.now_s)
        current = desired
    assert all(b - a >= STEADY_S for a, b in pairwise(changed_s))


def test_an_agent_that_starts_leaves_the_taint_until_it_knows(clock):
    """Before all pods are known, and before the state is steady."""
    taints = NodeTaints(is_autoscaled=True, clock=clock)
    for requests in (None, ON_BOTH):
        taints.observe(TWO, requests)
        assert taints.desired([FULL], has_gpus=True) == [FULL]
        assert taints.desired([], has_gpus=True) == []


def test_without_an_autoscaler_the_taint_is_removed(clock):
    """It was switched off on a node that has the taint."""
    taints = settled(clock, TWO, ON_BOTH, is_autoscaled=False)
    assert taints.desired([FULL, FOREIGN], has_gpus=True) == [FOREIGN]


def test_startup_taint_ends_when_the_node_offers_gpus(clock):
    """Taints of others stay."""
    taints = NodeTaints(clock=clock)
    assert taints.desired([STARTUP, FOREIGN], has_gpus=False) == [STARTUP, FOREIGN]
    assert taints.desired([STARTUP, FOREIGN], has_gpus=True) == [FOREIGN]


class TaintedNode:
    """A Node object whose taints are written over a version."""

    def __init__(self, publisher, *taints):
        self.raw = {
            "metadata": {"name": "n", "resourceVersion": "1"},
            "spec": {"taints": list(taints)},
            "status": {},
        }
        self.offered_when_written = []
        self._publisher = publisher
        self.report()

    def report(self):
        """Report the node by the watch."""
        self._publisher.replace([json.loads(json.dumps(self.raw))])

    def change(self, part, **content):
        self.raw[part] |= content
        version = int(self.raw["metadata"]["resourceVersion"]) + 1
        self.raw["metadata"]["resourceVersion"] = str(version)
        return json.loads(json.dumps(self.raw))

    async def annotate(self, annotations):
        return self.change("metadata", annotations=annotations)

    async def set_capacity(self, resource, amount):
        amounts = {resource: str(amount)}
        return self.change("status", capacity=amounts, allocatable=amounts)

    async def set_taints(self, taints, version):
        if version != self.raw["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        self.offered_when_written.append(self.raw["status"].get("allocatable"))
        return self.change("spec", taints=list(taints))

    @property
    def taints(self):
        return self.raw["spec"]["taints"]


async def test_startup_taint_is_removed_after_the_capacity_is_written():
    """Otherwise an autoscaler would see a ready node without shares, and add another."""
    publisher = Publisher()
    node = TaintedNode(publisher, STARTUP, FOREIGN)
    publisher.set_desired(DesiredNodeState((gpu(0, healthy=False),)))
    await publisher.reconcile(node)
    assert node.taints == [STARTUP, FOREIGN]
    publisher.set_desired(DesiredNodeState((gpu(0),)))
    await publisher.reconcile(node)
    assert node.taints == [FOREIGN]
    assert node.offered_when_written == [{"esg-scheduler.io/gpu-percent": "100"}]
    assert publisher.writes == {"annotation": 2, "capacity": 2, "taints": 1}


async def test_taints_that_others_write_meanwhile_stay():
    """The write names the version that was read; it is repeated over the newer one."""
    publisher = Publisher()
    node = TaintedNode(publisher, STARTUP)
    publisher.set_desired(DesiredNodeState((gpu(0),)))
    await publisher.reconcile(node)
    node.change("spec", taints=[STARTUP, FOREIGN])
    node.report()
    node.change("spec", taints=[STARTUP, FOREIGN, FOREIGN])
    await publisher.reconcile(node)
    assert node.taints == [STARTUP, FOREIGN, FOREIGN]
    assert publisher.trouble == ""
    node.report()
    await publisher.reconcile(node)
    assert node.taints == [FOREIGN, FOREIGN]


async def test_an_agent_that_leaves_removes_its_taint(clock):
    """A node that leaves is as before."""
    publisher = Publisher(NodeTaints(is_autoscaled=True, clock=clock))
    node = TaintedNode(publisher, FOREIGN)
    for _ in range(2):
        publisher.set_desired(DesiredNodeState(TWO, ON_BOTH))
        await publisher.reconcile(node)
        clock.now_s += STEADY_S
    assert node.taints == [FOREIGN, FULL]
    await publisher.withdraw(node)
    assert node.taints == [FOREIGN]
