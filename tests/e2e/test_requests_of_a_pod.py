"""Requests of the extender for one pod: what a pod adds to the load of the API server."""

from tests.e2e.conftest import USER
from tests.e2e.documents import configuration, profile, workflow
from tests.testbed import audit
from tests.testbed.api import wait_until

DOCUMENTS = [profile("quick", configuration(40, memory_mib=10_000)), workflow("single", "quick")]
PODS = 10


def test_a_pod_costs_one_request(esg, cluster):
    """A pod's Binding carries its grant, and nothing is read before it or written after it.

    A pod that waits when a process becomes the owner costs one more request, once (ADR 34).
    """
    harness = esg(documents=DOCUMENTS)
    harness.create("first", workflow="single", stage="quick")
    harness.wait_bound("first")
    earlier = len(cluster.audit_log.read_text(encoding="utf-8").splitlines())
    names = [f"pod-{number}" for number in range(PODS)]
    with cluster.named("kube-scheduler").paused():  # it may know a pod first, which is then read
        for name in names:
            harness.create(name, workflow="single", stage="quick")
        wait_until(
            lambda: len(harness.get("/v1/snapshot").json()["pending"]) == PODS,
            what="the extender has all pods",
        )
    harness.wait_bound(*names)
    counts = audit.request_counts(cluster.audit_log, USER, after_lines=earlier)
    of_pods = {str(right): count for right, count in counts.items() if "pods" in right.resource}
    assert of_pods == {"create pods/binding": PODS}
