"""Pods of templates as the gateway's process assembles them: discovery, scaler, creation."""

import asyncio
import json
from collections import defaultdict
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace

import pytest

from scheduler.dispatch.scaling.share_choice import ShareChoice
from scheduler.gateway.discovery.function_servers import Discovery
from scheduler.gateway.discovery.gpu_nodes import GpuNodes, PerGpu
from scheduler.gateway.scaling.template_pods import TemplatePods
from scheduler.gateway.settings import GatewaySettings
from scheduler.model.names import ANNOTATION_GPUS, LABEL_GATEWAY_GROUP
from scheduler.settings import Settings
from tests.extender.factories import gpu, node
from tests.gateway.pool_bed import TEMPLATE, Pods
from tests.gateway.ready_pods import MODEL, NAMESPACE
from tests.gateway.runtime_bed import Bed, rows, workflow
from tests.virtual_loop import run_virtually, virtually
from workbench.profiles import builders as documents


def profile(function="f", shares=((8, 10), (1, 40))):
    """A function of two shares: many vCPUs, or more of the GPU, which is dearer alone."""
    rows = [(b, cpu, p, 10.0 * b) for cpu, p in shares for b in (1, 2, 8)]
    return documents.profile(function, {MODEL: rows}, memory_mib=1_000)


def gpu_node(name, memory_mib):
    """A node of one GPU with so much memory."""
    return node(name, inventory=json.dumps([gpu(0, name, memory_mib=memory_mib)]))


