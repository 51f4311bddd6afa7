"""Hundreds of pods at the same time: binds race with the filter calls of later pods."""

import asyncio
from concurrent.futures import ThreadPoolExecutor, wait

from tests.e2e.documents import configuration, profile, workflow
from tests.testbed.api import wait_until
from tests.testbed.driver import instances
from tests.testbed.observations import peak_use

PODS = 500
GPUS = 32
SINGLE = workflow("single", "quick")
DOCUMENTS = [profile("quick", configuration(40, memory_mib=10_000)), SINGLE]


def test_five_hundred_pods_at_once(esg):
    """A GPU fits two at a time: the others wait, none is lost, and no share is granted twice."""
    harness = esg(nodes=4, gpus=8, documents=DOCUMENTS, max_backoff_s=1)
    driver = harness.driver(annotations={"mock-run": "500ms"})
    overcommitted = []
    with ThreadPoolExecutor(1) as executor:
        with harness.plane.named("kwok").paused():  # until all GPUs are full, no pod ends
            running = executor.submit(
                lambda: asyncio.run(driver.run(instances([SINGLE], PODS), deadline_s=600))
            )
            wait_until(
                lambda: len(harness.cluster_reservations()) == 2 * GPUS,
                what="all GPUs are full",
                pause_s=0.5,
            )
        while not running.done():
            overcommitted.append(harness.metric_count("esg_gpu_overcommitted"))
            wait([running], timeout=0.5)
        run = running.result()

    assert len(run.finished_s) == PODS
    assert len({seen.uid for seen in run.observations}) == PODS
    peaks = peak_use(run.observations)
    assert len(peaks) == GPUS
    # The cluster was full, so the extender refused pods, and no GPU was overcommitted.
    assert {(use.percent, use.memory_mib, use.clients) for use in peaks.values()} == {
        (80, 20_000, 2)
    }
    assert set(overcommitted) == {0}
    assert harness.wait_agreement() == {}
    assert harness.metric_count("esg_workflow_requests_total") == PODS
