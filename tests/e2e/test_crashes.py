"""Killed and paused processes, outages: no pod is lost, and no share is granted twice."""

import asyncio
import contextlib
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.e2e.documents import configuration, profile, sample_workflows, workflow
from tests.testbed.api import wait_until
from tests.testbed.control_plane import API_SERVER
from tests.testbed.driver import Run, instances
from tests.testbed.extender import wait_extender
from tests.testbed.observations import peak_use

GPU_MEMORY_MIB = 81_920 - 1_024
KILLS = 10
OUTAGE_S = 10.0
FAULT_PODS, BINDS_PER_FAULT = 500, 70
PAUSE_S = 5.0
"""Longer than the time limit of a Binding, so that outcomes are unknown."""
SINGLE = workflow("single", "quick")
STAY = [f"stays-{number}" for number in range(6)]


@pytest.fixture
def own_api_server(cluster):
    """Skip the test, before anything starts, where the API server cannot be stopped."""
    cluster.named(API_SERVER)


@pytest.fixture
def busy(esg):
    """A small cluster with some pods that stay: grants that a new extender must recover."""
    # Else an extender that starts would bind nothing for 35 s, ten times.
    environment = {"ESG_DELETION_GRACE_MAX_S": "10"}
    harness = esg(nodes=3, gpus=2, max_backoff_s=1, environment=environment)
    for name in STAY:
        harness.create(name, function="deblur")
    harness.wait_bound(*STAY)
    return harness


@contextlib.contextmanager
def driven(harness, planned, **options):
    """Run the instances in a thread; yield their record and its future."""
    run = Run()
    driver = harness.driver(run=run, **options)
    with ThreadPoolExecutor(1) as executor:
        done: Future[Run] = executor.submit(
            lambda: asyncio.run(driver.run(planned, deadline_s=600))
        )
        yield run, done


def bound(run):
    return len({seen.uid for seen in run.observations if seen.node})


def wait_more_bound(run, count):
    target = bound(run) + count
    wait_until(lambda: bound(run) >= target, what=f"{target} pods bound")


def check(harness, run, count, *, remaining=()):
    """Check that all finished, ledger and cluster agree, and no GPU was ever overcommitted."""
    assert len(run.finished_s) == count
    for uuid, use in peak_use(run.observations).items():
        assert use.percent <= 100, uuid
        assert use.memory_mib <= GPU_MEMORY_MIB, uuid
    assert harness.wait_agreement().keys() == {f"default/{name}" for name in remaining}
    assert harness.metric_count("esg_gpu_overcommitted") == 0


def test_the_extender_is_killed_ten_times(busy):
    """Every new extender reads the cluster before it answers, and the workflows continue."""
    count = 60
    planned = instances(sample_workflows(), count, interval_s=0.5)
    with driven(busy, planned) as (run, done):
        for _ in range(KILLS):
            wait_more_bound(run, 3)
            assert not done.done(), "the load ended before the kills"
            busy.extender.kill()
            busy.extender.start()
            wait_extender(busy.extender, port=busy.port)
        done.result()

    check(busy, run, count, remaining=STAY)


@pytest.mark.usefixtures("own_api_server")
def test_the_api_server_is_down_for_ten_seconds(busy):
    """Pods wait during the outage and continue afterwards."""
    count = 24
    # An API server that has just started has no roles yet and refuses all requests.
    busy.never_logged.remove("RBAC:")
    planned = instances(sample_workflows(), count, interval_s=0.25)
    with driven(busy, planned) as (run, done):
        wait_more_bound(run, 5)
        busy.plane.stop_api_server()
        time.sleep(OUTAGE_S)
        assert not done.done()
        busy.plane.start_api_server()
        done.result()

    check(busy, run, count, remaining=STAY)


def kill_extender(harness):
    harness.extender.kill()
    harness.extender.start()
    wait_extender(harness.extender, port=harness.port)


def kill_scheduler(harness):
    scheduler = harness.plane.named("kube-scheduler")
    scheduler.kill()
    scheduler.start()


def kill_api_server(harness):
    harness.plane.named(API_SERVER).kill()
    harness.plane.start_api_server()


def pause_api_server(harness):
    with harness.plane.named(API_SERVER).paused():
        time.sleep(PAUSE_S)


def pause_etcd(harness):
    with harness.plane.named("etcd").paused():
        time.sleep(PAUSE_S)


@pytest.mark.slow
@pytest.mark.usefixtures("own_api_server")
def test_every_process_fails_during_five_hundred_binds(esg):
    """Each is killed or paused while pods are bound; then all pods are bound, and all finish."""
    documents = [profile("quick", configuration(40, memory_mib=10_000)), SINGLE]
    harness = esg(nodes=4, gpus=8, documents=documents, max_backoff_s=1)
    harness.never_logged.remove("RBAC:")  # an API server that has just started has no roles yet
    planned = instances([SINGLE], FAULT_PODS)
    with driven(harness, planned, annotations={"mock-run": "1s"}) as (run, done):
        for fault in (
            pause_api_server, kill_extender, pause_etcd, kill_scheduler, kill_api_server,
        ):  # fmt: skip
            wait_more_bound(run, BINDS_PER_FAULT)
            assert not done.done(), f"the load ended before {fault.__name__}"
            fault(harness)
        done.result()

    assert bound(run) == FAULT_PODS
    check(harness, run, FAULT_PODS)
