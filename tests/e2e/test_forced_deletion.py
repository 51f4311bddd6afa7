"""Deletions by force on a real API server: the object is gone, and the containers may run."""

import time

from tests.e2e.documents import configuration, profile
from tests.e2e.harness import PODS
from tests.testbed.api import wait_until

DOCUMENTS = [profile("large", configuration(60)), profile("part", configuration(40))]
GRACE_S = 15  # in which a busy control plane refuses the second pod
KUBELET_S = 5  # until the kubelet has seen the deletion


def test_a_share_is_not_given_away_while_containers_may_run(esg):
    """A second pod waits for the grace period of the first one, and then it is bound by itself."""
    harness = esg(nodes=1, gpus=1, documents=DOCUMENTS)
    harness.create("first", function="large", grace_s=GRACE_S)
    harness.wait_bound("first")
    wait_until(lambda: harness.pod("first")["status"]["phase"] == "Running", what="first runs")
    deleted_s = time.monotonic()
    harness.api.delete(f"{PODS}/first", grace_s=0)
    assert not harness.api.exists(f"{PODS}/first")
    harness.create("second", function="large")
    harness.wait_refused("second", "grace period; retrying")
    assert harness.snapshot_reservations().keys() == {"default/first"}
    harness.create("other", function="part")
    harness.wait_bound("other")

    harness.wait_bound("second")

    assert time.monotonic() - deleted_s >= GRACE_S + KUBELET_S
    assert harness.wait_agreement().keys() == {"default/second", "default/other"}


def test_a_share_is_free_when_the_kubelet_has_removed_the_pod(esg):
    """The last state of a pod that its kubelet removes has ended: nothing waits."""
    harness = esg(nodes=1, gpus=1, documents=DOCUMENTS)
    harness.create("first", function="large", grace_s=600)
    harness.wait_bound("first")
    harness.api.delete(f"{PODS}/first")
    wait_until(lambda: not harness.api.exists(f"{PODS}/first"), what="its kubelet has removed it")
    harness.create("second", function="large")
    harness.wait_bound("second")
    assert harness.wait_agreement().keys() == {"default/second"}


def test_an_extender_that_starts_waits_for_containers_that_it_cannot_know(esg):
    """A pod is deleted by force while no extender runs."""
    harness = esg(
        nodes=1,
        gpus=1,
        documents=DOCUMENTS,
        environment={"ESG_DELETION_GRACE_MAX_S": "25"},  # longer than the Lease of the dead one
        max_backoff_s=1,
    )
    harness.create("first", function="large")
    harness.wait_bound("first")
    harness.extender.kill()
    harness.api.delete(f"{PODS}/first", grace_s=0)
    started_s = time.monotonic()
    harness.extender.start()
    harness.create("second", function="large")
    harness.wait_refused("second", "may run for")
    harness.wait_bound("second")
    assert time.monotonic() - started_s >= 25
