"""Two replicas: one leads, and when it is gone the other does, knowing all that was granted."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.node.functions import PERCENT, WORKFLOW, Deploy
from tests.node.real_cluster import NODE
from tests.node.release import Release
from tests.testbed.api import wait_until
from tests.testbed.driver import Driver, Run, instances
from tests.testbed.nodes import create_nodes, gpu_nodes
from tests.testbed.observations import peak_use

pytestmark = pytest.mark.e2e

REQUESTS = 60
GPUS = 4
EVERY_S = 0.5
TAKEN_OVER_WITHIN_S = 300
GIVEN_UP_WITHIN_S = 300
EXTENDER_PORT = 8888
DEADLINE_S = 600


@contextmanager
def mocked_nodes(release: Release) -> Iterator[None]:
    """Nodes with room for more pods than a small machine runs; the real one takes none."""
    nodes = gpu_nodes(2, GPUS // 2)
    create_nodes(release.api, nodes)
    release.api.patch(NODE, {"spec": {"unschedulable": True}})
    try:
        yield
    finally:
        for node in nodes:
            release.api.delete(release.api.path(node))
        release.api.patch(NODE, {"spec": {"unschedulable": None}})


def test_the_other_takes_over_from_a_killed_leader_and_nothing_is_over_committed(
    release: Release,
) -> None:
    """Under a stream of pods, with the kubelet held so that the leader is not started again.

    Each GPU holds two of these pods. Pods come faster than they end, so the GPUs are full when the
    leader goes; who follows must know what it granted.
    """
    release.documents()
    release.until_scheduling()
    plane, machine = release.cluster.plane, release.cluster.node.machine
    seen = Run()
    driver = Driver(url=plane.url, tls=plane.tls(), annotations={"mock-run": "3s"}, run=seen)
    stream = instances([WORKFLOW], REQUESTS, interval_s=EVERY_S)
    with mocked_nodes(release), ThreadPoolExecutor(1) as threads:
        running = threads.submit(lambda: asyncio.run(driver.run(stream, deadline_s=DEADLINE_S)))
        wait_until(lambda: seen.finished_s, what="the stream flows", timeout_s=60)
        leader = release.leading_pod()
        with machine.held(release.cluster.node.kubelet):
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


def test_a_leader_whose_extender_stays_ill_gives_the_lease_up(
    release: Release, deploy: Deploy
) -> None:
    """Its port is taken, so each start of it fails; functions are placed by the other replica."""
    release.until_scheduling()
    leader = release.leading_pod()
    with release.cluster.port_taken(leader, EXTENDER_PORT):
        release.cluster.kill(leader, "extender")
        wait_until(
            lambda: release.leader() not in {"", leader["metadata"]["name"]},
            what="the other replica leads",
            timeout_s=GIVEN_UP_WITHIN_S,
        )
        deploy("placed-by-the-other").running()
    release.until_scheduling()
