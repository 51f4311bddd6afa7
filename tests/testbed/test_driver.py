"""The DAG driver on a real API server, with a kube-scheduler that has no extender."""

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
from tests.testbed.pods import function_pod

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
    plane: ControlPlane, count: int, *, deadline_s: float = 600, mock_run: str = "50ms"
) -> Run:
    driver = Driver(url=plane.url, tls=plane.tls(), annotations={"mock-run": mock_run})
    return asyncio.run(driver.run(instances([DIAMOND], count), deadline_s=deadline_s))


@pytest.mark.e2e
def test_a_stage_starts_when_all_its_predecessors_have_succeeded(scheduled: ControlPlane) -> None:
    """No pod appears before the success of its predecessors."""
    run = drive(scheduled, 5)
    assert {f"diamond-{number:04d}" for number in range(5)} == run.finished_s.keys()
    succeeded: set[tuple[str, str]] = set()
    after = {stage["name"]: stage.get("after", []) for stage in DIAMOND["spec"]["stages"]}
    for seen in run.observations:
        request, stage = seen.labels["request"], seen.labels["stage"]
        assert {(request, predecessor) for predecessor in after[stage]} <= succeeded
        if seen.phase == "Succeeded":
            succeeded.add((request, stage))
    assert len(succeeded) == 20


@pytest.mark.e2e
def test_planned_times_have_noise(scheduled: ControlPlane) -> None:
    """Pods of one plan run for different times, none shorter than the noise allows."""
    plan = json.dumps({"stage_ms": 600})
    driver = Driver(
        url=scheduled.url, tls=scheduled.tls(), annotations={"plan": plan, "run-noise": "0.5"}
    )
    workflow: Json = {"metadata": {"name": "one"}, "spec": {"stages": [{"name": "only"}]}}
    run = asyncio.run(driver.run(instances([workflow], 20), deadline_s=600))
    running = {seen.uid: seen.at_s for seen in run.observations if seen.phase == "Running"}
    ran_s = [
        seen.at_s - running[seen.uid] for seen in run.observations if seen.phase == "Succeeded"
    ]
    assert len(ran_s) == 20
    assert min(run.finished_s[name] - arrived_s for name, arrived_s in run.arrived_s.items()) >= 0.3
    assert max(ran_s) - min(ran_s) > 0.2


@pytest.mark.e2e
def test_a_run_continues_after_an_outage_of_the_api_server(scheduled: ControlPlane) -> None:
    """An outage loses no pod and duplicates none."""
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(drive, scheduled, 20, mock_run="300ms")
        scheduled.stop_api_server()
        scheduled.start_api_server()
        run = running.result()
    assert len(run.finished_s) == 20
    assert len({seen.uid for seen in run.observations}) == 80


@pytest.mark.e2e
def test_a_run_ends_at_its_deadline(cluster: ControlPlane) -> None:
    """Without a scheduler the driver returns at its deadline, with no finished request."""
    run = drive(cluster, 2, deadline_s=10)
    assert run.finished_s == {}
    assert {"Pending"} == {seen.phase for seen in run.observations}


@pytest.mark.e2e
def test_a_pod_that_can_never_be_created_ends_the_run(cluster: ControlPlane) -> None:
    """The driver raises the server's reason before the deadline."""
    driver = Driver(url=cluster.url, tls=cluster.tls(), resources={"cpu": "-1"})
    with pytest.raises(PodRefusedError, match="must be greater than or equal to 0"):
        asyncio.run(driver.run(instances([DIAMOND], 1), deadline_s=600))


def observed(
    name: str, event: str, phase: str, *, percent: int, deleting: bool = False
) -> Observation:
    annotations = {"gpu": "GPU-0", "gpu-percent": str(percent), "gpu-memory": "0=1000M"}
    pod = function_pod(name, annotations=annotations) | {"status": {"phase": phase}}
    pod["metadata"] |= {"uid": name} | ({"deletionTimestamp": "2026"} if deleting else {})
    pod["spec"]["nodeName"] = "node-000"
    return Observation.of(event, pod, at_s=0)


def test_peak_use_counts_a_terminating_pod_until_it_ended() -> None:
    """A sum counts the reservations of one moment: of deleted pods, but not of ended ones."""
    events = [
        observed("a", "MODIFIED", "Running", percent=60),
        observed("a", "MODIFIED", "Running", percent=60, deleting=True),
        observed("b", "MODIFIED", "Pending", percent=50),
        observed("a", "MODIFIED", "Failed", percent=60, deleting=True),
        observed("a", "DELETED", "Failed", percent=60, deleting=True),
        observed("c", "MODIFIED", "Pending", percent=40),
    ]
    assert {"GPU-0": GpuUse(percent=110, memory_mib=2000, clients=2)} == peak_use(events)
