"""Two replicas: after the leader's end the other one leads and knows all grants."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from anyio.from_thread import start_blocking_portal

from tests.node.functions import PERCENT, PODS, WORKFLOW, Deploy
from tests.node.real_cluster import NODE
from tests.node.release import Release
from tests.testbed.api import wait_until
from tests.testbed.driver import Driver, Run, instances
from tests.testbed.nodes import create_nodes
from tests.testbed.observations import peak_use
from workbench.cluster.mocked_nodes import gpu_nodes

pytestmark = pytest.mark.e2e

REQUESTS = 60
GPUS = 4
EVERY_S = 0.5
TAKEN_OVER_WITHIN_S = 300
GIVEN_UP_WITHIN_S = 300
EXTENDER_PORT = 8888
DEADLINE_S = 300


@contextmanager
def mocked_nodes(release: Release) -> Iterator[None]:
    """Create nodes for more pods than a small machine runs; the real node is unschedulable.

    Their pods are deleted first: the real node, which cannot run them, would be full of them.
    """
    nodes = gpu_nodes(2, GPUS // 2)
    create_nodes(release.api, nodes)
    release.api.patch(NODE, {"spec": {"unschedulable": True}})
    try:
        yield
    finally:
        release.api.delete(PODS, grace_s=0)
        for node in nodes:
            release.api.delete(release.api.path(node))
        release.api.patch(NODE, {"spec": {"unschedulable": None}})


def test_the_other_replica_leads_after_a_kill_and_no_gpu_is_overcommitted(
    release: Release,
) -> None:
    """A stream of pods runs, and the paused kubelet does not restart the leader at once.

    It is paused for the takeover alone: nobody would restart the other replica, and after five
    minutes its pods would be evicted. A GPU fits two of these pods. Pods arrive faster than they
    end, so the GPUs are full when the leader ends; the next leader must know its grants.
    """
    release.documents()
    release.until_scheduling()
    plane = release.cluster.plane
    seen = Run()
    driver = Driver(url=plane.url, tls=plane.tls(), annotations={"mock-run": "3s"}, run=seen)
    stream = instances([WORKFLOW], REQUESTS, interval_s=EVERY_S)
    with mocked_nodes(release), start_blocking_portal() as portal:
        running = portal.start_task_soon(
            functools.partial(driver.run, stream, deadline_s=DEADLINE_S)
        )
        wait_until(lambda: seen.finished_s, what="the stream flows")
        leader = release.leading_pod()
        with release.cluster.node.paused_kubelet():
            for container in ("kube-scheduler", "extender"):
                release.cluster.kill(leader, container)
            wait_until(
                lambda: release.leader() not in {"", leader["metadata"]["name"]},
                what="the other replica leads",
                timeout_s=TAKEN_OVER_WITHIN_S,
            )
        run = running.result()
    assert len(run.finished_s) == REQUESTS
    peaks = peak_use(run.observations)
    assert len(peaks) == GPUS
    assert {peak.percent for peak in peaks.values()} == {2 * PERCENT}
    release.until_scheduling()


def test_a_leader_with_an_unhealthy_extender_releases_its_lease(
    release: Release, deploy: Deploy
) -> None:
    """Its port is in use, so every start of it fails; the other replica places functions."""
    release.until_scheduling()
    leader = release.leading_pod()
    with release.cluster.blocked_port(leader, EXTENDER_PORT):
        release.cluster.kill(leader, "extender")
        wait_until(
            lambda: release.leader() not in {"", leader["metadata"]["name"]},
            what="the other replica leads",
            timeout_s=GIVEN_UP_WITHIN_S,
        )
        deploy("placed-by-the-other").running()
    release.until_scheduling()