class Gateway:
    """A gateway whose servers have a template, and want a pod without a call.

    Args:
        profiles: functions of the workflow.
        served: functions with a server. Default: all.

    Attributes:
        pods: Pods of the API server.
        events: Messages of the Events.
        template_pods: Pods as the gateway's process assembles them.
    """

    def __init__(self, settings, nodes=(), profiles=None, served=None):
        self._bed, self.pods, self.events = Bed(), Pods(), []
        self.template_pods = TemplatePods(
            self._bed.runtime,
            settings=Settings(server_context_mib=1_000),
            gateway=settings,
            slice_fence=self._bed.fence,
            connect=lambda pod: None,
            link=SimpleNamespace(pods=self.pods, events=self, synced=lambda: True),
        )
        GpuNodes(self.template_pods.set_per_gpu).replace(nodes)
        known = {p.metadata.name: p for p in profiles or [profile()]}
        pools = self.template_pods.pools
        self._servers = Discovery(pools, known.get, pools)
        self.pods.handlers[settings.group] = self._servers.pods
        self._labels = {LABEL_GATEWAY_GROUP: settings.group} if settings.group else {}
        for described in known.values():
            self._bed.runtime.set_profile(described)
        self._bed.runtime.set_workflow(workflow("w", dict.fromkeys(known, ())))
        for name in served or known:
            self.set_server(name)

    def set_server(self, function="f", uid="u"):
        """Create the server of a function, or replace it by one of another UID."""
        spec = {
            "function": function, "template": TEMPLATE, "protocol": "http-binary", "port": 1,
            "minPods": 1,
        }  # fmt: skip
        metadata = {"name": function, "namespace": NAMESPACE, "uid": uid, "labels": self._labels}
        self._servers.servers.upsert({"metadata": metadata, "spec": spec})

    def remove_server(self, function):
        """Delete the server of a function."""
        self._servers.servers.delete({"metadata": {"name": function, "namespace": NAMESPACE}})

    def call(self):
        """Call the workflow."""
        return self._bed.call("w", rows(1))

    def record(self, reference, *, type, reason, message):  # noqa: A002 - the interface's
        self.events.append(message)

    @asynccontextmanager
    async def running(self):
        """Create and end pods while inside."""
        task = asyncio.create_task(self.template_pods.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._bed.runtime.close()

    def point(self, pod):
        """Return the configuration of a pod."""
        annotations = self.pods.objects[pod]["metadata"]["annotations"]
        return json.loads(annotations["esg-scheduler.io/configuration"])

    async def next_failure(self):
        """Let the next pod fail while it starts; return its time, and its vCPUs and percent."""
        self.pods.next_created.clear()
        await self.pods.next_created.wait()
        name, now_s = self.pods.created[-1], asyncio.get_running_loop().time()
        point = self.point(name)
        self.pods.set_status(name, phase="Failed", reason="OutOfcpu")
        await asyncio.sleep(0.1)
        self.pods.remove(name)
        return now_s, (point["cpu"], point["gpuPercent"])


async def first_point(settings, nodes=()):
    """Return the configuration of the first pod that the gateway creates."""
    gateway = Gateway(settings, nodes)
    async with gateway.running():
        await gateway.pods.next_created.wait()
        [pod] = gateway.pods.created
        return gateway.point(pod)


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


@virtually
async def test_each_share_pauses_longer_after_each_of_its_failures():
    """The Event says for how long; the other share is tried meanwhile."""
    gateway = Gateway(GatewaySettings(pods=True))
    failures_s = defaultdict(list)
    async with gateway.running():
        for _ in range(8):
            failed_s, share = await gateway.next_failure()
            failures_s[share].append(failed_s)
            pause_s = 5 * 2 ** (len(failures_s[share]) - 1)
            assert f"is created after {pause_s} s" in gateway.events[-1]
    assert len(failures_s) == 2
    for times_s in failures_s.values():
        assert all(b - a >= 5 * 2**i for i, (a, b) in enumerate(pairwise(times_s)))


def test_a_choice_of_shares_that_fails_concerns_its_namespace_only(monkeypatch, logged):
    """The others get theirs, and their pods."""
    sizes = ShareChoice.sizes

    def fail_in_a(choice):
        if choice.namespace == "a":
            raise ValueError(choice.namespace)
        return sizes(choice)

    monkeypatch.setattr(ShareChoice, "sizes", fail_in_a)

    async def created():
        gateway = Gateway(GatewaySettings(share="reserved"))
        document = documents.graph({"f": ("f",)}, namespace="a")
        gateway._bed.runtime.set_workflow(document)
        async with gateway.running():
            await asyncio.sleep(5)
            return gateway.pods.created

    assert len(run_virtually(created())) == 1
    failed = {(entry["event"], entry["namespace"]) for entry in logged if "namespace" in entry}
    assert failed == {("choice of shares failed", "a")}


@virtually
async def test_a_choice_of_shares_that_fails_is_repeated(monkeypatch):
    """Nothing that changes asks for it once more."""
    sizes, choices = ShareChoice.sizes, []

    def fail_second(choice):
        choices.append(choice)
        if len(choices) == 2:
            raise ValueError
        return sizes(choice)

    monkeypatch.setattr(ShareChoice, "sizes", fail_second)
    gateway = Gateway(GatewaySettings(share="reserved"))
    async with gateway.running():
        await asyncio.sleep(5)
        gateway.template_pods.set_per_gpu(PerGpu(memory_mib={}, vcpus=8.0))
        await asyncio.sleep(5)
        assert len(choices) == 3


@virtually
async def test_a_new_server_begins_with_the_first_pause():
    """A user who creates the FunctionServer again has corrected its template."""
    gateway = Gateway(GatewaySettings(pods=True))
    async with gateway.running():
        for _ in range(6):
            await gateway.next_failure()
        gateway.set_server(uid="of a new server")
        await gateway.next_failure()
        assert "is created after 5 s" in gateway.events[-1]


async def first_objects(settings, memory_mib=40_960):
    """Return the roles of the pods that a gateway creates for a first load, and its Events."""
    nodes = [gpu_node(f"n{number}", memory_mib) for number in range(2)]
    gateway = Gateway(settings, nodes)
    async with gateway.running():
        await asyncio.sleep(2)
        calls = [gateway.call() for _ in range(40)]
        await asyncio.sleep(5)
        for call in calls:
            call.cancel()
        raws = gateway.pods.objects.values()
        roles = {raw["metadata"]["labels"].get("esg-scheduler.io/pool", "") for raw in raws}
        return roles, gateway.events


def test_a_gateway_without_an_image_of_holders_reserves():
    """Templates that are to be pooled say why they are not."""
    settings = GatewaySettings(pods=True, share="pooled")
    roles, [event] = run_virtually(first_objects(settings))
    assert roles == {""}
    assert "its pods are reserved, not pooled: the gateway has no image for holders" in event


@virtually
async def test_a_server_that_is_created_again_says_why_it_reserves():
    """The Event is on the new object, too; a change of the same one repeats none."""
    gateway = Gateway(GatewaySettings(pods=True, share="pooled"))
    async with gateway.running():
        gateway.set_server(uid="another")
        gateway.set_server(uid="another")
        assert len(gateway.events) == 2
        gateway.remove_server("f")
        gateway.set_server(uid="a third")
        assert len(gateway.events) == 3


def test_pods_hold_their_shares_where_a_gpu_has_no_memory_to_pool():
    """The Event says how many processes memory allows, and how many percent and vCPUs do."""
    settings = GatewaySettings(pods=True, share="pooled", holder_image="registry.example/esg:1")
    roles, [event] = run_virtually(first_objects(settings, memory_mib=4_000))
    assert roles == {""}
    assert "its pods are reserved, not pooled: pods hold their shares: memory and MPS" in event


async def next_holder_percent(gateway):
    """Return the percent of the next holder that a gateway creates."""
    gateway.pods.next_created.clear()
    await gateway.pods.next_created.wait()
    raw = gateway.pods.objects[gateway.pods.created[-1]]
    assert raw["metadata"]["labels"]["esg-scheduler.io/pool"] == "holder"
    requests = raw["spec"]["containers"][0]["resources"]["requests"]
    return int(requests["esg-scheduler.io/gpu-percent"])


@virtually
async def test_a_removed_server_has_no_part_of_the_pool():
    """The next slice is as large as if it had not been there, and no pod of it is wanted."""
    settings = GatewaySettings(pods=True, share="pooled", holder_image="registry.example/esg:1")
    nodes, profiles = [gpu_node("n1", 40_960)], [profile(), profile("g", [(1, 80)])]
    alone = Gateway(settings, nodes, profiles, served=("f",))
    async with alone.running():
        percent_alone = await next_holder_percent(alone)
    gateway = Gateway(settings, nodes, profiles)
    async with gateway.running():
        assert await next_holder_percent(gateway) > percent_alone
        assert gateway.template_pods.pods_wanted((NAMESPACE, "g")) == 1
        gateway.remove_server("g")
        assert await next_holder_percent(gateway) == percent_alone  # the first found no room
        assert gateway.template_pods.pods_wanted((NAMESPACE, "g")) == 0


@pytest.mark.parametrize("group", ["", "a"])
def test_pooled_pods_have_a_slice(group):
    """With an image the gateway creates a holder; members would find no place before it runs."""
    settings = GatewaySettings(
        pods=True, share="pooled", holder_image="registry.example/esg:1", group=group
    )
    roles, events = run_virtually(first_objects(settings))
    assert (roles, events) == ({"holder"}, [])
