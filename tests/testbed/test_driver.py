"""The DAG driver against the real API server, with binding by a scheduler that knows no GPU."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.testbed import scheduler_config
from tests.testbed.api import Json
from tests.testbed.control_plane import ControlPlane
from tests.testbed.driver import Driver, PodRefusedError, Run, instances
from tests.testbed.nodes import create_nodes, gpu_nodes
from tests.testbed.observations import GpuUse, Observation, peak_use

DIAMOND: Json = {
    "metadata": {"name": "diamond"},
    "spec": {
        "stages": [
            {"name": "first", "function": "f"},
            {"name": "left", "function": "f", "after": ["first"]},
            {"name": "right", "function": "f", "after": ["first"]},
            {"name": "last", "function": "f", "after": ["left", "right"]},
        ]
    },
}


@pytest.fixture
def scheduled(cluster: ControlPlane) -> ControlPlane:
    """A cluster of two nodes whose kube-scheduler has no extender."""
    create_nodes(cluster.api, gpu_nodes(2, 1))
    cluster.start_scheduler(
        scheduler_config.render(kubeconfig=cluster.scheduler_kubeconfig, extender_port=None)
    )
    return cluster


def drive(
    plane: ControlPlane, count: int, *, deadline_s: float = 60, mock_run: str = "50ms"
) -> Run:
    driver = Driver(url=plane.url, tls=plane.tls(), annotations={"mock-run": mock_run})
    return asyncio.run(driver.run(instances([DIAMOND], count), deadline_s=deadline_s))


@pytest.mark.e2e
def test_a_stage_starts_when_all_its_predecessors_have_succeeded(scheduled: ControlPlane) -> None:
    """No pod is seen before those that it waits for are seen to have succeeded."""
    run = drive(scheduled, 5)

    assert {f"diamond-{number:04d}" for number in range(5)} == run.finished_s.keys()
    succeeded: set[tuple[str, str]] = set()
    after = {stage["name"]: stage.get("after", []) for stage in DIAMOND["spec"]["stages"]}
    for seen in run.observations:
        request, stage = seen.labels["request"], seen.labels["stage"]
        assert {(request, each) for each in after[stage]} <= succeeded
        if seen.phase == "Succeeded":
            succeeded.add((request, stage))
    assert len(succeeded) == 20


@pytest.mark.e2e
def test_planned_times_have_noise(scheduled: ControlPlane) -> None:
    """Pods of one plan end at different times, none sooner than the noise allows."""
    plan = json.dumps({"stage_ms": 600})
    driver = Driver(
        url=scheduled.url, tls=scheduled.tls(), annotations={"plan": plan, "run-noise": "0.5"}
    )
    workflow: Json = {"metadata": {"name": "one"}, "spec": {"stages": [{"name": "only"}]}}

    run = asyncio.run(driver.run(instances([workflow], 20), deadline_s=60))

    running = {seen.uid: seen.at_s for seen in run.observations if seen.phase == "Running"}
    ran_s = [
        seen.at_s - running[seen.uid] for seen in run.observations if seen.phase == "Succeeded"
    ]
    assert len(ran_s) == 20
    assert min(ran_s) > 0.25
    assert max(ran_s) - min(ran_s) > 0.2


@pytest.mark.e2e
def test_a_run_goes_on_when_the_api_server_was_away(scheduled: ControlPlane) -> None:
    """Nothing is lost and nothing made twice over an outage."""
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(drive, scheduled, 20, mock_run="300ms")
        scheduled.stop_api_server()
        scheduled.start_api_server()
        run = running.result()

    assert len(run.finished_s) == 20
    uids = {seen.uid for seen in run.observations}
    assert len(uids) == 80


@pytest.mark.e2e
def test_a_run_ends_at_its_deadline(cluster: ControlPlane) -> None:
    """Where nothing is ever scheduled, the driver returns in time and names nobody finished."""
    run = drive(cluster, 2, deadline_s=1)

    assert run.finished_s == {}
    assert {"Pending"} == {seen.phase for seen in run.observations}


@pytest.mark.e2e
def test_a_pod_that_can_never_be_created_ends_the_run(cluster: ControlPlane) -> None:
    """The server's reason is raised at once, not hidden until the deadline."""
    driver = Driver(url=cluster.url, tls=cluster.tls(), resources={"cpu": "-1"})

    with pytest.raises(PodRefusedError, match="must be greater than or equal to 0"):
        asyncio.run(driver.run(instances([DIAMOND], 1), deadline_s=20))


def observed(
    name: str, event: str, phase: str, *, percent: int, deleting: bool = False
) -> Observation:
    pod: Json = {
        "metadata": {
            "name": name,
            "uid": name,
            "annotations": {
                "esg-scheduler.io/gpu": "GPU-0",
                "esg-scheduler.io/gpu-percent": str(percent),
                "esg-scheduler.io/gpu-memory": "0=1000M",
            },
            **({"deletionTimestamp": "2026-01-02T03:04:05Z"} if deleting else {}),
        },
        "spec": {"nodeName": "node-000"},
        "status": {"phase": phase},
    }
    return Observation.of(event, json.loads(json.dumps(pod)), at_s=0)


def test_peak_use_counts_a_terminating_pod_until_it_ended() -> None:
    """The sum is over what is held at one moment: a deleted pod holds, an ended one does not."""
    events = [
        observed("a", "MODIFIED", "Running", percent=60),
        observed("a", "MODIFIED", "Running", percent=60, deleting=True),
        observed("b", "MODIFIED", "Pending", percent=50),
        observed("a", "MODIFIED", "Failed", percent=60, deleting=True),
        observed("a", "DELETED", "Failed", percent=60, deleting=True),
        observed("c", "MODIFIED", "Pending", percent=40),
    ]

    assert {"GPU-0": GpuUse(percent=110, memory_mib=2000, clients=2)} == peak_use(events)
