"""Gangs of kube-scheduler 1.37: all members get their shares of GPUs, or none does.

A gang is a PodGroup whose policy names a least number of members. kube-scheduler filters all of
them before it binds the first one, so the extender promises them their shares meanwhile (ADR 49).
"""

import os
from collections.abc import Iterator
from itertools import count

import pytest

from tests.e2e.documents import configuration, profile
from tests.e2e.harness import PODS
from tests.testbed import kubernetes_release
from tests.testbed.api import wait_until
from tests.testbed.control_plane import ControlPlane
from tests.testbed.fixtures import EXTERNAL_KUBECONFIG
from tests.testbed.nodes import create_nodes
from tests.testbed.pods import function_pod
from workbench.cluster.mocked_nodes import gpu_nodes

pytestmark = pytest.mark.skipif(
    kubernetes_release.minor() < 37 or EXTERNAL_KUBECONFIG in os.environ,
    reason="gangs need a control plane of Kubernetes 1.37: ESG_TEST_KUBERNETES=1.37.2",
)
API_VERSION = "scheduling.k8s.io/v1beta1"
GROUPS = f"/apis/{API_VERSION}/namespaces/default/podgroups"
GATES = ("GenericWorkload", "TopologyAwareWorkloadScheduling")
RACK = "example.org/rack"
DOCUMENTS = [
    profile("large", configuration(60)),
    profile("wide", configuration(20, memory_mib=45_000)),
]
PERCENT = {"large": "60", "wide": "20"}
QUIET_S = 15
numbers = count()


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with pod groups, which are off by default."""
    folder = tmp_path_factory.mktemp("gangs")
    with ControlPlane(folder, gates=GATES, apis=(API_VERSION,)) as plane:
        yield plane


@pytest.fixture
def start(esg):
    """A function that starts the scheduler; shares of deleted pods are free at once."""

    def starting(nodes, gpus):
        environment = {"ESG_DELETION_GRACE_MAX_S": "0"}
        return esg(nodes=nodes, gpus=gpus, documents=DOCUMENTS, environment=environment)

    return starting


def create_gang(harness, members, *, function="large", topology=""):
    """Create a PodGroup that needs all its members, and these; return their names."""
    gang = f"gang-{next(numbers)}"
    spec = {"schedulingPolicy": {"gang": {"minCount": members}}}
    if topology:
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    metadata = {"name": gang, "namespace": "default"}
    harness.api.create(
        {"apiVersion": API_VERSION, "kind": "PodGroup", "metadata": metadata, "spec": spec}
    )
    names = [f"{gang}-{number}" for number in range(members)]
    for name in names:
        create_pod(harness, name, function, gang)
    return names


def create_pod(harness, name, function="large", gang=""):
    resources = {"cpu": "1", "esg-scheduler.io/gpu-percent": PERCENT[function]}
    pod = function_pod(
        name, function=function, resources=resources, annotations={"mock-run": "forever"}
    )
    if gang:
        pod["spec"]["schedulingGroup"] = {"podGroupName": gang}
    harness.api.create(pod)


def is_scheduled(harness, gang_pods):
    """Return the status of the gang's condition; empty before the first attempt."""
    group = harness.api.get(f"{GROUPS}/{gang_pods[0].rpartition('-')[0]}")
    conditions = (group.get("status") or {}).get("conditions") or []
    by_type = {condition["type"]: condition["status"] for condition in conditions}
    return by_type.get("PodGroupInitiallyScheduled", "")


def bound(harness, names):
    nodes = {p["metadata"]["name"]: p["spec"].get("nodeName") for p in harness.api.items(PODS)}
    return [name for name in names if nodes.get(name)]


def nodes_that_pods_get(harness, names, seconds):
    """Return the nodes that the pods get within a time."""
    version = harness.api.get(PODS)["metadata"]["resourceVersion"]
    before = bound(harness, names)
    events = harness.api.watch(PODS, version, timeout_s=seconds)
    pods = [event["object"] for event in events if event["object"]["kind"] == "Pod"]
    nodes = [p["spec"].get("nodeName") for p in pods if p["metadata"]["name"] in names]
    return [*before, *filter(None, nodes)]


