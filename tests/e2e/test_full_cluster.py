"""A full cluster: pods wait with reasons in numbers, and are bound to the first free share."""

import pytest

from tests.e2e.documents import configuration, profile
from tests.e2e.harness import PODS
from tests.e2e.pod_recorder import recorded_pods
from tests.testbed.api import wait_until
from tests.testbed.observations import peak_use

DOCUMENTS = [
    profile("large", configuration(60, memory_mib=2_000)),
    profile("medium", configuration(55)),
]
NODES = ["node-000", "node-001"]
REASON = "GPU 0: 40 % free, 55 % asked; 78,896 MiB free, 4,000 asked"
MESSAGE = REASON.replace("%", "percent")
LARGE = ["large-0", "large-1", "large-2", "large-3"]
RETRY_S = 300
"""Time after which kube-scheduler tries a waiting pod again without an event."""


@pytest.fixture
def full(esg):
    """Two nodes of two GPUs, with 60 % of every GPU granted until its pod is deleted."""
    harness = esg(nodes=2, gpus=2, documents=DOCUMENTS)
    for name in LARGE:
        harness.create(name, function="large", annotations={"mock-stop": "3s"})
    harness.wait_bound(*LARGE)
    return harness


def test_waiting_pods_have_reasons_and_are_bound_to_a_free_share(full):
    """Condition, Event and explanation have the numbers, and the next pod gets a freed share.

    A deleted pod keeps its share until its containers have ended.
    """
    for name in ("waits-0", "waits-1"):
        full.create(name, function="medium", annotations={"mock-run": "200ms"})

    for name in ("waits-0", "waits-1"):
        assert f" 2 {MESSAGE}" in full.wait_refused(name, "GPU")
        wait_until(lambda name=name: full.event_messages(name, "FailedScheduling"), what="Event")
        messages = full.event_messages(name, "FailedScheduling")
        assert [message for message in messages if MESSAGE not in message] == []
        explanation = full.explain(name)
        assert explanation["feasible_nodes"] == []
        assert dict.fromkeys(NODES, REASON).items() <= explanation["infeasible_nodes"].items()
        assert [candidate["gpu_percent"] for candidate in explanation["plan"]["candidates"]] == [55]
    assert full.wait_agreement().keys() == {f"default/{name}" for name in LARGE}

    with recorded_pods(full.plane) as seen:
        full.api.delete(f"{PODS}/large-2")
        for name in ("waits-0", "waits-1"):
            wait_until(
                lambda name=name: full.pod(name)["status"]["phase"] == "Succeeded",
                what=f"{name} ended",
            )

    end = next(at for at, pod in enumerate(seen) if pod.name == "large-2" and pod.ended)
    terminating = next(pod for pod in seen if pod.name == "large-2" and pod.deleting)
    assert not terminating.ended
    bound = [at for at, pod in enumerate(seen) if pod.name.startswith("waits") and pod.node]
    assert min(bound) > end
    assert all(use.percent <= 60 for use in peak_use(seen).values())
    assert full.wait_agreement().keys() == {f"default/{n}" for n in LARGE if n != "large-2"}
    assert full.metric_count("esg_gpu_overcommitted") == 0


def test_a_single_waiting_pod_follows_without_delay(esg):
    """The only waiting pod is bound after every deletion of its predecessor.

    In a quiet cluster no later event makes up for a try that came before the extender's watch
    reported the free share: kube-scheduler would retry only after five minutes.
    """
    harness = esg(nodes=1, gpus=1, documents=[profile("whole", configuration(100))])
    harness.create("pod-0", function="whole")
    harness.wait_bound("pod-0")
    for number in range(1, 21):
        harness.create(f"pod-{number}", function="whole")
        harness.wait_refused(f"pod-{number}", "0 percent free, 100 percent asked")

        harness.api.delete(f"{PODS}/pod-{number - 1}")

        harness.wait_bound(f"pod-{number}", timeout_s=RETRY_S / 2)
