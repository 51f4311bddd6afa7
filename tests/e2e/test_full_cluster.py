"""The cluster is full: pods wait with reasons in numbers, and are bound when room comes."""

import pytest

from tests.e2e.bed import PODS
from tests.e2e.documents import configuration, profile
from tests.e2e.watching import watching
from tests.testbed.api import wait_until
from tests.testbed.observations import peak_use

DOCUMENTS = [
    profile("large", configuration(60, memory_mib=2_000)),
    profile("medium", configuration(55)),
]
NODES = ["node-000", "node-001"]
REASON = "GPU 0: 40 % free, 55 % asked; 78,896 MiB free, 4,000 asked"
TOLD = REASON.replace("%", "percent")
LARGE = ["large-0", "large-1", "large-2", "large-3"]
RETRY_S = 300
"""Time after which kube-scheduler tries a waiting pod again without an event."""


@pytest.fixture
def full(esg):
    """Two nodes of two GPUs, 60 % of each taken until its pod is deleted."""
    bed = esg(nodes=2, gpus=2, documents=DOCUMENTS)
    for name in LARGE:
        bed.create(name, function="large", annotations={"mock-stop": "3s"})
    bed.wait_bound(*LARGE)
    return bed


def test_waiting_pods_are_told_why_and_are_bound_when_room_comes(full):
    """Condition, Event and explanation have our numbers, and a share goes from pod to pod.

    A deleted pod keeps its share until its containers have ended.
    """
    for name in ("waits-0", "waits-1"):
        full.create(name, function="medium", annotations={"mock-run": "200ms"})

    for name in ("waits-0", "waits-1"):
        assert f" 2 {TOLD}" in full.wait_why(name, "GPU")
        wait_until(lambda name=name: full.event_messages(name, "FailedScheduling"), what="Event")
        told = full.event_messages(name, "FailedScheduling")
        assert [message for message in told if TOLD not in message] == []
        said = full.explain(name)
        assert said["nodes_that_hold_it"] == []
        assert dict.fromkeys(NODES, REASON).items() <= said["nodes_that_refuse"].items()
        assert [each["gpu_percent"] for each in said["plan"]["candidates"]] == [55]
    assert full.wait_agreement().keys() == {f"default/{name}" for name in LARGE}

    with watching(full.plane) as seen:
        full.api.delete(f"{PODS}/large-2")
        for name in ("waits-0", "waits-1"):
            wait_until(
                lambda name=name: full.pod(name)["status"]["phase"] == "Succeeded",
                what=f"{name} ended",
            )

    gone = next(at for at, each in enumerate(seen) if each.name == "large-2" and each.ended)
    terminating = next(each for each in seen if each.name == "large-2" and each.deleting)
    assert not terminating.ended
    assert seen[gone].at_s - terminating.at_s > 2
    bound = [at for at, each in enumerate(seen) if each.name.startswith("waits") and each.node]
    assert min(bound) > gone
    assert all(use.percent <= 60 for use in peak_use(seen).values())
    assert full.wait_agreement().keys() == {f"default/{n}" for n in LARGE if n != "large-2"}
    assert full.metric("esg_gpu_overcommitted") == 0


def test_a_lone_waiting_pod_follows_at_once(esg):
    """The only waiting pod is bound when its predecessor goes, each time.

    In a quiet cluster no later event makes up for a try that came before the extender's watch
    reported the free share: kube-scheduler would retry only after five minutes.
    """
    bed = esg(nodes=1, gpus=1, documents=[profile("whole", configuration(100))])
    bed.create("pod-0", function="whole")
    bed.wait_bound("pod-0")
    for number in range(1, 21):
        bed.create(f"pod-{number}", function="whole")
        bed.wait_why(f"pod-{number}", "0 percent free, 100 percent asked")

        bed.api.delete(f"{PODS}/pod-{number - 1}")

        bed.wait_bound(f"pod-{number}", timeout_s=RETRY_S / 2)
