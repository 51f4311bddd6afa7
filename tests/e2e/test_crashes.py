"""Kills of the extender, an outage of the API server: no pod lost, no share granted twice."""

import asyncio
import contextlib
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.e2e.documents import sample_workflows
from tests.testbed.api import wait_until
from tests.testbed.driver import Run, instances
from tests.testbed.extender import wait_extender
from tests.testbed.observations import peak_use

GPU_MEMORY_MIB = 81_920 - 1_024
KILLS = 10
OUTAGE_S = 10.0
STAY = [f"stays-{number}" for number in range(6)]


@pytest.fixture
def busy(esg):
    """A small cluster with some pods that stay: grants that a new extender must recover."""
    harness = esg(nodes=3, gpus=2, max_backoff_s=1)
    for name in STAY:
        harness.create(name, function="deblur")
    harness.wait_bound(*STAY)
    return harness


@contextlib.contextmanager
def driven(harness, count, *, interval_s):
    """Run instances of the four workflows in a thread; yield their record and its future."""
    run = Run()
    driver = harness.driver(run=run)
    planned = instances(sample_workflows(), count, interval_s=interval_s)
    with ThreadPoolExecutor(1) as executor:
        done: Future[Run] = executor.submit(
            lambda: asyncio.run(driver.run(planned, deadline_s=600))
        )
        yield run, done


def bound(run):
    return len({seen.uid for seen in run.observations if seen.node})


def wait_more_bound(run, count):
    target = bound(run) + count
    wait_until(lambda: bound(run) >= target, what=f"{target} pods bound", timeout_s=60)


def check(harness, run, count):
    """Check that all finished, ledger and cluster agree, and no GPU was ever overcommitted."""
    assert len(run.finished_s) == count
    for uuid, use in peak_use(run.observations).items():
        assert use.percent <= 100, uuid
        assert use.memory_mib <= GPU_MEMORY_MIB, uuid
    assert harness.wait_agreement().keys() == {f"default/{name}" for name in STAY}
    assert harness.metric_count("esg_gpu_overcommitted") == 0


def test_the_extender_is_killed_ten_times(busy):
    """Every new extender reads the cluster before it answers, and the workflows continue."""
    count = 60
    with driven(busy, count, interval_s=0.5) as (run, done):
        for _ in range(KILLS):
            wait_more_bound(run, 3)
            assert not done.done(), "the load ended before the kills"
            busy.extender.kill()
            busy.extender.start()
            wait_extender(busy.extender, port=busy.port)
        done.result()

    check(busy, run, count)


def test_the_api_server_is_down_for_ten_seconds(busy):
    """Pods wait during the outage and continue afterwards."""
    count = 24
    # An API server that has just started has no roles yet and refuses all requests.
    busy.never_logged.remove("RBAC:")
    with driven(busy, count, interval_s=0.25) as (run, done):
        wait_more_bound(run, 5)
        busy.plane.stop_api_server()
        time.sleep(OUTAGE_S)
        assert not done.done()
        busy.plane.start_api_server()
        done.result()

    check(busy, run, count)
