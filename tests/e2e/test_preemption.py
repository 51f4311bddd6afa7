"""Preemption: a pod of higher priority gets the share of pods with lower priority."""

import pytest

from tests.e2e.documents import configuration, profile
from tests.e2e.harness import PODS
from tests.testbed.api import wait_until

GUARDED = {"app": "guarded"}
DOCUMENTS = [profile("whole", configuration(100)), profile("half", configuration(50))]


def priority_class(name, value):
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def disruption_budget():
    """Create a budget that allows no disruption of the pods with the label ``GUARDED``."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": GUARDED}},
    }


def requests(percent):
    """Create the webhook's requests: kube-scheduler preempts only for resources that it counts."""
    return {"cpu": "1", "esg-scheduler.io/gpu-percent": str(percent)}


@pytest.fixture
def ranked(cluster, esg):
    """A function that starts the scheduler with one node and PriorityClasses by value.

    They and the budgets exist before the extender starts: it is ready with all that its first lists
    have, and the API server admits pods of the classes once its own watch has reported them.
    """

    def start(*, gpus, budgets=()):
        for budget in budgets:
            cluster.api.create(budget)
        for value in (10, 20, 30, 40, 1000):
            cluster.api.create(priority_class(f"p{value}", value))
        return esg(nodes=1, gpus=gpus, documents=DOCUMENTS, managed_resources=True)

    return start


def test_a_pod_of_high_priority_preempts_for_a_share(ranked):
    """The low pod is preempted; the high pod gets the share after the end of its containers."""
    harness = ranked(gpus=1)
    harness.create("low", function="whole", resources=requests(100), priority_class="p10")
    harness.wait_bound("low")

    harness.create("equal", function="whole", resources=requests(100), priority_class="p10")
    harness.wait_refused("equal", "Insufficient esg-scheduler.io/gpu-percent")
    assert harness.node_of("low")

    harness.create("high", function="whole", resources=requests(100), priority_class="p1000")
    harness.wait_bound("high")

    assert harness.cluster_reservations().keys() == {"default/high"}
    wait_until(lambda: not harness.api.exists(f"{PODS}/low"), what="the ended pod is deleted")
    wait_until(lambda: harness.event_messages("low", "Preempted"), what="Event")
    assert "Preempted by" in harness.event_messages("low", "Preempted")[0]
    assert harness.wait_agreement().keys() == {"default/high"}
    assert not harness.node_of("equal")


@pytest.mark.parametrize(
    ("guarded", "remaining"),
    [
        # c has the lower priority of the others on the GPUs: b is spared.
        (None, {"a", "b"}),
        # The eviction of c would violate its budget: d is spared.
        ("c", {"c", "d"}),
    ],
    ids=["no pod in a budget", "a pod in a budget"],
)
def test_victims_are_on_one_gpu(ranked, guarded, remaining):
    """kube-scheduler's own victims are on two GPUs and free none: the extender exchanges one.

    kube-scheduler selects b and d, the two of lowest priority: it counts 100 % of the node's 200 %
    as free without them. They are on two GPUs, and the high pod needs a whole one.
    """
    harness = ranked(gpus=2, budgets=[disruption_budget()])
    for name, rank in (("a", 40), ("b", 20), ("c", 30), ("d", 10)):
        harness.create(
            name,
            function="half",
            labels=GUARDED if name == guarded else None,
            resources=requests(50),
            priority_class=f"p{rank}",
        )
        harness.wait_bound(name)
    gpus = [{pod["name"] for pod in gpu["pods"]} for gpu in harness.gpus("node-000")]
    assert gpus == [{"a", "b"}, {"c", "d"}]

    harness.create("high", function="whole", resources=requests(100), priority_class="p1000")
    harness.wait_bound("high")

    for victim in {"a", "b", "c", "d"} - remaining:
        path = f"{PODS}/{victim}"
        wait_until(lambda path=path: not harness.api.exists(path), what=f"{victim} is deleted")
    reservations = harness.wait_agreement()
    assert reservations["default/high"][1] == 100
    assert reservations.keys() == {f"default/{name}" for name in ("high", *remaining)}
    assert harness.metric_count("esg_gpu_overcommitted") == 0
