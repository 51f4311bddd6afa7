"""The extender is killed, the API server goes away: nothing is lost, nothing is given twice."""

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
    """A small cluster with some pods that stay, so that there is something to remember."""
    bed = esg(nodes=3, gpus=2, max_backoff_s=1)
    for name in STAY:
        bed.create(name, function="deblur")
    bed.wait_bound(*STAY)
    return bed


@contextlib.contextmanager
def driven(bed, count, *, interval_s):
    """Instances of the four workflows, in a thread: their record, and the thread's future."""
    run = Run()
    driver = bed.driver(run=run)
    planned = instances(sample_workflows(), count, interval_s=interval_s)
    with ThreadPoolExecutor(1) as beside:
        done: Future[Run] = beside.submit(lambda: asyncio.run(driver.run(planned, deadline_s=600)))
        yield run, done


def bound(run):
    return len({seen.uid for seen in run.observations if seen.node})


def wait_more_bound(run, count):
    target = bound(run) + count
    wait_until(lambda: bound(run) >= target, what=f"{target} pods bound", timeout_s=60)


def check(bed, run, count):
    """All went through, ledger and cluster agree, and at no moment was a GPU promised twice."""
    assert len(run.finished_s) == count
    for uuid, use in peak_use(run.observations).items():
        assert use.percent <= 100, uuid
        assert use.memory_mib <= GPU_MEMORY_MIB, uuid
    assert bed.wait_agreement().keys() == {f"default/{name}" for name in STAY}
    assert bed.metric("esg_gpu_overcommitted") == 0


def test_the_extender_is_killed_ten_times(busy):
    """Each new extender reads the cluster before it answers, and the work goes on."""
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


def test_the_api_server_is_away_for_ten_seconds(busy):
    """Pods wait meanwhile, and go on when it is back."""
    count = 24
    # An API server that has just come up knows no roles yet, and refuses everybody.
    busy.never_logged.remove("RBAC:")
    with driven(busy, count, interval_s=0.25) as (run, done):
        wait_more_bound(run, 5)
        busy.plane.stop_api_server()
        time.sleep(OUTAGE_S)
        assert not done.done()
        busy.plane.start_api_server()
        done.result()

    check(busy, run, count)
