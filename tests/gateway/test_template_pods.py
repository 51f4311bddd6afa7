"""Pods of templates as the gateway's process assembles them: discovery, scaler, creation."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from scheduler.gateway.discovery.function_servers import Discovery
from scheduler.gateway.discovery.gpu_nodes import GpuNodes
from scheduler.gateway.scaling.template_pods import TemplatePods
from scheduler.gateway.settings import GatewaySettings
from scheduler.model.names import ANNOTATION_GPUS
from scheduler.model.plan import Prices
from tests.extender.factories import gpu, node
from tests.gateway.pool_bed import TEMPLATE, Pods
from tests.gateway.ready_pods import MODEL, NAMESPACE
from tests.gateway.runtime_bed import Bed, workflow
from workbench.profiles import builders as documents


def profile():
    """A function of two shares: many vCPUs, or more of the GPU, which is dearer alone."""
    rows = [(b, cpu, p, 10.0 * b) for cpu, p in ((8, 10), (1, 40)) for b in (1, 2, 8)]
    return documents.profile("f", {MODEL: rows}, memory_mib=1_000)


def gpu_node(name, memory_mib):
    """A node of one GPU with so much memory."""
    return node(name, inventory=json.dumps([gpu(0, name, memory_mib=memory_mib)]))


async def first_point(gateway, nodes=()):
    """Return the configuration of the first pod that the gateway creates."""
    bed, pods, known = Bed(), Pods(), profile()
    link = SimpleNamespace(pods=pods, synced=lambda: True)
    template_pods = TemplatePods(
        bed.runtime,
        prices=Prices(),
        server_context_mib=1_000,
        gateway=gateway,
        scheduler_name="",
        connect=lambda pod: None,
        link=lambda: link,
    )
    GpuNodes(template_pods.set_per_gpu).replace(nodes)
    discovery = Discovery(template_pods.pools, lambda _: known, template_pods.pools)
    pods.handler = discovery.pods
    bed.runtime.set_profile(known)
    bed.runtime.set_workflow(workflow("w", {"f": ()}))
    spec = {
        "function": "f", "template": TEMPLATE, "protocol": "http-binary", "port": 1, "minPods": 1,
    }  # fmt: skip
    metadata = {"name": "s", "namespace": NAMESPACE, "uid": "u"}
    discovery.servers.upsert({"metadata": metadata, "spec": spec})
    running = asyncio.create_task(template_pods.run())
    await pods.next_created.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await bed.runtime.close()
    [pod] = pods.objects.values()
    return json.loads(pod["metadata"]["annotations"]["esg-scheduler.io/configuration"])


def first_share(gateway, nodes=()):
    """Return vCPUs and percent of the first pod that the gateway creates."""
    point = asyncio.run(first_point(gateway, nodes))
    return point["cpu"], point["gpuPercent"]


@pytest.mark.parametrize(("cpus_per_gpu", "share"), [(None, (8, 10)), (16.0, (1, 40))])
def test_the_nodes_decide_between_vcpus_and_gpu(cpus_per_gpu, share):
    """Half of a node's vCPUs cost half of its GPU, if the setting says how many a node has."""
    gateway = GatewaySettings(pods=True, cpus_per_gpu=cpus_per_gpu)
    assert first_share(gateway) == share


def test_the_vcpus_of_the_nodes_are_read():
    """Without the setting they count as the GPU nodes have them; others do not count."""
    nodes = [node("n1", 2, cpu="32"), node("n2", 1, cpu="16"), node("cpu-only", 0, cpu="96")]
    assert first_share(GatewaySettings(pods=True), nodes) == (1, 40)


def test_changes_of_the_nodes_are_reported():
    """Only those that matter: a node of another shape, or the last one, but no equal one."""
    reported = []
    nodes = GpuNodes(lambda per_gpu: reported.append(per_gpu.vcpus))
    nodes.replace([node("n1", 2, cpu="32"), node("cpu-only", 0, cpu="96")])
    nodes.upsert(node("n2", 1, cpu="16"))
    nodes.upsert(node("n3", 1, cpu="32"))
    nodes.upsert({"metadata": {"name": "n3", "annotations": {ANNOTATION_GPUS: "broken"}}})
    nodes.delete(node("n2", 1, cpu="16"))
    nodes.delete(node("n1", 2, cpu="32"))
    assert reported == [16.0, 20.0, 16.0, None]


def test_memory_is_the_least_that_a_model_has():
    """A pod may get any of the nodes, and a change of memory is reported as one of vCPUs is."""
    reported = []
    nodes = GpuNodes(reported.append)
    nodes.replace([gpu_node("n1", 40_960)])
    nodes.upsert(gpu_node("n2", 81_920))
    nodes.delete(gpu_node("n1", 40_960))
    assert [[*per_gpu.memory_mib.values()] for per_gpu in reported] == [[40_960], [81_920]]


def test_a_pod_gets_no_memory_that_another_pod_needs():
    """On a GPU with little memory it is granted for a smaller batch than its share could run."""
    small = [gpu_node("n1", 9_000)]
    large = [gpu_node("n1", 81_920)]
    gateway = GatewaySettings(pods=True)
    assert asyncio.run(first_point(gateway, large))["batch"] == 8
    assert asyncio.run(first_point(gateway, small))["batch"] == 2
