"""Karpenter adds nodes for pods that no GPU has room for, and drains none with granted pods.

Karpenter is the real one, with the provider that creates KWOK's nodes. Agents and webhook are the
processes of the chart with `autoscaler.enabled`; the GPUs are simulated (ADR 53).
"""

import os
from contextlib import ExitStack

import httpx
import pytest

from scheduler.model.names import RESOURCE_GPU_PERCENT, TAINT_NO_EMPTY_GPU, TAINT_STARTUP
from tests.agent.fakes import compiled
from tests.e2e import node_agents, webhook_process
from tests.e2e.documents import configuration, documents_in, profile, workflow
from tests.e2e.gateway_process import RBAC as GATEWAY_RBAC
from tests.e2e.gateway_process import answers, gateway, running
from tests.e2e.harness import EVENTS, PODS
from tests.e2e.node_agents import taint_keys
from tests.e2e.test_pods_from_demand import call, player, pool, server
from tests.testbed import binaries
from tests.testbed.api import wait_until
from tests.testbed.fixtures import EXTERNAL_KUBECONFIG
from tests.testbed.karpenter_process import NODE_CLASS, instance_type, running_karpenter
from workbench.cluster.process import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not binaries.is_built("karpenter") or EXTERNAL_KUBECONFIG in os.environ,
        reason="needs the control plane of the test bed, and Karpenter: make test-neighbours",
    ),
]
DOCUMENTS = [
    profile("large", configuration(60)),
    profile("wide", configuration(20, memory_mib=45_000)),
    profile("f", configuration(60, latency_ms=60)),
    workflow("w", "f"),
]
GPUS = 3
NODES = "/api/v1/nodes"
POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "gpus"},
    "spec": {
        "template": {
            "metadata": {"labels": {"esg-scheduler.io/shared": "true"}},
            "spec": {
                "nodeClassRef": {
                    "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": NODE_CLASS,
                },
                "requirements": [
                    {
                        "key": "karpenter.sh/capacity-type",
                        "operator": "In",
                        "values": ["on-demand"],
                    },
                ],
                "startupTaints": [{"key": TAINT_STARTUP, "effect": "NoSchedule"}],
                "expireAfter": "Never",
            },
        },
        "disruption": {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "0s",
            "budgets": [{"nodes": "100%"}],
        },
    },
}  # fmt: skip
CAPACITY = {
    "apiVersion": "karpenter.sh/v1alpha1",
    "kind": "NodeOverlay",
    "metadata": {"name": "gpus"},
    "spec": {
        "requirements": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["gpus"]}],
        "capacity": {RESOURCE_GPU_PERCENT: str(100 * GPUS)},
    },
}


@pytest.fixture
def autoscaled(esg, cluster, tmp_path):
    """The scheduler and its webhook on a cluster without nodes, to which Karpenter adds some."""
    libraries = compiled(tmp_path)
    harness = esg(nodes=0, gpus=0, documents=DOCUMENTS)
    for document in documents_in(node_agents.RBAC):
        harness.api.apply(document)
    webhook_process.start_registered(
        cluster, ESG_AUTOSCALED="true", ESG_SCHEDULER_NAME="esg-scheduler"
    )
    types = [instance_type("three-gpus", cpu=32, price=12.0)]
    with ExitStack() as stack:
        stack.enter_context(running_karpenter(cluster, types))
        for document in (CAPACITY, POOL):
            harness.api.apply(document)
        stack.enter_context(
            node_agents.following_nodes(
                cluster, tmp_path, libraries, selector="karpenter.sh/nodepool=gpus", gpus=GPUS
            )
        )
        yield harness


def node_names(harness):
    return {node["metadata"]["name"] for node in harness.api.items(NODES)}


def taints(harness, node):
    return taint_keys(harness.api.get(f"{NODES}/{node}"))


def wait_event(harness, node, reason, text):
    """Wait until Karpenter says this of a node; for two minutes it may have said something else."""
    selector = f"involvedObject.name={node},reason={reason}"
    wait_until(
        lambda: any(
            text in event["message"] for event in harness.api.items(EVENTS, fieldSelector=selector)
        ),
        what=f"{reason} of {node}: {text}",
        timeout_s=300,
    )


@pytest.mark.parametrize("function", ["large", "wide"])
def test_a_pod_that_no_gpu_has_room_for_brings_a_node(autoscaled, function):
    """From zero nodes, and on three GPUs with 40 % each, or with 34,000 MiB: sums have room there.

    The node of that pod is kept, though sums say that another has room for it; it is drained when a
    GPU has, if the pod's owner allows it.
    """
    harness = autoscaled
    assert node_names(harness) == set()
    first = [f"first-{number}" for number in range(GPUS)]
    for name in first:
        harness.create(name, function=function)
    harness.wait_bound(*first)
    [full] = node_names(harness)
    assert len({harness.grant_of(name)["gpu"] for name in first}) == GPUS
    wait_until(lambda: taints(harness, full) == {TAINT_NO_EMPTY_GPU}, what="no GPU is empty")

    harness.create("next", function=function)
    harness.wait_bound("next")
    added = harness.node_of("next")
    assert added != full
    assert node_names(harness) == {full, added}
    for node in (full, added):
        wait_event(harness, node, "DisruptionBlocked", "do-not-disrupt")
    assert TAINT_STARTUP not in taints(harness, added)

    own = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "false"}}}
    harness.api.patch(f"{PODS}/next", own)
    wait_event(harness, added, "Unconsolidatable", "")
    assert harness.node_of("next") == added

    for name in first[1:]:
        harness.api.delete(f"{PODS}/{name}", grace_s=0)
    wait_until(lambda: node_names(harness) == {full}, what="Karpenter drains the added node")
    assert not harness.api.exists(f"{PODS}/next")
    assert harness.node_of(first[0]) == full


def test_warm_pods_of_the_gateway_keep_their_node_until_they_end(autoscaled):
    """A pod stays between two requests; when the gateway has ended it, its node goes."""
    harness = autoscaled
    for document in documents_in(GATEWAY_RBAC):
        harness.api.apply(document)
    model_port, port = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    with (
        running(
            player(harness.plane, model_port), f"http://127.0.0.1:{model_port}/v2/models/f/ready"
        ),
        running(gateway(harness.plane, port), f"{url}/v2/health/ready"),
        httpx.Client(base_url=url, trust_env=False, timeout=120) as client,
    ):
        harness.api.apply(server(model_port, keepAliveS=3600, maxPods=1))
        wait_until(lambda: answers(f"{url}/v2/models/w/ready"), what="the gateway has the server")
        call(client, 1.0)
        [warm] = pool(harness)
        node = warm["spec"]["nodeName"]
        wait_event(harness, node, "DisruptionBlocked", "do-not-disrupt")
        call(client, 2.0)
        assert [pod["metadata"]["uid"] for pod in pool(harness)] == [warm["metadata"]["uid"]]
        harness.api.apply(server(model_port, keepAliveS=1, maxPods=1))
        wait_until(lambda: pool(harness) == [], what="the idle pod is ended", timeout_s=240)
        wait_until(lambda: node_names(harness) == set(), what="its node is removed")
