"""Preemption: a more important pod takes the share of less important ones."""

import pytest

from tests.e2e.bed import PODS
from tests.e2e.documents import configuration, profile
from tests.testbed.api import wait_until

DOCUMENTS = [profile("whole", configuration(100)), profile("half", configuration(50))]


def priority_class(name, value):
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def asks(percent):
    """What the webhook would write: kube-scheduler preempts only for what it counts itself."""
    return {"cpu": "1", "esg-scheduler.io/gpu-percent": str(percent)}


@pytest.fixture
def ranked(esg):
    """A function that starts the scheduler over one node, with PriorityClasses by value."""

    def start(*, gpus):
        bed = esg(nodes=1, gpus=gpus, documents=DOCUMENTS, managed_resources=True)
        for value in (10, 20, 30, 40, 1000):
            bed.api.create(priority_class(f"p{value}", value))
        return bed

    return start


def test_an_important_pod_evicts_for_a_share(ranked):
    """The low one is evicted, its containers end, and only then the high one has the share."""
    bed = ranked(gpus=1)
    bed.create("low", function="whole", resources=asks(100), priority_class="p10")
    bed.wait_bound("low")

    bed.create("equal", function="whole", resources=asks(100), priority_class="p10")
    bed.wait_why("equal", "Insufficient esg-scheduler.io/gpu-percent")
    assert bed.node_of("low")

    bed.create("high", function="whole", resources=asks(100), priority_class="p1000")
    bed.wait_bound("high")

    assert not bed.api.exists(f"{PODS}/low")
    assert any("Preempted by" in message for message in bed.event_messages("low", "Preempted"))
    assert bed.wait_agreement().keys() == {"default/high"}
    assert not bed.node_of("equal")


def test_victims_lie_on_one_gpu(ranked):
    """kube-scheduler's own victims, one on each GPU, make no room: the extender completes them.

    It counts 100 % of the node's 200 % free without the two least important pods. They lie on two
    GPUs, and the high pod wants all of one.
    """
    bed = ranked(gpus=2)
    for name, rank in (("a", 40), ("b", 20), ("c", 30), ("d", 10)):
        bed.create(name, function="half", resources=asks(50), priority_class=f"p{rank}")
        bed.wait_bound(name)
    gpus = [{pod["name"] for pod in gpu["pods"]} for gpu in bed.gpus("node-000")]
    assert gpus == [{"a", "b"}, {"c", "d"}]

    bed.create("high", function="whole", resources=asks(100), priority_class="p1000")
    bed.wait_bound("high")

    wait_until(lambda: not bed.api.exists(f"{PODS}/d"), what="victims are gone")
    left = bed.wait_agreement()
    assert left["default/high"][1] == 100
    # b and d are kube-scheduler's own choice; c is the less important of what else is on a GPU.
    assert left.keys() == {"default/high", "default/a"}
    assert bed.metric("esg_gpu_overcommitted") == 0