def delete_all(harness):
    """Delete all pods, and wait until their shares are free."""
    harness.api.delete(PODS, grace_s=0)
    wait_until(lambda: not harness.api.items(PODS), what="all pods are deleted")
    wait_until(lambda: not harness.snapshot_reservations(), what="all shares are free")


@pytest.mark.parametrize("function", ["large", "wide"])
def test_a_gang_that_does_not_fit_takes_nothing(start, function):
    """Three of four members would fit, by percent or by memory. Others get the room at once.

    When a GPU is added, all are bound.
    """
    harness = start(nodes=1, gpus=3)
    names = create_gang(harness, 4, function=function)
    wait_until(lambda: is_scheduled(harness, names) == "False", what="the gang is refused")
    assert nodes_that_pods_get(harness, names, QUIET_S) == []
    assert is_scheduled(harness, names) == "False"
    assert harness.snapshot_reservations() == {}

    create_pod(harness, "single", function)
    harness.wait_bound("single")
    harness.api.delete(f"{PODS}/single", grace_s=0)
    create_nodes(harness.api, gpu_nodes(1, 1, name_prefix="more"))
    harness.wait_bound(*names)
    wait_until(lambda: is_scheduled(harness, names) == "True", what="the gang is scheduled")
    assert len({gpu for gpu, _, _ in harness.wait_agreement().values()}) == 4


def test_a_gang_that_fits_exactly_is_bound_without_a_refusal(start):
    """Each of eight members on eight GPUs is filtered once and bound once, in ten rounds."""
    harness = start(nodes=4, gpus=2)
    for _ in range(10):
        before = calls(harness)
        names = create_gang(harness, 8)
        harness.wait_bound(*names)
        after = calls(harness)
        assert {name: after[name] - before[name] for name in after} == {
            "filter": 8, "bind": 8, "refused": 0,
        }  # fmt: skip
        assert len({gpu for gpu, _, _ in harness.wait_agreement().values()}) == 8
        delete_all(harness)


def calls(harness):
    duration = "esg_extender_request_duration_seconds_count"
    return {
        "filter": harness.metric_count(duration, verb="filter"),
        "bind": harness.metric_count(duration, verb="bind"),
        "refused": harness.metric_count("esg_bind_total", result="refused"),
    }


def test_one_of_two_gangs_gets_all(start):
    """Two gangs of five on six GPUs, in eight rounds: no deadlock of two and four."""
    harness = start(nodes=3, gpus=2)
    for _ in range(8):
        gangs = [create_gang(harness, 5) for _ in range(2)]

        def sizes(gangs=gangs):
            return sorted(len(bound(harness, names)) for names in gangs)

        wait_until(lambda sizes=sizes: max(sizes()) == 5, what="a gang is bound")
        waiting = min(gangs, key=lambda names: len(bound(harness, names)))
        wait_until(lambda names=waiting: is_scheduled(harness, names), what="the other was tried")
        assert nodes_that_pods_get(harness, waiting, 2) == []
        assert sizes() == [0, 5]
        delete_all(harness)


def test_a_gang_gets_a_rack_where_all_fit(start):
    """By sums of percent four members fit in each rack; by GPUs in one."""
    harness = start(nodes=1, gpus=3)
    extra = [*gpu_nodes(1, 4, name_prefix="rack-b"), *gpu_nodes(1, 3, name_prefix="rack-c")]
    create_nodes(harness.api, extra)
    racks = {"node-000": "a", "rack-b-000": "b", "rack-c-000": "c"}
    for node, rack in racks.items():
        harness.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {RACK: rack}}})
    names = create_gang(harness, 4, topology=RACK)
    harness.wait_bound(*names)
    assert {racks[harness.node_of(name)] for name in names} == {"b"}
    wait_until(lambda: is_scheduled(harness, names) == "True", what="the gang is scheduled")
