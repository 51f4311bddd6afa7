"""The DAG driver on a real API server, with a kube-scheduler that has no extender."""

import asyncio

import pytest

from tests.testbed import scheduler_config
from tests.testbed.api import Json
from tests.testbed.control_plane import ControlPlane
from tests.testbed.driver import Driver, instances
from tests.testbed.nodes import create_nodes
from tests.testbed.observations import GpuUse, Observation, peak_use
from tests.testbed.pods import function_pod
from workbench.cluster.mocked_nodes import gpu_nodes

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


@pytest.mark.e2e
def test_a_stage_starts_when_all_its_predecessors_have_succeeded(scheduled: ControlPlane) -> None:
    """No pod appears before the success of its predecessors."""
    driver = Driver(url=scheduled.url, tls=scheduled.tls(), annotations={"mock-run": "50ms"})
    run = asyncio.run(driver.run(instances([DIAMOND], 5), deadline_s=600))
    assert {f"diamond-{number:04d}" for number in range(5)} == run.finished_s.keys()
    succeeded: set[tuple[str, str]] = set()
    after = {stage["name"]: stage.get("after", []) for stage in DIAMOND["spec"]["stages"]}
    for seen in run.observations:
        request, stage = seen.labels["request"], seen.labels["stage"]
        assert {(request, predecessor) for predecessor in after[stage]} <= succeeded
        if seen.phase == "Succeeded":
            succeeded.add((request, stage))
    assert len(succeeded) == 20


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
